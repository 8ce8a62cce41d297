#include <unordered_map>
#include <vector>

#include "check.hpp"
#include "pairmap.hpp"
#include "support.hpp"

using support::Random;
using support::repeats;
using tidegraph::PairMap;

TEST(a_pair_map_agrees_with_a_map) {
  for (std::size_t style = 0; style < 3; ++style) {
    PairMap pairs;
    std::unordered_map<std::uint64_t, std::uint32_t> model;
    std::vector<std::uint64_t> keys;  // of the model, in any order
    Random random(style);
    std::size_t wrong = 0;
    CHECK_EQUAL(pairs.find(0), PairMap::kAbsent);
    for (std::size_t i = 0; i < repeats(1'000'000, 200'000); ++i) {
      const bool growing = i / 100'000 % 2 == 0;
      const std::uint64_t a = random.below(2000), b = random.below(300);
      // Dense pairs, pairs alike in their low halves, anything.
      const std::uint64_t key = style == 0   ? a << 32 | b
                                : style == 1 ? (a * 300 + b) << 32 | 7
                                             : random.next() / 2;
      const auto found = model.find(key);
      wrong += pairs.find(key) != (found == model.end() ? PairMap::kAbsent : found->second);
      if (found == model.end() && random.chance(growing ? 0.9 : 0.2)) {
        pairs.insert(key, std::uint32_t(i));
        model[key] = std::uint32_t(i);
        keys.push_back(key);
      }
      if (!keys.empty() && random.chance(growing ? 0.2 : 0.9)) {
        std::uint64_t& chosen = keys[random.below(keys.size())];
        wrong += pairs.find(chosen) != model.at(chosen);
        pairs.erase(chosen);
        wrong += pairs.find(chosen) != PairMap::kAbsent;
        model.erase(chosen);
        chosen = keys.back();
        keys.pop_back();
      }
      wrong += pairs.size() != model.size();
    }
    for (const auto& [key, value] : model) wrong += pairs.find(key) != value;
    CHECK_EQUAL(wrong, 0);
  }
}

TEST(a_pair_map_that_has_grown_takes_no_more_memory) {
  PairMap pairs;
  for (std::uint64_t key = 0; key < 1000; ++key) pairs.insert(key << 32, 1);
  const std::size_t bytes = pairs.bytes();
  for (std::uint64_t key = 0; key < 100'000; ++key) {
    pairs.erase(key << 32);
    pairs.insert((key + 1000) << 32, 1);
  }
  CHECK_EQUAL(pairs.bytes(), bytes);
  CHECK_EQUAL(pairs.size(), 1000);
}
