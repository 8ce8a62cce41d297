#include "trajectories.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "half.hpp"
#include "lane_sums.hpp"
#include "parallel.hpp"

namespace tidegraph {
namespace {

float l2(const float* a, const float* b, std::size_t count) {
  double sums[kSums] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const double difference = double(a[i]) - double(b[i]);
    sums[i % kSums] += difference * difference;
  }
  return float(std::sqrt(total(sums)));
}

// One minus the cosine of the angle. Rows of zeros are equal, and orthogonal to all others.
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

}  // namespace

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

// Returns the row where it is stored, or decoded into the buffer.
const float* Trajectories::decoded(const Place& place, float* buffer) const {
  if (!layout_.half)
    return reinterpret_cast<const float*>(place.segment->rows.data() +
                                          place.index * layout_.row_bytes());
  decode(place, buffer);
  return buffer;
}

// Calls visit(query, places, count) with the latest records strictly before t, the newest first, up
// to `latest` of them. Queries read memory at random, so a batch of them goes through each stage
// together and their cache misses overlap.
template <class Visit>
void Trajectories::gather(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
                          std::size_t latest, bool rows, int threads, Visit visit) const {
  constexpr std::size_t kBatch = 32, kBatchesPerItem = 16, kLine = 64;
  constexpr std::size_t kNear = kLine / sizeof(std::int64_t);
  constexpr std::size_t kFetched = 1 << 17;  // bytes: more would evict the first before use
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
    // Binary searches in step, until what is left of each is within a cache line or two.
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
        if (count == 0) {  // records of older segments precede those found
          const auto all = segments_[s].times.begin();
          until = std::size_t(
              std::lower_bound(all + std::ptrdiff_t(from), all + std::ptrdiff_t(until), t) - all);
        }
        while (until > from && count < latest) to[count++] = {&segments_[s], --until};
      }
      while (last > first[i] && count < latest) to[count++] = {&base, --last};
      if (count == 0) to[count++] = {&base, first[i]};  // the first record, whatever its time
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
