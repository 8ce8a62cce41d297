#include "trajectories.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "parallel.hpp"

namespace tidegraph {
namespace {

// ---- half precision

// The exponents that records carry: the largest value of a channel becomes 2^14 to 2^15, and what
// is decoded is a multiple of float's smallest number.
constexpr int kPeakExponent = 14, kLeastExponent = -120;

// To the nearest, ties to even; |value| is at most 2^15.
std::uint16_t to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size >= 0x38800000)  // at least 2^-14, a normal number: drop 13 bits, shift the exponent
    return std::uint16_t(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
  // Numbers next to 1/2 are 2^-24 apart, as the subnormal ones are: the addition rounds.
  const float shifted = std::bit_cast<float>(size) + 0.5f;
  return std::uint16_t(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
}

// Bits put where float has them, and the exponent mended by a multiplication: exact, subnormal
// numbers included, and without branches.
inline float from_half(std::uint16_t half) {
  const float size = std::bit_cast<float>(std::uint32_t(half & 0x7fff) << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) | std::uint32_t(half & 0x8000)
                                                                       << 16);
}

void decode_half(const std::uint16_t* halves, int exponent, std::size_t count, float* out) {
  const float unit = std::ldexp(1.0f, exponent);
  for (std::size_t i = 0; i < count; ++i) out[i] = from_half(halves[i]) * unit;
}

int peak_exponent(const float* values, std::size_t count) {
  float peak = 0;
  for (std::size_t i = 0; i < count; ++i) peak = std::max(peak, std::abs(values[i]));
  return peak == 0 ? 0 : std::max(std::ilogb(peak) - kPeakExponent, kLeastExponent);
}

// ---- sums

// Several sums side by side, which a compiler can keep in vectors, in an order that is always the
// same. In double: the square of a small float would vanish.
constexpr std::size_t kSums = 8;

double total(const double (&sums)[kSums]) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

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

float l2(const float* a, const float* b, std::size_t count) {
  double sums[kSums] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const double difference = double(a[i]) - double(b[i]);
    sums[i % kSums] += difference * difference;
  }
  return float(std::sqrt(total(sums)));
}

// One less the cosine of the angle; rows of zeros are alike, and at a right angle to all others.
float cosine(const float* a, const float* b, std::size_t count) {
  double product[kSums] = {}, left[kSums] = {}, right[kSums] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const double x = double(a[i]), y = double(b[i]);
    product[i % kSums] += x * y;
    left[i % kSums] += x * x;
    right[i % kSums] += y * y;
  }
  const double x = total(left), y = total(right);
  if (x == 0 || y == 0) return x == y ? 0 : 1;
  return float(1 - total(product) / (std::sqrt(x) * std::sqrt(y)));
}

double error_scale(const ChannelSpec& spec, double tolerance, double degree) {
  const double exponent = 1 - spec.beta;
  const double power = degree <= 0       ? 0
                       : exponent == 0.5 ? std::sqrt(degree)
                                         : std::pow(degree, exponent);
  return tolerance * power * std::abs(spec.gamma0) / (1 - std::abs(spec.gamma));
}

float rounded_up(double value) {
  return value == 0 ? 0 : std::nextafter(float(value), std::numeric_limits<float>::infinity());
}

}  // namespace

// ---- recording

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

// Of the nodes in seen_: their rows and scales now, and whether they are to be recorded.
template <class Real>
void Recorder::look(const Propagator<Real>& propagator) {
  // Some microseconds of work, so that waking another thread pays.
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
                          Refusal& refusal) {
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
  return propagator.apply_steps(rows, offsets, counts, refusal, after);
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
                                     std::size_t, Refusal&);
TIDEGRAPH_RECORD(float)
TIDEGRAPH_RECORD(double)

// ---- reading

Trajectories::Trajectories(RecordLayout layout, std::vector<Segment> segments)
    : layout_(layout), segments_(std::move(segments)) {}

// The records of a node, [first, last).
std::pair<std::size_t, std::size_t> Trajectories::range(const Segment& segment,
                                                        std::int64_t node) const {
  std::size_t slot = std::size_t(node);
  if (&segment != segments_.data()) {
    const auto found = std::lower_bound(segment.nodes.begin(), segment.nodes.end(), node);
    if (found == segment.nodes.end() || *found != node) return {0, 0};
    slot = std::size_t(found - segment.nodes.begin());
  }
  return {std::size_t(segment.offsets[slot]), std::size_t(segment.offsets[slot + 1])};
}

void Trajectories::decode(const Place& place, float* out) const {
  const std::uint8_t* const row = place.segment->rows.data() + place.index * layout_.row_bytes();
  if (!layout_.half) {
    std::memcpy(out, row, layout_.row_bytes());
    return;
  }
  const std::uint16_t* const halves = reinterpret_cast<const std::uint16_t*>(row);
  for (std::size_t c = 0; c < layout_.channels; ++c)
    decode_half(halves + c * layout_.columns,
                place.segment->exponents[place.index * layout_.channels + c], layout_.columns,
                out + c * layout_.columns);
}

// The row where it lies, or decoded into the buffer.
const float* Trajectories::decoded(const Place& place, float* buffer) const {
  if (!layout_.half)
    return reinterpret_cast<const float*>(place.segment->rows.data() +
                                          place.index * layout_.row_bytes());
  decode(place, buffer);
  return buffer;
}

// visit(question, places, count): the latest records strictly before t, the newest first, up to
// `latest` of them. Questions hit memory at random, so a batch of them goes through each stage
// together: while one waits for its cache line, the others' are on their way.
template <class Visit>
void Trajectories::gather(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
                          std::size_t latest, bool rows, int threads, Visit visit) const {
  constexpr std::size_t kBatch = 32, kBatchesPerItem = 16, kLine = 64;
  constexpr std::size_t kNear = kLine / sizeof(std::int64_t);
  constexpr std::size_t kFetched = 1 << 17;  // bytes: of more the first would be gone before use
  const Segment& base = segments_.front();
  const std::size_t row_bytes = layout_.row_bytes();
  const auto batch = [&](std::size_t begin, std::size_t end, std::vector<Place>& places) {
    std::size_t first[kBatch], low[kBatch], size[kBatch], found[kBatch];
    for (std::size_t q = begin; q < end; ++q)
      __builtin_prefetch(&base.offsets[std::size_t(nodes[q])]);
    for (std::size_t q = begin; q < end; ++q) {
      const auto [from, to] = range(base, nodes[q]);
      first[q - begin] = low[q - begin] = from;
      size[q - begin] = to - from;
      __builtin_prefetch(&base.times[from + (to - from) / 2]);
    }
    // Binary searches in step, until what is left of each lies within a line or two.
    for (bool searching = true; searching;) {
      searching = false;
      for (std::size_t i = 0; i < end - begin; ++i) {
        if (size[i] <= kNear) continue;
        const std::size_t half = size[i] / 2;
        const bool before = base.times[low[i] + half] < times[begin + i];
        low[i] += before ? half + 1 : 0;
        size[i] = before ? size[i] - half - 1 : half;
        if (size[i]) __builtin_prefetch(&base.times[low[i] + size[i] / 2]);
        searching |= size[i] > kNear;
      }
    }
    for (std::size_t i = 0; i < end - begin; ++i) {
      const std::int64_t node = nodes[begin + i], t = times[begin + i];
      std::size_t last = low[i];
      while (last < low[i] + size[i] && base.times[last] < t) ++last;
      Place* const to = &places[i * latest];
      std::size_t count = 0;
      for (std::size_t s = segments_.size(); s-- > 1 && count < latest;) {
        auto [from, until] = range(segments_[s], node);
        if (count == 0) {  // all records of older segments are before those found
          const auto all = segments_[s].times.begin();
          until = std::size_t(
              std::lower_bound(all + std::ptrdiff_t(from), all + std::ptrdiff_t(until), t) - all);
        }
        while (until > from && count < latest) to[count++] = {&segments_[s], --until};
      }
      while (last > first[i] && count < latest) to[count++] = {&base, --last};
      if (count == 0) to[count++] = {&base, first[i]};  // the beginning, whatever its time says
      found[i] = count;
      if (rows && (end - begin) * latest * row_bytes <= kFetched)
        for (std::size_t p = 0; p < count; ++p)
          for (std::size_t byte = 0; byte < row_bytes; byte += kLine)
            __builtin_prefetch(to[p].segment->rows.data() + to[p].index * row_bytes + byte);
    }
    for (std::size_t i = 0; i < end - begin; ++i) visit(begin + i, &places[i * latest], found[i]);
  };
  const std::size_t per_item = kBatch * kBatchesPerItem;
  const std::function<void(std::size_t)> item = [&](std::size_t number) {
    std::vector<Place> places(kBatch * latest);
    const std::size_t last = std::min(nodes.size(), (number + 1) * per_item);
    for (std::size_t q = number * per_item; q < last; q += kBatch)
      batch(q, std::min(last, q + kBatch), places);
  };
  parallel_for((nodes.size() + per_item - 1) / per_item, threads, item);
}

void Trajectories::state(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
                         std::span<float> out, int threads) const {
  gather(nodes, times, 1, true, threads, [&](std::size_t q, const Place* places, std::size_t) {
    decode(*places, &out[q * layout_.values()]);
  });
}

void Trajectories::scales(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
                          std::span<float> out, int threads) const {
  const std::size_t channels = layout_.channels;
  gather(nodes, times, 1, false, threads, [&](std::size_t q, const Place* places, std::size_t) {
    std::copy_n(&places->segment->scales[places->index * channels], channels, &out[q * channels]);
  });
}

void Trajectories::window(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
                          std::size_t k, Change change, std::span<float> changes,
                          std::span<std::int64_t> since, std::span<bool> mask, int threads) const {
  const std::size_t values = layout_.values(), columns = layout_.columns;
  const std::size_t width = change == Change::difference ? values : layout_.channels;
  gather(nodes, times, k + 1, true, threads,
         [&](std::size_t q, const Place* places, std::size_t count) {
           thread_local std::vector<float> buffers;
           buffers.resize(2 * values);
           const std::size_t missing = k - (count - 1);
           float* out = &changes[q * k * width];
           std::fill_n(out, missing * width, 0.0f);
           std::fill_n(&since[q * k], missing, std::int64_t(0));
           std::fill_n(&mask[q * k], missing, false);
           out += missing * width;
           const float* before = decoded(places[count - 1], buffers.data());
           for (std::size_t j = missing; j < k; ++j, out += width) {
             const Place& place = places[k - 1 - j];
             const float* const now = decoded(place, &buffers[(j - missing + 1) % 2 * values]);
             if (change == Change::difference)
               for (std::size_t i = 0; i < values; ++i) out[i] = now[i] - before[i];
             else
               for (std::size_t c = 0; c < layout_.channels; ++c)
                 out[c] = (change == Change::l2 ? l2 : cosine)(now + c * columns,
                                                               before + c * columns, columns);
             before = now;
             const std::int64_t t = place.segment->times[place.index];
             if (__builtin_sub_overflow(times[q], t, &since[q * k + j]))
               since[q * k + j] = std::numeric_limits<std::int64_t>::max();
             mask[q * k + j] = true;
           }
         });
}

std::size_t Trajectories::count(std::int64_t node) const {
  std::size_t count = 0;
  for (const Segment& segment : segments_) {
    const auto [first, last] = range(segment, node);
    count += last - first;
  }
  return count;
}

void Trajectories::records(std::int64_t node, std::span<std::int64_t> times,
                           std::span<float> rows) const {
  std::size_t to = 0;
  for (const Segment& segment : segments_) {
    const auto [first, last] = range(segment, node);
    for (std::size_t index = first; index < last; ++index, ++to) {
      times[to] = segment.times[index];
      decode({&segment, index}, &rows[to * layout_.values()]);
    }
  }
}

}  // namespace tidegraph
