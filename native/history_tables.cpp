#include "history_tables.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "parallel.hpp"

namespace tidegraph {
namespace {

using Numbers = std::vector<std::uint32_t>;
constexpr std::uint32_t kNone = 0xffffffff;
constexpr std::size_t kAhead = 16;   // entries for which memory is fetched early
constexpr std::size_t kPieces = 64;  // into which the entries are divided among threads

template <class T>
using Owned = std::vector<T>;
using Arrays = HistoryArrays<Owned>;

class Builder {
 public:
  Builder(HistoryEvents events, std::size_t nodes, std::span<const double> half_lives, int threads)
      : events_(std::move(events)), nodes_(nodes), half_lives_(half_lives), threads_(threads) {}

  void run(const Sink& sink) {
    const auto hand_over = [&sink](const std::string& name, const auto& column) {
      sink(name, {reinterpret_cast<const std::uint8_t*>(column.data()),
                  column.size() * sizeof(column[0])});
    };
    const auto finish = [&](const char* name, Arrays::Pairs& table) {
      table.recent = recent_of(table.event, table.first);
      Arrays::each_of_pairs(name, table, hand_over);
      table = {};
    };
    in_parallel(2, [&](std::size_t role) { sort_role(int(role)); });
    in_parallel(2, [&](std::size_t role) { look_across(int(role)); });
    for (const int role : {0, 1}) {
      Arrays::Role& table = arrays_.roles[role];
      table.recent = recent_of(table.event, table.first, 1);
      arrays_.each_of_role(role, hand_over);
      order_[role] = std::move(table.event);
      table = {};
    }
    Numbers every(events_.t.size());
    std::iota(every.begin(), every.end(), 0);
    hand_over("recent", recent_of(every, {0, std::uint32_t(every.size())}));
    every = {};
    hand_over("t", events_.t);

    // A stable sort by one node of the events in the order of the other one groups them by pair.
    // The partner of a source is the destination.
    in_parallel(2, [&](std::size_t role) {
      sort_pairs(previous_[role], events_.ends[1 - role], order_[1 - role], arrays_.sequels[role]);
      previous_[role] = {};
    });
    finish("sequels0", arrays_.sequels[0]);
    finish("sequels1", arrays_.sequels[1]);
    sort_pairs(events_.ends[0], events_.ends[1], order_[1], arrays_.pairs);
    finish("pairs", arrays_.pairs);
  }

 private:
  void in_parallel(std::size_t items, const std::function<void(std::size_t)>& work) {
    parallel_for(items, threads_, work);
  }

  // Returns where the entries of each key begin, given the key of each entry.
  Numbers starts(const Numbers& keys) const {
    Numbers first(nodes_ + 1);
    for (const std::uint32_t key : keys)
      if (key != kNone) ++first[key + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    return first;
  }

  void sort_role(int role) {
    Arrays::Role& table = arrays_.roles[role];
    const Numbers &own = events_.ends[role], &other = events_.ends[1 - role];
    const std::size_t count = own.size();
    table.first = starts(own);
    table.event.resize(count);
    Numbers place(table.first.begin(), table.first.end() - 1);
    for (std::size_t e = 0; e < count; ++e) table.event[place[own[e]]++] = std::uint32_t(e);

    table.partner.resize(count);
    table.link.resize(count);
    table.met.resize(count / kMetEvery);
    previous_[role].assign(count, kNone);
    std::fill(place.begin(), place.end(), kNone);  // now the last entry with each partner
    for (std::size_t node = 0; node < nodes_; ++node) {
      const std::uint32_t first = table.first[node], last = table.first[node + 1];
      std::uint32_t met = 0;
      for (std::uint32_t p = first; p < last; ++p) {
        const std::uint32_t partner = table.partner[p] = other[table.event[p]];
        const std::uint32_t latest = std::exchange(place[partner], p);
        const bool known = latest != kNone && latest >= first;
        if (p > first) previous_[role][table.event[p]] = table.partner[p - 1];
        if (known && latest + 1 == p)
          table.link[p] =
              kRepeated | (table.link[latest] & kRepeated ? table.link[latest] : latest - first);
        else
          table.link[p] = known ? latest - first + 1 : 0;
        met += !known;
        if (p % kMetEvery == kMetEvery - 1) table.met[p / kMetEvery] = met;
      }
    }
  }

  void look_across(int role) {
    Arrays::Role &table = arrays_.roles[role], &other = arrays_.roles[1 - role];
    Numbers index(table.event.size());  // of each event in the other role
    for (std::size_t node = 0; node < nodes_; ++node)
      for (std::uint32_t p = other.first[node]; p < other.first[node + 1]; ++p)
        index[other.event[p]] = p - other.first[node];
    table.across.resize(index.size());
    for (std::size_t p = 0; p < index.size(); ++p) table.across[p] = index[table.event[p]];
  }

  // Groups events by (firsts[e], seconds[e]). `order` has them ascending by the second, and those
  // with equal ones in time order; events without a first are left out.
  void sort_pairs(const Numbers& firsts, const Numbers& seconds, const Numbers& order,
                  Arrays::Pairs& table) const {
    const Numbers first = starts(firsts);
    table.event.resize(first.back());
    Numbers place(first.begin(), first.end() - 1);
    for (const std::uint32_t e : order)
      if (firsts[e] != kNone) table.event[place[firsts[e]]++] = e;
    place = {};
    std::size_t series = 0;
    const auto each_series = [&](auto visit) {
      for (std::size_t node = 0; node < nodes_; ++node) {
        std::uint32_t last = kNone;
        for (std::uint32_t p = first[node]; p < first[node + 1]; ++p) {
          const std::uint32_t second = seconds[table.event[p]];
          if (std::exchange(last, second) != second) visit(p, second);
        }
        if (!table.group.empty()) table.group[node + 1] = std::uint32_t(table.second.size());
      }
    };
    each_series([&](std::uint32_t, std::uint32_t) { ++series; });
    table.second.reserve(series);
    table.first.reserve(series + 1);
    table.group.resize(nodes_ + 1);
    each_series([&](std::uint32_t p, std::uint32_t second) {
      table.first.push_back(p);
      table.second.push_back(second);
    });
    table.first.push_back(first.back());
  }

  // Returns the decayed numbers after the entries whose places are marked. The entries of series s
  // are [first[s], first[s + 1]).
  std::vector<float> recent_of(const Numbers& event, const Numbers& first,
                               std::size_t every = kRecentEvery) const {
    const std::size_t kinds = half_lives_.size(), series = first.size() - 1;
    std::vector<float> recent(event.size() / every * kinds);
    if (recent.empty()) return recent;
    const std::size_t piece = event.size() / kPieces + 1;
    const std::function<void(std::size_t)> work = [&](std::size_t i) {
      std::vector<float> now(kinds);
      const auto starting = [&](std::size_t entry) {
        return std::size_t(std::lower_bound(first.begin(), first.end() - 1, entry) - first.begin());
      };
      const std::size_t end = std::min(starting((i + 1) * piece), series);
      for (std::size_t s = starting(i * piece); s < end; ++s) {
        // Entries after the last marked place need no numbers.
        const std::size_t stop = first[s + 1] / every * every;
        for (std::size_t p = first[s]; p < stop; ++p) {
          // Times lie far apart; fetch them while exponentials are computed.
          if (p + kAhead < event.size()) __builtin_prefetch(&events_.t[event[p + kAhead]]);
          if (p == first[s])
            std::fill(now.begin(), now.end(), 1.0f);
          else
            count_next(half_lives_, elapsed(events_.t[event[p - 1]], events_.t[event[p]]),
                       now.data());
          if (p % every == every - 1)
            std::copy(now.begin(), now.end(), recent.begin() + p / every * kinds);
        }
      }
    };
    parallel_for(kPieces, threads_, work);
    return recent;
  }

  HistoryEvents events_;
  const std::size_t nodes_;
  const std::span<const double> half_lives_;
  const int threads_;
  Arrays arrays_;
  Numbers order_[2];     // the events in the order of sources, and of destinations
  Numbers previous_[2];  // the partner in the previous event of the source, of the destination
};

}  // namespace

void build_history(HistoryEvents events, std::size_t nodes, std::span<const double> half_lives,
                   int threads, const Sink& sink) {
  Builder(std::move(events), nodes, half_lives, threads).run(sink);
}

}  // namespace tidegraph
