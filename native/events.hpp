// Rows of events, and the errors that reject them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace tidegraph {

// A row that cannot be applied. Thrown before anything has changed.
struct EventError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A row that fits the graph, but after which the precision could not keep the promise. Thrown
// before anything has changed.
struct PrecisionError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

enum class Op : std::uint8_t { add = 0, remove = 1, set = 2 };

struct Rows {
  std::span<const std::int64_t> src, dst;
  std::span<const double> weight;    // empty: 1 to add and set, the whole edge to remove
  std::span<const std::uint8_t> op;  // empty: add
  std::span<const std::int64_t> t;   // empty: untimed
  std::size_t size() const { return src.size(); }
  Rows slice(std::size_t first, std::size_t last) const;
};

// How errors show a number, and a row with its nodes.
std::string number(double value);
std::string describe(std::size_t row, std::int64_t src, std::int64_t dst);

}  // namespace tidegraph
