// The history of a stream as flat arrays, which may lie in a mapped file, and how they are built.
//
// Every event belongs to six series: that of all events, that of its source, that of its
// destination, that of the pair, and two of "sequels", in which the partner of a node follows the
// node's previous partner. A series lists numbers of events in ascending order. Events are in time
// order, so those before a time are the numbers below some bound, and one search among the times of
// all events answers for all series. Series of one kind lie one after the other.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tidegraph {

constexpr std::int64_t kMostEvents = 0xfffffffe;  // events are counted in 32 bits

// Decayed numbers of events follow from one entry of a series to the next, rounded to float32 each
// time. For nodes, which walks ask about often, they are stored for every entry; otherwise for the
// entries at every fourth place of the arrays, and those in between are computed again from the
// last stored one, to the same bits.
constexpr std::size_t kRecentEvery = 4;
constexpr std::size_t kMetEvery = 16;  // the same for numbers of different partners

// How an entry of a node relates to earlier ones: 0 if its partner is new to the node; one plus the
// index of the last entry with the same partner; or, if that is the entry just before, this bit and
// the index of the first of the consecutive entries with this partner.
constexpr std::uint32_t kRepeated = 1u << 31;

// Times lie within ±2^63: the difference wraps as in two's complement.
inline std::int64_t elapsed(std::int64_t from, std::int64_t to) {
  return std::int64_t(std::uint64_t(to) - std::uint64_t(from));
}
inline double decayed(double value, std::int64_t elapsed, double half_life) {
  if (elapsed == 0) return value;  // as below, but quickly: many events come at one time
  return value * std::exp2(-double(elapsed) / half_life);
}
// From the decayed numbers of events after one event to those after the next.
inline void count_next(std::span<const double> half_lives, std::int64_t elapsed, float* recent) {
  for (std::size_t h = 0; h < half_lives.size(); ++h)
    recent[h] = float(decayed(double(recent[h]), elapsed, half_lives[h]) + 1);
}

// Column<T> is a vector while the arrays are built, and a span when they are read.
template <template <class> class Column>
struct HistoryArrays {
  // The series of nodes in one role; entries of node u are [first[u], first[u + 1]). `across` is
  // the index of an entry's event among those of its partner, in the other role.
  struct Role {
    Column<std::uint32_t> first, event, partner, across, link, met;
    Column<float> recent;
  };
  // The series of ordered pairs: those with a first node u are [group[u], group[u + 1]), ascending
  // by their second node; the entries of series s are [first[s], first[s + 1]).
  struct Pairs {
    Column<std::uint32_t> group, second, first, event;
    Column<float> recent;
  };
  Column<std::int64_t> t;
  Column<float> recent;
  Role roles[2];  // source, destination
  Pairs pairs;
  Pairs sequels[2];  // of the partners of sources and of destinations

  // Calls visit(name, column) for every array.
  template <class Visit>
  void each(Visit visit) {
    visit("t", t);
    visit("recent", recent);
    for (const int role : {0, 1}) each_of_role(role, visit);
    each_of_pairs("pairs", pairs, visit);
    each_of_pairs("sequels0", sequels[0], visit);
    each_of_pairs("sequels1", sequels[1], visit);
  }
  template <class Visit>
  void each_of_role(int role, Visit visit) {
    const std::string name = "role" + std::to_string(role);
    visit(name + ".first", roles[role].first);
    visit(name + ".event", roles[role].event);
    visit(name + ".partner", roles[role].partner);
    visit(name + ".across", roles[role].across);
    visit(name + ".link", roles[role].link);
    visit(name + ".met", roles[role].met);
    visit(name + ".recent", roles[role].recent);
  }
  template <class Visit>
  static void each_of_pairs(const std::string& name, Pairs& pairs, Visit visit) {
    visit(name + ".group", pairs.group);
    visit(name + ".second", pairs.second);
    visit(name + ".first", pairs.first);
    visit(name + ".event", pairs.event);
    visit(name + ".recent", pairs.recent);
  }
};

template <class T>
using Mapped = std::span<const T>;
using HistoryTables = HistoryArrays<Mapped>;

// Events in time order. The caller checks nodes and order.
struct HistoryEvents {
  std::vector<std::uint32_t> ends[2];  // source, destination
  std::vector<std::int64_t> t;
};

// Takes each array when it is complete: its name and its bytes, which are valid during the call.
using Sink = std::function<void(const std::string&, std::span<const std::uint8_t>)>;

// Builds the tables, in time linear in events and nodes, and hands them over array by array, so
// that it needs some 60 bytes per event and 40 per node. The bytes depend on the events alone.
void build_history(HistoryEvents events, std::size_t nodes, std::span<const double> half_lives,
                   int threads, const Sink& sink);

}  // namespace tidegraph
