// The history of nodes and pairs of nodes as numbers, as of any time: how often, how long ago, how
// much recently. A query about a time sees only events strictly before it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "versions.hpp"

namespace tidegraph {

class History {
 public:
  // Recent activity is counted once per half-life.
  History(std::size_t nodes, std::vector<double> half_lives);

  // Appends later events, in time order.
  void append(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
              std::span<const std::int64_t> t);

  // Per node, first as a source and then as a destination: log of the number of events; log of the
  // time since the last, the second last and the fifth last; log of the decayed number per
  // half-life.
  std::size_t node_columns() const { return 2 * (4 + half_lives_.size()); }
  // Per ordered pair: whether it ever occurred; log of the number of events; log of the time since
  // the last; log of the decayed number per half-life; log of the number of events of each node
  // since.
  std::size_t pair_columns() const { return 5 + half_lives_.size(); }

  // [nodes.size(), node_columns()].
  void node_rows(std::span<const std::int64_t> nodes, std::span<const std::int64_t> t, int threads,
                 std::span<float> out) const;
  // The habits of a node in one role, with respect to one partner: log of the number of different
  // partners; the share of its last 5 and 20 events with a new partner, and with the partner of the
  // previous event; whether the given partner is among the latest, and log of the number of
  // different partners since. Then, for the node's last partner and for the last one other than
  // that, how often the given partner followed it at any node: log of the number, log of the time
  // since, log of the decayed number per half-life.
  std::size_t habit_columns() const { return 7 + 2 * (2 + half_lives_.size()); }
  std::size_t link_columns() const {
    return 2 * (node_columns() + pair_columns() + habit_columns()) + half_lives_.size();
  }
  // [src.size(), link_columns()]: the source, the destination, the pair, the reversed pair, the
  // habits of the source and of the destination, and, as a reference, log of the decayed number of
  // all events per half-life.
  void link_rows(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                 std::span<const std::int64_t> t, int threads, std::span<float> out) const;

  std::size_t nodes() const { return nodes_.size(); }
  std::size_t events() const { return all_.t.size(); }

 private:
  struct Series {
    std::vector<std::int64_t> t;
    std::vector<float> recent;  // [events, half-lives]: decayed number, including the event
    void append(std::int64_t when, std::span<const double> half_lives);
    // The number of events strictly before a time.
    std::size_t before(std::int64_t when) const;
  };
  struct RoleSeries : Series {
    std::vector<std::uint32_t> partner;
    std::vector<std::uint32_t> again;     // the next event with the same partner, if any
    std::vector<std::uint32_t> met;       // events so far with a new partner
    std::vector<std::uint32_t> repeated;  // events so far with the partner of the one before
    std::vector<std::uint32_t> run;       // the first of the consecutive events with this partner
  };
  struct NodeSeries {
    RoleSeries as[2];  // source, destination
    std::size_t events() const { return as[0].t.size() + as[1].t.size(); }
  };
  struct PairSeries : Series {
    std::vector<std::uint32_t> of_src, of_dst;  // events of each node so far
    // Where its last event is among those of the source and of the destination.
    std::uint32_t latest[2];
  };
  // The series of ordered pairs.
  template <class Kind>
  class ByPair {
   public:
    Kind& operator()(std::int64_t first, std::int64_t second);
    // Returns the series of a pair, or an empty one.
    const Kind& find(std::int64_t first, std::int64_t second) const;

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
  ByPair<Series> sequels_[2];  // pairs of consecutive partners, of sources and of destinations
};

}  // namespace tidegraph
