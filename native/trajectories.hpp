// How the representations of nodes moved: what is worth a record, and records read back by node
// and time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "propagator.hpp"

namespace tidegraph {

// Before any event.
inline constexpr std::int64_t kBeginning = std::numeric_limits<std::int64_t>::min();

// What one record looks like.
struct RecordLayout {
  std::size_t channels = 1, columns = 1;
  // Rows as IEEE half precision, each channel of a record times its own power of two, so that the
  // size of the values does not matter; otherwise as float.
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
  std::span<const std::int8_t> exponents;  // [records, channels] where rows are half, else empty
  std::span<const float> scales;           // [records, channels]: see Recorder
};

// The memory of a segment.
struct SealedRecords {
  std::vector<std::int64_t> nodes, offsets, times;
  std::vector<std::uint8_t> rows;
  std::vector<std::int8_t> exponents;
  std::vector<float> scales;
  Segment view() const { return {nodes, offsets, times, rows, exponents, scales}; }
};

// Watches a propagator and keeps a record of every node at the steps where it is an endpoint of a
// row, where in any channel ||z - last|| > epsilon ||z||, and where the scale of its promised error
// has grown. `last` is its row as a reader of the records will see it, rounding included: a
// recorder restored from its records goes on to the bit.
//
// The scale, per channel, is tolerance d^(1-beta) |gamma0| / (1 - |gamma|), rounded up: times a
// column's threshold it is what Propagator::threshold promises.
class Recorder {
 public:
  Recorder(RecordLayout layout, std::size_t nodes, double epsilon);

  // Records the nodes first .. last - 1 whatever their state. Throws std::range_error, as does
  // run(), where a value is beyond float.
  template <class Real>
  void begin(const Propagator<Real>& propagator, std::size_t first, std::size_t last,
             std::int64_t time);
  // What a reader sees of the nodes from `first` on: rows [count, channels, columns] and scales
  // [count, channels].
  void restore(std::size_t first, std::span<const float> rows, std::span<const float> scales);
  // Looks at every node after the next step instead of at those it touched.
  void look_at_all() { all_ = true; }

  // Applies steps as Propagator::apply_steps does, step s at times[s], until `limit` records are
  // waiting. Returns the number of steps done.
  template <class Real>
  std::size_t run(Propagator<Real>& propagator, const Rows& rows,
                  std::span<const std::int64_t> offsets, std::span<const std::int64_t> times,
                  std::size_t limit, Refusal& refusal);

  std::size_t waiting() const { return nodes_.size(); }
  // The waiting records, which are then forgotten.
  SealedRecords seal();

 private:
  template <class Real>
  void look(const Propagator<Real>& propagator);
  template <class Real>
  void append(Node node, const Real* row, const double* scale, std::int64_t time);

  RecordLayout layout_;
  double epsilon_;
  bool all_ = false;
  std::vector<float> last_;         // [nodes, channels, columns]
  std::vector<float> last_scales_;  // [nodes, channels]

  // Waiting, in the order in which they were made.
  std::vector<Node> nodes_;
  std::vector<std::int64_t> times_;
  std::vector<std::uint8_t> rows_;
  std::vector<std::int8_t> exponents_;
  std::vector<float> scales_;

  // Scratch of a step.
  std::vector<std::uint8_t> endpoint_;  // per node
  std::vector<std::int64_t> seen_;
  std::vector<double> degrees_, now_scales_;
  std::vector<std::uint8_t> chosen_, now_rows_;
};

// What a window shows of two neighbouring records.
enum class Change : std::uint8_t { difference = 0, l2 = 1, cosine = 2 };

// Answers questions about (node, t) from segments in the order of time, of which the first holds
// every node. Never sees a record at or after t. Nodes and times are the caller's to check; `out`
// has a row per question.
class Trajectories {
 public:
  Trajectories(RecordLayout layout, std::vector<Segment> segments);

  // The latest record: [count, channels, columns].
  void state(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
             std::span<float> out, int threads) const;
  // Its scales: [count, channels].
  void scales(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
              std::span<float> out, int threads) const;
  // The k latest changes, the newest last and what is missing at the front zero:
  // changes [count, k, channels, columns], or [count, k, channels] for l2 and cosine, the time
  // since each, [count, k], and where there is one, [count, k].
  void window(std::span<const std::int64_t> nodes, std::span<const std::int64_t> times,
              std::size_t k, Change change, std::span<float> changes, std::span<std::int64_t> since,
              std::span<bool> mask, int threads) const;
  // How many records a node has; all of them into times [n] and rows [n, channels, columns].
  std::size_t count(std::int64_t node) const;
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
