#include "sketch.hpp"

namespace tidegraph {
namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

// The finaliser of splitmix64.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Adds the four 16-bit parts in pairs: two sums of 32 bits each.
std::uint64_t paired(std::uint64_t h) {
  constexpr std::uint64_t kEven = 0x0000ffff0000ffff;
  return (h & kEven) + (h >> 16 & kEven);
}

std::uint64_t node_key(std::uint64_t seed, std::uint64_t node) {
  return mix(mix(seed + kStep) ^ (node + kStep));
}

template <Distribution kDistribution>
double draw(std::uint64_t node_key, std::uint64_t column) {
  const std::uint64_t first = mix(node_key ^ (column + kStep));
  if constexpr (kDistribution == Distribution::sign) return first >> 63 ? 1.0 : -1.0;
  if constexpr (kDistribution == Distribution::uniform) return double(first >> 11) * 0x1p-53;
  // The sum of twelve uniform 16-bit numbers has variance 65536^2 - 1 and is close to normal.
  const std::uint64_t second = mix(first + kStep), third = mix(second + kStep);
  const std::uint64_t pairs = paired(first) + paired(second) + paired(third);
  const double sum = double(std::int64_t((pairs & 0xffffffff) + (pairs >> 32)));
  return (sum - 6.0 * 65535.0) / 65535.999992370605;  // sqrt(65536^2 - 1)
}

// Calls use(draw) with the draw of a distribution, which is thus chosen once and not per number.
template <class Use>
void with_draw(Distribution distribution, Use use) {
  switch (distribution) {
    case Distribution::gaussian:
      return use(draw<Distribution::gaussian>);
    case Distribution::uniform:
      return use(draw<Distribution::uniform>);
    case Distribution::sign:
      return use(draw<Distribution::sign>);
  }
}

}  // namespace

double sketch(std::uint64_t seed, std::uint64_t node, std::uint64_t column,
              Distribution distribution) {
  double value = 0;
  with_draw(distribution, [&](auto draw) { value = draw(node_key(seed, node), column); });
  return value;
}

template <class Real>
void sketch_row(std::uint64_t seed, std::uint64_t node, std::uint64_t first,
                Distribution distribution, std::span<const double> units, Real* out) {
  const std::uint64_t key = node_key(seed, node);
  with_draw(distribution, [&](auto draw) {
    for (std::size_t i = 0; i < units.size(); ++i) out[i] = Real(draw(key, first + i) / units[i]);
  });
}

template void sketch_row<float>(std::uint64_t, std::uint64_t, std::uint64_t, Distribution,
                                std::span<const double>, float*);
template void sketch_row<double>(std::uint64_t, std::uint64_t, std::uint64_t, Distribution,
                                 std::span<const double>, double*);

}  // namespace tidegraph
