// Answers queries about the states of nodes over time from records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "records.hpp"

namespace tidegraph {

// How to compare two consecutive records.
enum class Change : std::uint8_t { difference = 0, l2 = 1, cosine = 2 };

// Answers queries about (node, t) from segments in time order, the first of which holds every node.
// Never sees a record at or after t. The caller checks nodes and times; `out` has one row per
// query.
class Trajectories {
 public:
  Trajectories(RecordLayout layout, std::vector<Segment> segments);

  // The latest record: [count, channels, columns].
  void state(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
             std::span<float> out, int threads) const;
  // Its scales: [count, channels].
  void scales(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
              std::span<float> out, int threads) const;
  // The k latest changes, the newest last, with zeros at the front if there are fewer:
  // changes [count, k, channels, columns], or [count, k, channels] for l2 and cosine, the time
  // since each, [count, k], and whether there is one, [count, k].
  void window(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
              std::size_t k, Change change, std::span<float> changes, std::span<std::int64_t> since,
              std::span<bool> mask, int threads) const;
  // The number of records of a node.
  std::size_t count(std::int64_t node) const;
  // All of them, into times [count] and rows [count, channels, columns].
  void records(std::int64_t node, std::span<std::int64_t> times, std::span<float> rows) const;

 private:
  struct Place {
    const Segment* segment;
    std::size_t index;
  };
  template <class Visit>
  void gather(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
              std::size_t latest, bool rows, int threads, Visit visit) const;
  std::pair<std::size_t, std::size_t> range(const Segment& segment, std::int64_t node) const;
  void decode(const Place& place, float* out) const;
  const float* decoded(const Place& place, float* buffer) const;

  RecordLayout layout_;
  std::vector<Segment> segments_;
};

}  // namespace tidegraph
