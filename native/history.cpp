#include "history.hpp"

#include <algorithm>
#include <cmath>

#include "parallel.hpp"

namespace tidegraph {
namespace {

constexpr std::size_t kChunk = 1024;
constexpr double kLately = 10;  // puts a single event a few half-lives old within the log's reach

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
    const double before = last ? decayed(double(lately[(last - 1) * half_lives.size() + h]),
                                         when - t.back(), half_lives[h])
                               : 0;
    lately.push_back(float(before + 1));
  }
  t.push_back(when);
}

std::size_t History::Series::before(std::int64_t when) const {
  return std::size_t(std::lower_bound(t.begin(), t.end(), when) - t.begin());
}

void History::append(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                     std::span<const std::int64_t> t) {
  for (std::size_t row = 0; row < t.size(); ++row) {
    if (events_++ == 0) start_ = t[row];
    NodeSeries& source = nodes_[std::size_t(src[row])];
    NodeSeries& target = nodes_[std::size_t(dst[row])];
    source.as[0].append(t[row], half_lives_);
    target.as[1].append(t[row], half_lives_);
    const std::uint64_t pair = key(src[row], dst[row]);
    std::uint32_t slot = index_.find(pair);
    if (slot == PairMap::kAbsent) {
      slot = std::uint32_t(pairs_.size());
      index_.insert(pair, slot);
      pairs_.emplace_back();
    }
    PairSeries& series = pairs_[slot];
    series.append(t[row], half_lives_);
    series.of_src.push_back(std::uint32_t(source.events()));
    series.of_dst.push_back(std::uint32_t(target.events()));
  }
}

// The logarithm told of what never happened: longer ago than anything could be.
double History::unseen(std::int64_t t) const {
  return std::log1p(double(std::max<std::int64_t>(t - start_, 0))) + 1;
}

float* History::write_series(const Series& series, std::size_t count, std::int64_t t,
                             float* out) const {
  const std::size_t kinds = half_lives_.size();
  for (std::size_t h = 0; h < kinds; ++h)
    *out++ =
        count ? float(std::log1p(kLately * decayed(double(series.lately[(count - 1) * kinds + h]),
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
  static const PairSeries kNever;
  const std::uint32_t slot = index_.find(key(src, dst));
  const PairSeries& series = slot == PairMap::kAbsent ? kNever : pairs_[slot];
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

void History::node_rows(std::span<const std::int64_t> nodes, std::span<const std::int64_t> t,
                        int threads, std::span<float> out) const {
  for_chunks(nodes.size(), threads, [&](std::size_t row) {
    write_node(nodes[row], t[row], out.data() + row * node_columns());
  });
}

void History::link_rows(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                        std::span<const std::int64_t> t, int threads, std::span<float> out) const {
  const std::size_t columns = 2 * node_columns() + 2 * pair_columns();
  for_chunks(src.size(), threads, [&](std::size_t row) {
    float* at = out.data() + row * columns;
    const std::size_t src_events = write_node(src[row], t[row], at);
    const std::size_t dst_events = write_node(dst[row], t[row], at += node_columns());
    write_pair(src[row], dst[row], t[row], src_events, dst_events, at += node_columns());
    write_pair(dst[row], src[row], t[row], dst_events, src_events, at += pair_columns());
  });
}

}  // namespace tidegraph
