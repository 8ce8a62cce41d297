#include "history.hpp"

#include <algorithm>
#include <cmath>

#include "parallel.hpp"

namespace tidegraph {
namespace {

constexpr std::size_t kChunk = 1024;
// Makes a single event a few half-lives old visible in a logarithm.
constexpr double kRecentScale = 10;
constexpr std::size_t kLatest = 64;  // events searched for a partner
constexpr std::uint32_t kNotYet = 0xffffffff;
constexpr std::int64_t kNobody = 0xffffffff;  // a node without sequels

double decayed(double value, std::int64_t elapsed, double half_life) {
  return value * std::exp2(-double(elapsed) / half_life);
}

std::uint64_t key(std::int64_t src, std::int64_t dst) {
  return std::uint64_t(src) << 32 | std::uint64_t(dst);
}

template <class Work>
void for_chunks(std::size_t rows, int threads, Work work) {
  const std::function<void(std::size_t)> chunk = [&](std::size_t i) {
    for (std::size_t row = i * kChunk; row < std::min(rows, (i + 1) * kChunk); ++row) work(row);
  };
  parallel_for((rows + kChunk - 1) / kChunk, threads, chunk);
}

}  // namespace

History::History(std::size_t nodes, std::vector<double> half_lives)
    : half_lives_(std::move(half_lives)), nodes_(nodes) {}

void History::Series::append(std::int64_t when, std::span<const double> half_lives) {
  const std::size_t last = t.size();
  for (std::size_t h = 0; h < half_lives.size(); ++h) {
    const double before = last ? decayed(double(recent[(last - 1) * half_lives.size() + h]),
                                         when - t.back(), half_lives[h])
                               : 0;
    recent.push_back(float(before + 1));
  }
  t.push_back(when);
}

std::size_t History::Series::before(std::int64_t when) const {
  return std::size_t(std::lower_bound(t.begin(), t.end(), when) - t.begin());
}

template <class Kind>
Kind& History::ByPair<Kind>::operator()(std::int64_t first, std::int64_t second) {
  const std::uint64_t pair = key(first, second);
  std::uint32_t slot = index_.find(pair);
  if (slot == PairMap::kAbsent) {
    slot = std::uint32_t(series_.size());
    index_.insert(pair, slot);
    series_.emplace_back();
  }
  return series_[slot];
}

template <class Kind>
const Kind& History::ByPair<Kind>::find(std::int64_t first, std::int64_t second) const {
  static const Kind kNone{};
  const std::uint32_t slot = index_.find(key(first, second));
  return slot == PairMap::kAbsent ? kNone : series_[slot];
}

void History::append(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                     std::span<const std::int64_t> t) {
  for (std::size_t row = 0; row < t.size(); ++row) {
    all_.append(t[row], half_lives_);
    PairSeries& pair = pairs_(src[row], dst[row]);
    const std::int64_t ends[] = {src[row], dst[row]};
    for (const int role : {0, 1}) {
      RoleSeries& series = nodes_[std::size_t(ends[role])].as[role];
      const auto partner = std::uint32_t(ends[1 - role]);
      const std::size_t last = series.t.size();
      const bool met = pair.t.empty(), repeated = last && series.partner.back() == partner;
      if (last) sequels_[role](series.partner.back(), partner).append(t[row], half_lives_);
      if (!met) series.again[pair.latest[role]] = std::uint32_t(last);
      pair.latest[role] = std::uint32_t(last);
      series.append(t[row], half_lives_);
      series.partner.push_back(partner);
      series.again.push_back(kNotYet);
      series.met.push_back((last ? series.met.back() : 0) + met);
      series.repeated.push_back((last ? series.repeated.back() : 0) + repeated);
      series.run.push_back(repeated ? series.run.back() : std::uint32_t(last));
    }
    pair.append(t[row], half_lives_);
    pair.of_src.push_back(std::uint32_t(nodes_[std::size_t(src[row])].events()));
    pair.of_dst.push_back(std::uint32_t(nodes_[std::size_t(dst[row])].events()));
  }
}

// The log of the time since an event that never happened: longer than any other.
double History::unseen(std::int64_t t) const {
  return std::log1p(double(all_.t.empty() ? 0 : std::max<std::int64_t>(t - all_.t[0], 0))) + 1;
}

float* History::write_series(const Series& series, std::size_t count, std::int64_t t,
                             float* out) const {
  const std::size_t kinds = half_lives_.size();
  for (std::size_t h = 0; h < kinds; ++h)
    *out++ = count ? float(std::log1p(kRecentScale *
                                      decayed(double(series.recent[(count - 1) * kinds + h]),
                                              t - series.t[count - 1], half_lives_[h])))
                   : 0.0f;
  return out;
}

std::size_t History::write_node(std::int64_t node, std::int64_t t, float* out) const {
  std::size_t events = 0;
  for (const Series& series : nodes_[std::size_t(node)].as) {
    const std::size_t count = series.before(t);
    *out++ = float(std::log1p(double(count)));
    for (const std::size_t back : {1, 2, 5})
      *out++ = float(count >= back ? std::log1p(double(t - series.t[count - back])) : unseen(t));
    out = write_series(series, count, t, out);
    events += count;
  }
  return events;
}

void History::write_pair(std::int64_t src, std::int64_t dst, std::int64_t t, std::size_t src_events,
                         std::size_t dst_events, float* out) const {
  const PairSeries& series = pairs_.find(src, dst);
  const std::size_t count = series.before(t);
  *out++ = count ? 1.0f : 0.0f;
  *out++ = float(std::log1p(double(count)));
  *out++ = float(count ? std::log1p(double(t - series.t[count - 1])) : unseen(t));
  out = write_series(series, count, t, out);
  const auto since = [&](std::size_t events, const std::vector<std::uint32_t>& at) {
    return float(std::log1p(double(count ? events - at[count - 1] : events)));
  };
  *out++ = since(src_events, series.of_src);
  *out = since(dst_events, series.of_dst);
}

float* History::write_sequel(std::int64_t before, std::int64_t after, int role, std::int64_t t,
                             float* out) const {
  const Series& series = sequels_[role].find(before, after);
  const std::size_t count = series.before(t);
  *out++ = float(std::log1p(double(count)));
  *out++ = float(count ? std::log1p(double(t - series.t[count - 1])) : unseen(t));
  return write_series(series, count, t, out);
}

void History::write_habits(std::int64_t node, std::int64_t partner, int role, std::int64_t t,
                           float* out) const {
  const RoleSeries& series = nodes_[std::size_t(node)].as[role];
  const std::size_t count = series.before(t);
  const std::size_t met = count ? series.met[count - 1] : 0;
  *out++ = float(std::log1p(double(met)));
  for (const std::vector<std::uint32_t>* total : {&series.met, &series.repeated})
    for (const std::size_t last : {5, 20}) {
      const std::size_t among = std::min(count, last);
      const std::uint32_t earlier = count > last ? (*total)[count - 1 - last] : 0;
      *out++ = count ? float((*total)[count - 1] - earlier) / float(among) : 0.0f;
    }
  // Walking back, count an event if it is the last one with its partner.
  std::size_t place = count, since = 0;
  const std::size_t end = count - std::min(count, kLatest);
  while (place > end && series.partner[place - 1] != std::uint32_t(partner))
    since += series.again[--place] >= count;
  const bool found = place > end;
  *out++ = found ? 1.0f : 0.0f;
  *out++ = float(std::log1p(double(found ? since : met)));
  for (const std::size_t behind : {count, count ? std::size_t(series.run[count - 1]) : 0}) {
    const std::int64_t before = behind ? std::int64_t(series.partner[behind - 1]) : kNobody;
    out = write_sequel(before, partner, role, t, out);
  }
}

void History::node_rows(std::span<const std::int64_t> nodes, std::span<const std::int64_t> t,
                        int threads, std::span<float> out) const {
  for_chunks(nodes.size(), threads, [&](std::size_t row) {
    write_node(nodes[row], t[row], out.data() + row * node_columns());
  });
}

void History::link_rows(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                        std::span<const std::int64_t> t, int threads, std::span<float> out) const {
  for_chunks(src.size(), threads, [&](std::size_t row) {
    float* at = out.data() + row * link_columns();
    const std::size_t src_events = write_node(src[row], t[row], at);
    const std::size_t dst_events = write_node(dst[row], t[row], at += node_columns());
    write_pair(src[row], dst[row], t[row], src_events, dst_events, at += node_columns());
    write_pair(dst[row], src[row], t[row], dst_events, src_events, at += pair_columns());
    write_habits(src[row], dst[row], 0, t[row], at += pair_columns());
    write_habits(dst[row], src[row], 1, t[row], at += habit_columns());
    write_series(all_, all_.before(t[row]), t[row], at + habit_columns());
  });
}

}  // namespace tidegraph
