// Watches a propagator and records the states that differ from the last recorded ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "propagator.hpp"
#include "records.hpp"

namespace tidegraph {

// Records a node at every step in which it is an endpoint of a row, in which ||z - last|| >
// epsilon ||z|| in any channel, or in which the scale of its promised error has grown. `last` is
// the row as a reader of the records will see it, including rounding: a recorder restored from its
// records continues to the bit.
//
// The scale, per channel, is tolerance d^(1-beta) |gamma0| / (1 - |gamma|), rounded up: times a
// column's threshold it is what Propagator::threshold promises.
class Recorder {
 public:
  Recorder(RecordLayout layout, std::size_t nodes, double epsilon);

  // Records the nodes [first, last) in any case. Like run(), throws std::range_error if a value is
  // out of the range of float.
  template <class Real>
  void begin(const Propagator<Real>& propagator, std::size_t first, std::size_t last,
             std::int64_t time);
  // Sets what a reader sees of the nodes from `first` on: rows [count, channels, columns] and
  // scales [count, channels].
  void restore(std::size_t first, std::span<const float> rows, std::span<const float> scales);
  // After the next step, looks at every node instead of at those it touched.
  void look_at_all() { all_ = true; }

  // Applies steps as Propagator::apply_steps does, step s at times[s], until `limit` records are
  // waiting. Returns the number of steps applied.
  template <class Real>
  std::size_t run(Propagator<Real>& propagator, const Rows& rows,
                  std::span<const std::int64_t> offsets, std::span<const std::int64_t> times,
                  std::size_t limit, Rejection& rejection);

  std::size_t waiting() const { return nodes_.size(); }
  // The nodes that run() has seen touched, summed over its steps.
  std::size_t touched() const { return touched_; }
  // Returns the waiting records and forgets them.
  SealedRecords seal();

 private:
  template <class Real>
  void look(const Propagator<Real>& propagator);
  template <class Real>
  void append(Node node, const Real* row, const double* scale, std::int64_t time);

  RecordLayout layout_;
  double epsilon_;
  bool all_ = false;
  std::size_t touched_ = 0;
  std::vector<float> last_;         // [nodes, channels, columns]
  std::vector<float> last_scales_;  // [nodes, channels]

  // Waiting records, in the order in which they were made.
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

}  // namespace tidegraph
