#include "recorder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "half.hpp"
#include "lane_sums.hpp"
#include "parallel.hpp"

namespace tidegraph {
namespace {

// Whether ||now - last|| > epsilon ||now||.
template <class Real>
bool moved(const Real* now, const float* last, std::size_t count, double epsilon) {
  double apart[kSums] = {}, size[kSums] = {};
  const auto add = [&](std::size_t i, std::size_t s) {
    const double value = double(now[i]), difference = value - double(last[i]);
    apart[s] += difference * difference;
    size[s] += value * value;
  };
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (std::size_t s = 0; s < kSums; ++s) add(i + s, s);
  for (; i < count; ++i) add(i, i % kSums);
  return total(apart) > epsilon * epsilon * total(size);
}

double error_scale(const ChannelSpec& spec, double tolerance, double degree) {
  return tolerance * power(degree, 1 - spec.beta) * std::abs(spec.gamma0) /
         (1 - std::abs(spec.gamma));
}

float rounded_up(double value) {
  return value == 0 ? 0 : std::nextafter(float(value), std::numeric_limits<float>::infinity());
}

}  // namespace

Recorder::Recorder(RecordLayout layout, std::size_t nodes, double epsilon)
    : layout_(layout),
      epsilon_(epsilon),
      last_(nodes * layout.values()),
      last_scales_(nodes * layout.channels),
      endpoint_(nodes) {}

void Recorder::restore(std::size_t first, std::span<const float> rows,
                       std::span<const float> scales) {
  std::copy(rows.begin(), rows.end(), last_.begin() + std::ptrdiff_t(first * layout_.values()));
  std::copy(scales.begin(), scales.end(),
            last_scales_.begin() + std::ptrdiff_t(first * layout_.channels));
}

// Finds the present rows and scales of the nodes in seen_, and whether to record them.
template <class Real>
void Recorder::look(const Propagator<Real>& propagator) {
  // Some microseconds of work, so that waking another thread pays off.
  constexpr std::size_t kChunk = 32;
  const std::size_t values = layout_.values(), channels = layout_.channels;
  now_rows_.resize(seen_.size() * values * sizeof(Real));
  degrees_.resize(seen_.size() * channels);
  now_scales_.resize(seen_.size() * channels);
  chosen_.resize(seen_.size());
  const std::span<Real> rows(reinterpret_cast<Real*>(now_rows_.data()), seen_.size() * values);
  const auto look_at = [&](std::size_t k) {
    const std::size_t node = std::size_t(seen_[k]);
    bool chosen = endpoint_[node];
    for (std::size_t c = 0; c < channels; ++c) {
      const std::size_t at = node * channels + c;
      const double scale = error_scale(propagator.settings().channels[c], propagator.tolerance(),
                                       degrees_[k * channels + c]);
      now_scales_[k * channels + c] = scale;
      chosen = chosen || scale > double(last_scales_[at]) ||
               moved(&rows[(k * channels + c) * layout_.columns], &last_[at * layout_.columns],
                     layout_.columns, epsilon_);
    }
    chosen_[k] = chosen;
  };
  const std::function<void(std::size_t)> chunk = [&](std::size_t i) {
    const std::size_t first = i * kChunk, count = std::min(kChunk, seen_.size() - first);
    const std::span<const std::int64_t> nodes(seen_.data() + first, count);
    propagator.embedding(nodes, rows.subspan(first * values, count * values));
    propagator.degree(nodes, {degrees_.data() + first * channels, count * channels});
    for (std::size_t k = first; k < first + count; ++k) look_at(k);
  };
  parallel_for((seen_.size() + kChunk - 1) / kChunk, propagator.settings().threads, chunk);
}

template <class Real>
void Recorder::append(Node node, const Real* row, const double* scale, std::int64_t time) {
  float* const last = &last_[std::size_t(node) * layout_.values()];
  for (std::size_t i = 0; i < layout_.values(); ++i)
    if (!(std::abs(row[i]) <= Real(std::numeric_limits<float>::max())))
      throw std::range_error("a value of node " + std::to_string(node) + " is " +
                             std::to_string(row[i]) + ", beyond what float32 holds");
  for (std::size_t i = 0; i < layout_.values(); ++i) last[i] = float(row[i]);
  const std::size_t at = rows_.size();
  rows_.resize(at + layout_.row_bytes());
  if (layout_.half) {
    std::uint16_t* const halves = reinterpret_cast<std::uint16_t*>(&rows_[at]);
    for (std::size_t c = 0; c < layout_.channels; ++c) {
      float* const values = last + c * layout_.columns;
      std::uint16_t* const out = halves + c * layout_.columns;
      const int exponent = peak_exponent(values, layout_.columns);
      const double unit = std::ldexp(1.0, -exponent);
      for (std::size_t i = 0; i < layout_.columns; ++i)
        out[i] = to_half(float(double(values[i]) * unit));
      decode_half(out, exponent, layout_.columns, values);
      exponents_.push_back(std::int8_t(exponent));
    }
  } else {
    std::memcpy(&rows_[at], last, layout_.row_bytes());
  }
  for (std::size_t c = 0; c < layout_.channels; ++c) {
    scales_.push_back(rounded_up(scale[c]));
    last_scales_[std::size_t(node) * layout_.channels + c] = scales_.back();
  }
  nodes_.push_back(node);
  times_.push_back(time);
}

template <class Real>
void Recorder::begin(const Propagator<Real>& propagator, std::size_t first, std::size_t last,
                     std::int64_t time) {
  seen_.resize(last - first);
  std::iota(seen_.begin(), seen_.end(), std::int64_t(first));
  look(propagator);
  const Real* const rows = reinterpret_cast<const Real*>(now_rows_.data());
  for (std::size_t k = 0; k < seen_.size(); ++k)
    append(Node(seen_[k]), rows + k * layout_.values(), &now_scales_[k * layout_.channels], time);
}

template <class Real>
std::size_t Recorder::run(Propagator<Real>& propagator, const Rows& rows,
                          std::span<const std::int64_t> offsets,
                          std::span<const std::int64_t> times, std::size_t limit,
                          Rejection& rejection) {
  const auto after = [&](std::size_t s) {
    if (all_) {
      seen_.resize(propagator.nodes());
      std::iota(seen_.begin(), seen_.end(), std::int64_t(0));
      all_ = false;
    } else {
      seen_.assign(propagator.touched().begin(), propagator.touched().end());
    }
    const auto mark = [&](std::uint8_t value) {
      for (std::size_t row = std::size_t(offsets[s]); row < std::size_t(offsets[s + 1]); ++row)
        endpoint_[std::size_t(rows.src[row])] = endpoint_[std::size_t(rows.dst[row])] = value;
    };
    mark(1);
    look(propagator);
    mark(0);
    const Real* const now = reinterpret_cast<const Real*>(now_rows_.data());
    for (std::size_t k = 0; k < seen_.size(); ++k)
      if (chosen_[k])
        append(Node(seen_[k]), now + k * layout_.values(), &now_scales_[k * layout_.channels],
               times[s]);
    return waiting() < limit;
  };
  std::vector<std::int64_t> counts(times.size());
  const std::size_t done = propagator.apply_steps(rows, offsets, counts, rejection, after);
  for (std::size_t s = 0; s < done; ++s) touched_ += std::size_t(counts[s]);
  return done;
}

SealedRecords Recorder::seal() {
  SealedRecords sealed;
  std::vector<std::size_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return nodes_[a] < nodes_[b]; });
  const std::size_t channels = layout_.channels, bytes = layout_.row_bytes();
  sealed.times.resize(order.size());
  sealed.rows.resize(rows_.size());
  sealed.exponents.resize(exponents_.size());
  sealed.scales.resize(scales_.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::size_t from = order[k];
    if (k == 0 || nodes_[from] != nodes_[order[k - 1]]) {
      sealed.nodes.push_back(nodes_[from]);
      sealed.offsets.push_back(std::int64_t(k));
    }
    sealed.times[k] = times_[from];
    std::memcpy(&sealed.rows[k * bytes], &rows_[from * bytes], bytes);
    if (layout_.half)
      std::copy_n(&exponents_[from * channels], channels, &sealed.exponents[k * channels]);
    std::copy_n(&scales_[from * channels], channels, &sealed.scales[k * channels]);
  }
  sealed.offsets.push_back(std::int64_t(order.size()));
  nodes_.clear();
  times_.clear();
  rows_.clear();
  exponents_.clear();
  scales_.clear();
  return sealed;
}

#define TIDEGRAPH_RECORD(Real)                                                                     \
  template void Recorder::begin(const Propagator<Real>&, std::size_t, std::size_t, std::int64_t);  \
  template std::size_t Recorder::run(Propagator<Real>&, const Rows&,                               \
                                     std::span<const std::int64_t>, std::span<const std::int64_t>, \
                                     std::size_t, Rejection&);
TIDEGRAPH_RECORD(float)
TIDEGRAPH_RECORD(double)

}  // namespace tidegraph
