// Records of the states of nodes over time, as they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tidegraph {

// The time of records made before any event.
inline constexpr std::int64_t kBeginning = std::numeric_limits<std::int64_t>::min();

struct RecordLayout {
  std::size_t channels = 1, columns = 1;
  // Whether rows are IEEE half precision, where each channel of a record has its own power of two,
  // so that the size of the values does not matter; otherwise they are float.
  bool half = false;
  std::size_t values() const { return channels * columns; }
  std::size_t row_bytes() const { return values() * (half ? 2 : 4); }
};

// Records grouped by node and, within a node, in the order in which they were made.
struct Segment {
  std::span<const std::int64_t> nodes;     // ascending, each once
  std::span<const std::int64_t> offsets;   // [nodes + 1]: where the records of a node begin
  std::span<const std::int64_t> times;     // [records], not decreasing within a node
  std::span<const std::uint8_t> rows;      // [records, channels, columns], see RecordLayout
  std::span<const std::int8_t> exponents;  // [records, channels] if rows are half, else empty
  std::span<const float> scales;           // [records, channels], see Recorder
};

// The memory of a segment.
struct SealedRecords {
  std::vector<std::int64_t> nodes, offsets, times;
  std::vector<std::uint8_t> rows;
  std::vector<std::int8_t> exponents;
  std::vector<float> scales;
  Segment view() const { return {nodes, offsets, times, rows, exponents, scales}; }
};

}  // namespace tidegraph
