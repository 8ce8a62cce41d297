#include "history.hpp"

#include <algorithm>
#include <stdexcept>

namespace tidegraph {
namespace {

std::uint64_t key(std::int64_t first, std::int64_t second) {
  return std::uint64_t(first) << 32 | std::uint64_t(second);
}

// The entries [bounds[i], bounds[i + 1]) of an array; none if there is no i, or no such entries.
template <class T>
std::span<const T> entries(std::span<const T> array, std::span<const std::uint32_t> bounds,
                           std::size_t i) {
  if (i + 1 >= bounds.size()) return {};
  const std::size_t first = bounds[i], last = bounds[i + 1];
  if (first > last || last > array.size()) return {};
  return array.subspan(first, last - first);
}

// The number of values below a bound: search from a guess outwards in growing steps, and then
// between the last two. What is near the guess is found in few steps, in memory that lies together.
template <class T, class Bound>
std::size_t below(std::span<const T> values, Bound bound, std::size_t guess) {
  std::size_t first = 0, last = values.size();  // the answer is in [first, last]
  guess = std::min(guess, last);
  if (guess < last && values[guess] < bound) {
    first = guess + 1;
    for (std::size_t step = 1; first < last; step *= 2) {
      const std::size_t at = std::min(first + step, last) - 1;
      if (!(values[at] < bound)) {
        last = at;
        break;
      }
      first = at + 1;
    }
  } else {
    last = guess;
    for (std::size_t step = 1; first < last; step *= 2) {
      const std::size_t at = last - std::min(step, last);
      if (values[at] < bound) {
        first = at + 1;
        break;
      }
      last = at;
    }
  }
  return std::size_t(std::lower_bound(values.begin() + std::ptrdiff_t(first),
                                      values.begin() + std::ptrdiff_t(last), bound) -
                     values.begin());
}

}  // namespace

History::History(std::size_t nodes, std::vector<double> half_lives, const HistoryTables& tables)
    : nodes_(nodes), half_lives_(std::move(half_lives)), tables_(tables) {
  const std::size_t events = tables_.t.size();
  bool fit = events <= std::size_t(kMostEvents);
  const auto take = [&](Kind kind, std::span<const float> recent, std::size_t entries) {
    fit = fit && recent.size() == entries / stored_every(kind) * half_lives_.size();
    marks_[kind] = recent;
  };
  take(kAll, tables_.recent, events);
  for (const int role : {0, 1}) {
    const auto& table = tables_.roles[role];
    fit = fit && table.event.size() == events && table.partner.size() == events &&
          table.across.size() == events && table.link.size() == events &&
          table.met.size() == events / kMetEvery;
    take(Kind(kSource + role), table.recent, events);
    take(Kind(kSequel + role), tables_.sequels[role].recent, tables_.sequels[role].event.size());
  }
  take(kPair, tables_.pairs.recent, tables_.pairs.event.size());
  if (!fit) throw std::invalid_argument("the arrays of a history do not fit each other");
}

// Series -----------------------------------------------------------------------------------------

std::size_t History::Series::before(std::size_t bound, std::size_t guess) const {
  if (!later.empty() && later.front() < bound)
    return old.size() + below(later, bound, guess - std::min(guess, old.size()));
  return below(old, bound, guess);
}

std::size_t History::count_before(const Series& series, std::size_t bound) const {
  // Guess that events of a series are spread evenly over all.
  const auto share = double(bound) / double(std::max<std::size_t>(events(), 1));
  return series.before(bound, std::size_t(share * double(series.size())));
}

std::size_t History::events_before(std::int64_t t, std::size_t guess) const {
  const std::span<const std::int64_t> later(later_.t);
  const std::size_t old = tables_.t.size();
  if (!later.empty() && later.front() < t)
    return old + below(later, t, guess - std::min(guess, old));
  return below(tables_.t, t, guess);
}

History::Series History::role_series(std::int64_t node, int role) const {
  const auto& table = tables_.roles[role];
  Series series{Kind(kSource + role), 0, entries(table.event, table.first, std::size_t(node)), {}};
  if (!series.old.empty()) series.place = std::size_t(series.old.data() - table.event.data());
  if (!later_.t.empty()) series.later = later_.series[series.kind].find(std::uint64_t(node));
  return series;
}

History::Series History::pair_series(Kind kind, std::int64_t first, std::int64_t second) const {
  const auto& table = kind == kPair ? tables_.pairs : tables_.sequels[kind - kSequel];
  Series series{kind, 0, {}, {}};
  const auto group = entries(table.second, table.group, std::size_t(first));
  const std::size_t at = below(group, std::uint32_t(second), group.size() / 2);
  if (at < group.size() && group[at] == std::uint32_t(second)) {
    const std::size_t number = std::size_t(group.data() - table.second.data()) + at;
    series.old = entries(table.event, table.first, number);
    if (!series.old.empty()) series.place = std::size_t(series.old.data() - table.event.data());
  }
  if (!later_.t.empty()) series.later = later_.series[kind].find(key(first, second));
  return series;
}

std::int64_t History::time(std::size_t event) const {
  if (event < tables_.t.size()) return tables_.t[event];
  event -= tables_.t.size();
  return event < later_.t.size() ? later_.t[event] : 0;
}

std::uint32_t History::partner(const Series& series, std::size_t i) const {
  const int role = series.kind - kSource;
  if (i < series.old.size()) return tables_.roles[role].partner[series.place + i];
  return later_.ends[1 - role][series.event(i) - tables_.t.size()];
}

std::uint32_t History::across(const Series& series, std::size_t i) const {
  const int role = series.kind - kSource;
  if (i < series.old.size()) return tables_.roles[role].across[series.place + i];
  return later_.index[1 - role][series.event(i) - tables_.t.size()];
}

std::uint32_t History::link(const Series& series, std::size_t i) const {
  const int role = series.kind - kSource;
  if (i < series.old.size()) return tables_.roles[role].link[series.place + i];
  return later_.link[role][series.event(i) - tables_.t.size()];
}

std::uint32_t History::met(const Series& series, std::size_t i) const {
  const int role = series.kind - kSource;
  if (i >= series.old.size()) return later_.met[role][series.event(i) - tables_.t.size()];
  const auto& table = tables_.roles[role];
  const std::size_t end = series.place + i + 1, marked = end / kMetEvery * kMetEvery;
  const bool known = marked > series.place;
  const auto since = table.link.subspan(known ? marked : series.place);
  const std::size_t count = end - (known ? marked : series.place);
  return (known ? table.met[marked / kMetEvery - 1] : 0) +
         std::uint32_t(std::count(since.begin(), since.begin() + std::ptrdiff_t(count), 0u));
}

template <class EventAt>
void History::recent_in_tables(Kind kind, std::size_t place, std::size_t i, EventAt event_at,
                               float* out) const {
  const std::size_t kinds = half_lives_.size(), every = stored_every(kind);
  const std::size_t marked = (place + i + 1) / every * every;
  std::size_t at = 0;
  if (marked > place) {
    at = marked - 1 - place;
    std::copy_n(marks_[kind].begin() + std::ptrdiff_t((marked / every - 1) * kinds), kinds, out);
  } else {
    std::fill_n(out, kinds, 1.0f);
  }
  for (std::int64_t before = time(event_at(at)); at < i;) {
    const std::int64_t now = time(event_at(++at));
    count_next(half_lives_, elapsed(before, now), out);
    before = now;
  }
}

void History::recent(const Series& series, std::size_t i, float* out) const {
  const std::size_t kinds = half_lives_.size();
  if (i < series.old.size())
    return recent_in_tables(
        series.kind, series.place, i, [&](std::size_t k) { return series.old[k]; }, out);
  const std::size_t event = series.event(i) - tables_.t.size();
  std::copy_n(later_.recent[series.kind].begin() + std::ptrdiff_t(event * kinds), kinds, out);
}

void History::recent_of_all(std::size_t event, float* out) const {
  if (event < tables_.t.size())
    return recent_in_tables(kAll, 0, event, [](std::size_t i) { return i; }, out);
  const std::size_t kinds = half_lives_.size(), row = event - tables_.t.size();
  std::copy_n(later_.recent[kAll].begin() + std::ptrdiff_t(row * kinds), kinds, out);
}

void History::latest(std::int64_t node, std::size_t bound, std::size_t most, Latest& out) const {
  const Series as[] = {role_series(node, 0), role_series(node, 1)};
  const std::size_t kinds = half_lives_.size();
  std::size_t left[2];
  for (const int role : {0, 1}) {
    const Series& series = as[role];
    left[role] = count_before(series, bound);
    out.decayed[role] = nullptr;
    if (left[role] == 0) continue;
    const std::size_t last = left[role] - 1;
    const std::uint32_t event = series.event(last);
    out.newest[role] = time(event);
    out.decayed[role] =
        last < series.old.size()
            ? marks_[series.kind].data() + (series.place + last) * kinds
            : later_.recent[series.kind].data() + (event - tables_.t.size()) * kinds;
  }
  out.events = left[0] + left[1];
  out.size = std::min(most, out.events);
  // Each time lies somewhere else in memory: all are asked for before the first is read.
  std::uint32_t event[Latest::kMost];
  for (std::size_t i = 0; i < out.size; ++i) {
    const bool target =
        left[1] && (!left[0] || as[1].event(left[1] - 1) > as[0].event(left[0] - 1));
    const Series& series = as[target];
    const std::size_t at = --left[target];
    event[i] = series.event(at);
    if (event[i] < tables_.t.size()) __builtin_prefetch(&tables_.t[event[i]]);
    out.partner[i] = partner(series, at);
    out.across[i] = across(series, at);
    out.role[i] = target;
  }
  for (std::size_t i = 0; i < out.size; ++i) out.time[i] = time(event[i]);
}

// Appending --------------------------------------------------------------------------------------

void History::Lists::add(std::uint64_t key, std::uint32_t event) {
  std::uint32_t slot = index_.find(key);
  if (slot == PairMap::kAbsent) {
    slot = std::uint32_t(lists_.size());
    lists_.emplace_back();
    index_.insert(key, slot);
  }
  lists_[slot].push_back(event);
}

std::span<const std::uint32_t> History::Lists::find(std::uint64_t key) const {
  const std::uint32_t slot = index_.find(key);
  if (slot == PairMap::kAbsent) return {};
  return lists_[slot];
}

void History::append(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                     std::span<const std::int64_t> t, std::size_t nodes) {
  nodes_ = std::max(nodes_, nodes);
  for (std::size_t row = 0; row < t.size(); ++row)
    append_one(std::uint32_t(src[row]), std::uint32_t(dst[row]), t[row]);
}

void History::add_recent(const Series& series, std::int64_t t) {
  std::vector<float>& column = later_.recent[series.kind];
  column.resize(column.size() + half_lives_.size(), 1.0f);
  if (const std::size_t size = series.size()) {
    float* const out = column.data() + column.size() - half_lives_.size();
    recent(series, size - 1, out);
    count_next(half_lives_, elapsed(time(series.event(size - 1)), t), out);
  }
}

void History::append_one(std::uint32_t src, std::uint32_t dst, std::int64_t t) {
  const auto event = std::uint32_t(events());
  const std::size_t kinds = half_lives_.size();
  const std::uint32_t ends[] = {src, dst};
  const Series pair = pair_series(kPair, src, dst);
  std::vector<float>& all = later_.recent[kAll];
  all.resize(all.size() + kinds, 1.0f);
  if (event) {
    float* const out = all.data() + all.size() - kinds;
    recent_of_all(event - 1, out);
    count_next(half_lives_, elapsed(time(event - 1), t), out);
  }
  add_recent(pair, t);
  for (const int role : {0, 1}) {
    const Series series = role_series(ends[role], role);
    const std::size_t size = series.size();
    const bool known = pair.size() > 0;
    std::uint32_t found = 0;
    if (known) {
      const std::size_t latest = series.before(pair.event(pair.size() - 1), size);
      found = std::uint32_t(latest + 1);
      if (latest + 1 == size) {
        const std::uint32_t before = link(series, latest);
        found = kRepeated | (before & kRepeated ? before : std::uint32_t(latest));
      }
    }
    later_.index[role].push_back(std::uint32_t(size));
    later_.link[role].push_back(found);
    later_.met[role].push_back((size ? met(series, size - 1) : 0) + !known);
    add_recent(series, t);
    const Kind sequel = Kind(kSequel + role);
    if (size) {
      const std::uint32_t before = partner(series, size - 1), after = ends[1 - role];
      add_recent(pair_series(sequel, before, after), t);
      later_.series[sequel].add(key(before, after), event);
    } else {
      later_.recent[sequel].resize(later_.recent[sequel].size() + kinds);
    }
    later_.series[series.kind].add(ends[role], event);
  }
  later_.series[kPair].add(key(src, dst), event);
  for (const int role : {0, 1}) later_.ends[role].push_back(ends[role]);
  later_.t.push_back(t);
}

void History::merge(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                    std::span<const std::int64_t> t, std::size_t nodes, int threads,
                    const Sink& sink) const {
  const std::size_t old = tables_.t.size(), count = events() + t.size();
  HistoryEvents all;
  all.t.reserve(count);
  all.t.insert(all.t.end(), tables_.t.begin(), tables_.t.end());
  all.t.insert(all.t.end(), later_.t.begin(), later_.t.end());
  all.t.insert(all.t.end(), t.begin(), t.end());
  const std::span<const std::int64_t> given[] = {src, dst};
  for (const int role : {0, 1}) {
    all.ends[role].reserve(count);
    all.ends[role].resize(old);
    all.ends[role].insert(all.ends[role].end(), later_.ends[role].begin(), later_.ends[role].end());
    all.ends[role].insert(all.ends[role].end(), given[role].begin(), given[role].end());
  }
  nodes = std::max(nodes_, nodes);
  for (std::size_t node = 0; node < nodes_; ++node) {
    const Series series = role_series(std::int64_t(node), 0);
    for (std::size_t i = 0; i < series.old.size(); ++i) {
      const std::uint32_t event = series.old[i], other = partner(series, i);
      if (event >= old || other >= nodes)
        throw std::invalid_argument("the history is damaged: it names unknown events or nodes");
      all.ends[0][event] = std::uint32_t(node);
      all.ends[1][event] = other;
    }
  }
  build_history(std::move(all), nodes, half_lives_, threads, sink);
}

bool History::holds(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                    std::span<const std::int64_t> t) const {
  if (!std::equal(t.begin(), t.end(), tables_.t.begin(), tables_.t.end())) return false;
  std::size_t seen = 0;
  for (std::size_t node = 0; node < nodes_; ++node) {
    const Series series = role_series(std::int64_t(node), 0);
    for (std::size_t i = 0; i < series.old.size(); ++i, ++seen) {
      const std::uint32_t event = series.old[i];
      if (event >= t.size() || src[event] != std::int64_t(node) ||
          dst[event] != std::int64_t(partner(series, i)))
        return false;
    }
  }
  return seen == t.size();
}

}  // namespace tidegraph
