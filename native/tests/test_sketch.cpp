#include <cmath>
#include <vector>

#include "check.hpp"
#include "sketch.hpp"
#include "support.hpp"

using tidegraph::Distribution;
using tidegraph::sketch;

namespace {

// splitmix64 as published: the state advances by the golden ratio and is then mixed.
std::uint64_t splitmix64(std::uint64_t state) {
  std::uint64_t z = state + 0x9e3779b97f4a7c15ull;
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9ull;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// splitmix64 adds its constant before it mixes; a key is xored in between.
std::uint64_t keyed(std::uint64_t hash, std::uint64_t key) {
  const std::uint64_t golden = 0x9e3779b97f4a7c15ull;
  return splitmix64((hash ^ (key + golden)) - golden);
}

double expected(std::uint64_t seed, std::uint64_t node, std::uint64_t column,
                Distribution distribution) {
  const std::uint64_t hash = keyed(keyed(splitmix64(seed), node), column);
  if (distribution == Distribution::sign) return hash < (1ull << 63) ? -1 : 1;
  if (distribution == Distribution::uniform) return double(hash / 2048) / 0x1p53;
  double sum = 0;
  std::uint64_t word = hash;
  for (int draw = 0; draw < 3; ++draw, word = splitmix64(word))
    for (std::uint64_t rest = word, piece = 0; piece < 4; ++piece, rest /= 65536)
      sum += double(rest % 65536);
  return (sum - 12 * 65535.0 / 2) / std::sqrt(65536.0 * 65536.0 - 1);
}

struct Moments {
  double mean = 0, square = 0, fourth = 0,
         lag = 0;  // lag: mean product of neighbouring values, centred
};
Moments moments(const std::vector<double>& values, double centre) {
  Moments sums;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i] - centre;
    sums.mean += value / double(values.size());
    sums.square += value * value / double(values.size());
    sums.fourth += value * value * value * value / double(values.size());
    if (i) sums.lag += value * (values[i - 1] - centre) / double(values.size());
  }
  return sums;
}

// Values along nodes, along columns and along seeds.
std::vector<double> sample(int axis, Distribution distribution) {
  std::vector<double> values(support::repeats(1'000'000, 100'000));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = sketch(axis == 2 ? i : 7, axis == 0 ? i : 3, axis == 1 ? i : 5, distribution);
  return values;
}

}  // namespace

TEST(a_sketch_is_the_published_hash_of_seed_node_and_column) {
  support::Random random(1);
  int wrong = 0;
  const std::uint64_t corners[] = {0, 1, 2, 0xffffffffull, 1ull << 63, ~0ull};
  for (const Distribution distribution :
       {Distribution::gaussian, Distribution::uniform, Distribution::sign}) {
    for (const std::uint64_t seed : corners)
      for (const std::uint64_t node : corners)
        for (const std::uint64_t column : corners)
          wrong += sketch(seed, node, column, distribution) !=
                   expected(seed, node, column, distribution);
    for (int i = 0; i < 100'000; ++i) {
      const std::uint64_t seed = random.next(), node = random.next(), column = random.below(1000);
      wrong +=
          sketch(seed, node, column, distribution) != expected(seed, node, column, distribution);
    }
  }
  CHECK_EQUAL(wrong, 0);
}

// Each mean is within six standard deviations of that of the distribution.
TEST(sketches_have_the_moments_of_their_distribution_along_every_axis) {
  for (int axis = 0; axis < 3; ++axis) {
    {
      const std::vector<double> values = sample(axis, Distribution::gaussian);
      const Moments m = moments(values, 0);
      const double tolerance = 6 / std::sqrt(double(values.size()));
      CHECK_AT_MOST(std::abs(m.mean), tolerance);
      CHECK_AT_MOST(std::abs(m.square - 1), tolerance * std::sqrt(2.0));
      CHECK_AT_MOST(std::abs(m.fourth - 2.9),
                    tolerance * std::sqrt(96.0));  // of twelve uniforms, not of a normal
      CHECK_AT_MOST(std::abs(m.lag), tolerance);
    }
    {
      const std::vector<double> values = sample(axis, Distribution::uniform);
      const Moments m = moments(values, 0.5);
      const double tolerance = 6 / std::sqrt(double(values.size()));
      CHECK_AT_MOST(std::abs(m.mean), tolerance * std::sqrt(1 / 12.0));
      CHECK_AT_MOST(std::abs(m.square - 1 / 12.0), tolerance * std::sqrt(1 / 180.0));
      CHECK_AT_MOST(std::abs(m.lag), tolerance / 12);
      int outside = 0;
      for (const double value : values) outside += value < 0 || value >= 1;
      CHECK_EQUAL(outside, 0);
    }
    {
      const std::vector<double> values = sample(axis, Distribution::sign);
      const Moments m = moments(values, 0);
      const double tolerance = 6 / std::sqrt(double(values.size()));
      CHECK_AT_MOST(std::abs(m.mean), tolerance);
      CHECK_AT_MOST(std::abs(m.lag), tolerance);
      CHECK_AT_MOST(std::abs(m.square - 1), 1e-9);
    }
  }
}
