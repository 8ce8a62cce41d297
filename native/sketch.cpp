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

std::uint64_t pieces(std::uint64_t h) {
  return (h & 0xffff) + (h >> 16 & 0xffff) + (h >> 32 & 0xffff) + (h >> 48);
}

}  // namespace

double sketch(std::uint64_t seed, std::uint64_t node, std::uint64_t column,
              Distribution distribution) {
  const std::uint64_t first = mix(mix(mix(seed + kStep) ^ (node + kStep)) ^ (column + kStep));
  switch (distribution) {
    case Distribution::sign:
      return first >> 63 ? 1.0 : -1.0;
    case Distribution::uniform:
      return double(first >> 11) * 0x1p-53;
    case Distribution::gaussian:
      break;
  }
  // A sum of twelve uniform numbers of 16 bits has variance 65536^2 - 1 and is close to normal.
  const std::uint64_t second = mix(first + kStep), third = mix(second + kStep);
  const double sum = double(pieces(first) + pieces(second) + pieces(third));
  return (sum - 6.0 * 65535.0) / 65535.999992370605;  // sqrt(65536^2 - 1)
}

}  // namespace tidegraph
