// The edges inside a window of time, or of the last events, and a queue of what will leave it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "graph.hpp"
#include "pairmap.hpp"
#include "sum.hpp"

namespace tidegraph {

class EdgeWindow {
 public:
  explicit EdgeWindow(bool directed) : graph_(0, directed, 1) {}

  // As of the last settle().
  const Graph& graph() const { return graph_; }
  void resize(std::size_t nodes) { graph_.resize(nodes); }
  std::size_t bytes() const;

  // A key is two nodes, the first in the upper half.
  void add(std::int64_t t, std::uint64_t key, double weight);
  // Brings an edge to at most this weight: its oldest contributions go first.
  void lower(std::uint64_t key, double weight);
  // Lets contributions go while there are more than `most`, or the oldest came at `until` or
  // before.
  void leave_beyond(std::size_t most);
  void leave_until(std::int64_t until);
  // Brings the graph up to all of that; calls visit(src, dst, weight before, and after) for the
  // edges named since the last time.
  template <class Visit>
  void settle(Visit visit) {
    for (const std::uint32_t slot : touched_) {
      marked_[slot] = 0;
      const Node src = Node(keys_[slot] >> 32), dst = Node(keys_[slot]);
      const double weight = pairs_[slot].weight.value;
      double before = 0;
      const bool existed = graph_.read(src, dst, {&before, 1});
      if (weight > 0)
        graph_.write(src, dst, {&weight, 1});
      else if (existed)
        graph_.erase(src, dst);
      visit(src, dst, before, weight);
      if (pairs_[slot].first != kNone) continue;
      index_.erase(keys_[slot]);
      vacant_.push_back(slot);
    }
    touched_.clear();
    graph_.tidy();
  }

  void archive(Archive& archive, const std::string& name);

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t(0);
  // A contribution, in the order of arrival; number `popped_` is the first in the queue.
  struct Entry {
    std::int64_t t;
    std::uint64_t key;
    double weight;       // what counts of it; 0 where it has been taken out
    std::uint64_t next;  // the next one of its edge
  };
  struct Pair {
    Sum weight;
    std::uint64_t first = kNone, last = kNone;  // contributions that count
  };
  Entry& entry(std::uint64_t number) { return queue_[std::size_t(number - popped_)]; }
  Pair& pair(std::uint64_t key);  // made where absent, and marked as touched
  void link(Pair& pair, std::uint64_t number);
  void leave_of_first(Pair& pair, double left);
  void sum(Pair& pair);
  void leave();

  Graph graph_;
  std::deque<Entry> queue_;
  std::uint64_t popped_ = 0;
  PairMap index_;  // of the edges that have contributions, to slots
  std::vector<Pair> pairs_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> vacant_;
  std::vector<std::uint32_t> touched_;  // slots, since the last settle()
  std::vector<std::uint8_t> marked_;
};

}  // namespace tidegraph
