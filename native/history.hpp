// What happened to nodes and to pairs of nodes, told in numbers as of any moment: how often, how
// long ago, how much of it lately. A question about a time sees what happened strictly before it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "versions.hpp"

namespace tidegraph {

class History {
 public:
  // How much happened lately is told once per half-life.
  History(std::size_t nodes, std::vector<double> half_lives);

  // Later events, in the order in which they happened.
  void append(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
              std::span<const std::int64_t> t);

  // Per node, first as a source and then as a destination: log of the number of events; log of the
  // time since the last, the one before it, and the fifth last; log of the number per half-life.
  std::size_t node_columns() const { return 2 * (4 + half_lives_.size()); }
  // Per ordered pair: whether it ever happened; log of the number; log of the time since; log of
  // the number per half-life; log of how many events of either node came since.
  std::size_t pair_columns() const { return 5 + half_lives_.size(); }

  // [nodes.size(), node_columns()].
  void node_rows(std::span<const std::int64_t> nodes, std::span<const std::int64_t> t, int threads,
                 std::span<float> out) const;
  // Of a source among its destinations, or a destination among its sources, with a view to one of
  // them: log of the number of different partners; the share of its last 5 and 20 events that were
  // with a partner it had not met before, and with the partner of the event before; whether this
  // one is among its latest, and log of the number of different partners since; and for its last
  // partner, and the last other one, how often this one came next after that one at any node: log
  // of the number, log of the time since, log of the number per half-life.
  std::size_t habit_columns() const { return 7 + 2 * (2 + half_lives_.size()); }
  std::size_t link_columns() const {
    return 2 * (node_columns() + pair_columns() + habit_columns()) + half_lives_.size();
  }
  // [src.size(), link_columns()]: source, destination, the pair, the pair in the other direction,
  // the habits of the source and those of the destination, and how much happened anywhere: log of
  // the number per half-life, by which one's own is little or much.
  void link_rows(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                 std::span<const std::int64_t> t, int threads, std::span<float> out) const;

  std::size_t nodes() const { return nodes_.size(); }
  std::size_t events() const { return all_.t.size(); }

 private:
  struct Series {
    std::vector<std::int64_t> t;
    std::vector<float> lately;  // [events, half-lives]: decayed number, the event itself included
    void append(std::int64_t when, std::span<const double> half_lives);
    std::size_t before(std::int64_t when) const;  // events strictly before
  };
  struct RoleSeries : Series {
    std::vector<std::uint32_t> partner;
    std::vector<std::uint32_t> again;     // the next event with the same partner, if there is one
    std::vector<std::uint32_t> met;       // events up to this one whose partner was new
    std::vector<std::uint32_t> repeated;  // events up to this one whose partner was the last one's
    std::vector<std::uint32_t> run;       // the first of the events in a row with this partner
  };
  struct NodeSeries {
    RoleSeries as[2];  // source, destination
    std::size_t events() const { return as[0].t.size() + as[1].t.size(); }
  };
  struct PairSeries : Series {
    std::vector<std::uint32_t> of_src, of_dst;  // events of either node up to this one
    std::uint32_t latest[2];  // its last event among those of the source, of the destination
  };
  // A series per ordered pair that has one.
  template <class Kind>
  class ByPair {
   public:
    Kind& operator()(std::int64_t first, std::int64_t second);
    const Kind& find(std::int64_t first, std::int64_t second) const;  // or an empty one

   private:
    PairMap index_;
    std::vector<Kind> series_;
  };
  double unseen(std::int64_t t) const;
  float* write_series(const Series& series, std::size_t count, std::int64_t t, float* out) const;
  float* write_sequel(std::int64_t before, std::int64_t after, int role, std::int64_t t,
                      float* out) const;
  void write_habits(std::int64_t node, std::int64_t partner, int role, std::int64_t t,
                    float* out) const;
  std::size_t write_node(std::int64_t node, std::int64_t t, float* out) const;
  void write_pair(std::int64_t src, std::int64_t dst, std::int64_t t, std::size_t src_events,
                  std::size_t dst_events, float* out) const;

  std::vector<double> half_lives_;
  std::vector<NodeSeries> nodes_;
  Series all_;
  ByPair<PairSeries> pairs_;
  ByPair<Series> sequels_[2];  // one partner after another, of sources and of destinations
};

}  // namespace tidegraph
