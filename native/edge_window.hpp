// The edges inside a window of time or of the last events, and the queue of what will leave it.
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

  // As of the last apply().
  const Graph& graph() const { return graph_; }
  void resize(std::size_t nodes) { graph_.resize(nodes); }
  std::size_t bytes() const;

  // A key is two node numbers, the first in the upper half.
  void add(std::int64_t t, std::uint64_t key, double weight);
  // Lowers an edge to at most this weight, taking its oldest contributions first.
  void lower(std::uint64_t key, double weight);
  // Drops the oldest contributions beyond `most`, or those that came at `until` or before.
  void drop_beyond(std::size_t most);
  void drop_until(std::int64_t until);
  // Brings the graph up to date; calls visit(src, dst, weight before, weight after) for the edges
  // named since the last call.
  template <class Visit>
  void apply(Visit visit) {
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
  // A contribution, in order of arrival; number `popped_` is the first in the queue.
  struct Entry {
    std::int64_t t;
    std::uint64_t key;
    double weight;       // what is left of it; 0 once it has been removed
    std::uint64_t next;  // the next one of the same edge
  };
  struct Pair {
    Sum weight;
    std::uint64_t first = kNone, last = kNone;  // contributions with a weight left
  };
  Entry& entry(std::uint64_t number) { return queue_[std::size_t(number - popped_)]; }
  // Creates the pair if it is absent, and marks it as touched.
  Pair& pair(std::uint64_t key);
  void link(Pair& pair, std::uint64_t number);
  void reduce_first(Pair& pair, double left);
  void sum(Pair& pair);
  void drop_first();

  Graph graph_;
  std::deque<Entry> queue_;
  std::uint64_t popped_ = 0;
  PairMap index_;  // from edges with contributions to slots
  std::vector<Pair> pairs_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> vacant_;
  std::vector<std::uint32_t> touched_;  // slots, since the last apply()
  std::vector<std::uint8_t> marked_;
};

}  // namespace tidegraph
