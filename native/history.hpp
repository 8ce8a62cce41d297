// The history of nodes and pairs of nodes as numbers, as of any time: how often, how long ago, how
// much recently. A query about a time sees only events strictly before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "history_tables.hpp"
#include "pairmap.hpp"

namespace tidegraph {

// Events lie in tables, which never change, and in growing lists for those that came after. A
// series continues from the tables into the lists, and no answer depends on where it does. The
// caller replaces the tables by merged ones when the lists have grown.
//
// Tables may come from a damaged file: whatever they contain, nothing is read outside of them.
class History {
 public:
  // half_lives: recent activity is counted once per half-life.
  // tables: must outlive the object.
  History(std::size_t nodes, std::vector<double> half_lives, const HistoryTables& tables = {});

  // Appends later events, in time order. Nodes are below `nodes`, which may have grown.
  void append(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
              std::span<const std::int64_t> t, std::size_t nodes);

  // Builds the tables of all events and of these later ones, which are not appended.
  void merge(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
             std::span<const std::int64_t> t, std::size_t nodes, int threads,
             const Sink& sink) const;

  // Whether the tables hold exactly these events.
  bool holds(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
             std::span<const std::int64_t> t) const;

  // Per node, first as a source and then as a destination: log of the number of events; log of the
  // time since the last, the second last and the fifth last; log of the decayed number per
  // half-life.
  std::size_t node_columns() const { return 2 * (4 + half_lives_.size()); }
  // Per ordered pair: whether it ever occurred; log of the number of events; log of the time since
  // the last; log of the decayed number per half-life; log of the number of events of each node
  // since.
  std::size_t pair_columns() const { return 5 + half_lives_.size(); }
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

  // [nodes.size(), node_columns()].
  void node_rows(std::span<const std::int64_t> nodes, std::span<const std::int64_t> t, int threads,
                 std::span<float> out) const;
  // [src.size(), link_columns()]: the source, the destination, the pair, the reversed pair, the
  // habits of the source and of the destination, and, as a reference, log of the decayed number of
  // all events per half-life.
  // What happened before as_of is known; times and decayed numbers are as of t, not before as_of.
  void link_rows(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                 std::span<const std::int64_t> t, std::span<const std::int64_t> as_of, int threads,
                 std::span<float> out) const;

  // Per pair, of the source and then of the destination: log of the time since it was first a
  // source, and first a destination.
  static constexpr std::size_t kAgeColumns = 4;
  // [src.size(), kAgeColumns], as of t and from what happened before as_of.
  void age_rows(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                std::span<const std::int64_t> t, std::span<const std::int64_t> as_of, int threads,
                std::span<float> out) const;

  std::size_t nodes() const { return nodes_; }
  std::size_t events() const { return tables_.t.size() + later_.t.size(); }
  std::size_t later_events() const { return later_.t.size(); }

 private:
  // Of series, and of the arrays in which their decayed numbers are.
  enum Kind : std::uint8_t { kAll, kSource, kDestination, kPair, kSequel, kReverseSequel, kKinds };
  // At which places of the arrays decayed numbers are stored.
  static std::size_t stored_every(Kind kind) {
    return kind == kSource || kind == kDestination ? 1 : kRecentEvery;
  }

  // The numbers of the events of a series: those in the tables, then those that came later.
  struct Series {
    Kind kind;
    std::size_t place = 0;  // in the tables, of the first one there
    std::span<const std::uint32_t> old, later;

    std::size_t size() const { return old.size() + later.size(); }
    std::uint32_t event(std::size_t i) const {
      return i < old.size() ? old[i] : later[i - old.size()];
    }
    // The number of entries whose event is below a bound, and quickly if it is near the guess.
    std::size_t before(std::size_t bound, std::size_t guess) const;
  };

 public:
  // The newest events of a node in both roles before a bound, newest first, and their
  // decayed number. An event of a node with itself counts in both roles.
  struct Latest {
    static constexpr std::size_t kMost = 256;
    std::size_t size;    // of the arrays
    std::size_t events;  // of the node before the bound
    std::int64_t time[kMost];
    std::uint32_t partner[kMost];
    std::uint32_t across[kMost];  // the index of the event among the partner's, in the other role
    std::uint8_t role[kMost];     // of the node
    // The decayed number of events in each role at the time of the newest one, [half-lives], and
    // that time; nullptr if there is none.
    const float* decayed[2];
    std::int64_t newest[2];
  };
  // most: how many of the newest events are wanted, at most kMost.
  void latest(std::int64_t node, std::size_t bound, std::size_t most, Latest& out) const;
  // Calls visit(i, partner, whether it is the first) for the events of the partner of events' entry
  // i that follow it in the partner's role, in the order of time, before a bound and at most so
  // many.
  template <class Visit>
  void following(const Latest& events, std::size_t bound, std::size_t most, Visit visit) const {
    // Partners lie anywhere in memory: ask for what is read of all of them before it is read.
    for (std::size_t i = 0; i < events.size; ++i) prefetch(events.partner[i], 1 - events.role[i]);
    Series series[Latest::kMost];
    for (std::size_t i = 0; i < events.size; ++i) {
      series[i] = role_series(events.partner[i], 1 - events.role[i]);
      prefetch(series[i], std::size_t(events.across[i]) + 1, most);
    }
    for (std::size_t i = 0; i < events.size; ++i) {
      const std::size_t first = std::size_t(events.across[i]) + 1;
      const std::size_t last = std::min(first + most, series[i].size());
      for (std::size_t at = first; at < last && series[i].event(at) < bound; ++at)
        visit(i, partner(series[i], at), at == first);
    }
  }
  // The number of events before a time, which is the bound of others; quick if near the guess.
  std::size_t events_before(std::int64_t t, std::size_t guess) const;
  std::span<const double> half_lives() const { return half_lives_; }

 private:
  // Lists of events by key.
  class Lists {
   public:
    void add(std::uint64_t key, std::uint32_t event);
    std::span<const std::uint32_t> find(std::uint64_t key) const;

   private:
    PairMap index_;
    std::vector<std::vector<std::uint32_t>> lists_;
  };
  // Events after those of the tables, in growing columns, and which of them each series has.
  struct Later {
    std::vector<std::int64_t> t;
    std::vector<std::uint32_t> ends[2], index[2], link[2], met[2];  // index: in the node's series
    std::vector<float> recent[kKinds];  // [events, half-lives], of each event's series of a kind
    Lists series[kKinds];
  };
  struct Moment;
  struct Node;

  void append_one(std::uint32_t src, std::uint32_t dst, std::int64_t t);
  void add_recent(const Series& series, std::int64_t t);

  Series role_series(std::int64_t node, int role) const;
  Series pair_series(Kind kind, std::int64_t first, std::int64_t second) const;
  std::int64_t time(std::size_t event) const;
  std::uint32_t partner(const Series& series, std::size_t i) const;
  std::uint32_t across(const Series& series, std::size_t i) const;
  std::uint32_t link(const Series& series, std::size_t i) const;
  std::uint32_t met(const Series& series, std::size_t i) const;
  // The decayed numbers after entry i of a series, and after an event in that of all, [half-lives].
  void recent(const Series& series, std::size_t i, float* out) const;
  void recent_of_all(std::size_t event, float* out) const;
  template <class EventAt>
  void recent_in_tables(Kind kind, std::size_t place, std::size_t i, EventAt event_at,
                        float* out) const;
  std::size_t count_before(const Series& series, std::size_t bound) const;
  // Ask for memory that will be read: where a series begins, and some of its entries.
  void prefetch(std::int64_t node, int role) const {
    const auto& first = tables_.roles[role].first;
    if (std::size_t(node) < first.size()) __builtin_prefetch(&first[std::size_t(node)]);
  }
  void prefetch(const Series& series, std::size_t first, std::size_t most) const {
    if (first >= series.old.size() || most == 0) return;
    const std::size_t last = std::min(first + most, series.old.size()) - 1;
    const auto& partner = tables_.roles[series.kind - kSource].partner;
    for (const std::size_t i : {first, last}) {
      __builtin_prefetch(&series.old[i]);
      __builtin_prefetch(&partner[series.place + i]);
    }
  }

  Moment moment(std::int64_t t, std::int64_t as_of, std::size_t guess) const;
  Node node_at(std::int64_t node, const Moment& now) const;
  float* write_decayed(const float* recent, std::int64_t elapsed, float* out) const;
  float* write_recent(const Series& series, std::size_t count, const Moment& now, float* out) const;
  void write_node(const Node& node, const Moment& now, float* out) const;
  void write_pair(std::int64_t first, std::int64_t second, const Node& first_node,
                  const Node& second_node, const Moment& now, float* out) const;
  float* write_sequel(std::int64_t before, std::int64_t after, int role, const Moment& now,
                      float* out) const;
  void write_habits(const Node& node, std::int64_t partner, int role, const Moment& now,
                    float* out) const;

  std::size_t nodes_;
  std::vector<double> half_lives_;
  HistoryTables tables_;
  std::span<const float> marks_[kKinds];  // the decayed numbers in the tables
  Later later_;
};

}  // namespace tidegraph
