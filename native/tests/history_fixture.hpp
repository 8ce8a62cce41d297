// Random streams of events, and histories of them that own their tables.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <history.hpp>  // with <>, since there is another one next to this file
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support.hpp"

namespace history_fixture {

using support::Random;
using tidegraph::History;
using tidegraph::HistoryTables;

inline constexpr std::int64_t kFar = (std::int64_t(1) << 62) - 1;

struct Stream {
  std::vector<std::int64_t> src, dst, t;
  std::size_t nodes;
};

// Few nodes, so that pairs repeat; ties, self-loops, long runs with one partner, and gaps.
inline Stream random_stream(Random& random, std::size_t events, std::size_t nodes) {
  Stream stream;
  stream.nodes = nodes;
  std::int64_t now = random.chance(0.2) ? -kFar : -50;
  const double repeat = random.uniform();
  for (std::size_t i = 0; i < events; ++i) {
    const bool again = i && random.chance(repeat);
    stream.src.push_back(again ? stream.src.back() : std::int64_t(random.below(nodes)));
    stream.dst.push_back(again && random.chance(0.8) ? stream.dst.back()
                                                     : std::int64_t(random.below(nodes)));
    if (random.chance(0.6)) now += std::int64_t(random.below(20));
    stream.t.push_back(now);
  }
  if (events && random.chance(0.2)) stream.t.back() = kFar;
  return stream;
}

using Files = std::map<std::string, std::vector<std::uint64_t>>;  // words, so that all is aligned

// A history that owns its tables.
struct Kept {
  Files files;
  std::map<std::string, std::size_t> bytes;
  std::unique_ptr<History> history;

  Kept(std::size_t nodes, const std::vector<double>& half_lives)
      : history(std::make_unique<History>(nodes, half_lives)) {}

  // Stands on the tables of all events, and of more.
  void merge(const Stream& more, const std::vector<double>& half_lives) {
    Files merged;
    std::map<std::string, std::size_t> sizes;
    history->merge(more.src, more.dst, more.t, more.nodes, 2,
                   [&](const std::string& name, std::span<const std::uint8_t> array) {
                     auto& file = merged[name];
                     file.resize(array.size() / 8 + 1);
                     std::copy(array.begin(), array.end(),
                               reinterpret_cast<std::uint8_t*>(file.data()));
                     sizes[name] = array.size();
                   });
    const std::size_t nodes = std::max(history->nodes(), more.nodes);
    files = std::move(merged);
    bytes = std::move(sizes);
    history = std::make_unique<History>(nodes, half_lives, tables());
  }
  HistoryTables tables() {
    HistoryTables tables;
    tables.each([&]<class T>(const std::string& name, std::span<const T>& column) {
      column = {reinterpret_cast<const T*>(files.at(name).data()), bytes.at(name) / sizeof(T)};
    });
    return tables;
  }
};

inline Stream part(const Stream& stream, std::size_t first, std::size_t last) {
  const auto cut = [&](const std::vector<std::int64_t>& column) {
    return std::vector(column.begin() + std::ptrdiff_t(first),
                       column.begin() + std::ptrdiff_t(last));
  };
  return {cut(stream.src), cut(stream.dst), cut(stream.t), stream.nodes};
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

inline std::int64_t some_time(Random& random, const Stream& stream) {
  const double kind = random.uniform();
  if (stream.t.empty() || kind < 0.1) return random.chance(0.5) ? kFar : -kFar;
  return stream.t[random.below(stream.t.size())] + std::int64_t(kind < 0.5);
}

}  // namespace history_fixture
