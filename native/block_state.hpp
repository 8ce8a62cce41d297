// One channel on one block of columns: its estimates and residuals, and everything that changes
// them. Threads work on different blocks at the same time.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "channel_state.hpp"
#include "columns.hpp"
#include "features.hpp"
#include "interrupt.hpp"
#include "rowstore.hpp"
#include "touched.hpp"

namespace tidegraph {

// Raises `to` to at least `value`. NaN wins, so that a certificate cannot miss it.
inline void raise_to(double& to, double value) {
  if (!(value <= to) && !std::isnan(to)) to = value;
}

// On its own cache line: threads count pushes in neighbouring objects.
template <class Real>
class alignas(64) BlockState {
 public:
  using Channel = typename ChannelState<Real>::Channel;

  // Must be called once, before anything else; everything given must outlive this object.
  void open(std::size_t channel, std::size_t number, const ColumnBlock& columns,
            const Features<Real>& features, const ChannelState<Real>& state, Interrupt& interrupt);
  // Makes room for new nodes; for rows only if `rows`.
  void resize(std::size_t nodes, bool rows);
  // Reads the graph, and what channels derive from it, from here.
  void attach(const ChannelState<Real>& state);

  std::size_t channel() const { return channel_; }
  std::size_t number() const { return number_; }
  const Block<Real>& block() const { return block_; }
  const Real* estimate(Node node) const {
    return estimate_.data() + std::size_t(node) * columns_->width;
  }
  const Real* residual(Node node) const {
    return residual_.data() + std::size_t(node) * columns_->width;
  }
  TouchedLog& touched() { return touched_; }
  const TouchedLog& touched() const { return touched_; }
  std::size_t bytes() const;

  // Take over what ChannelState::set_precision changed.
  void set_precision();
  void set_limits();

  // Sets p = 0 and R = d^beta x: the invariant holds, and everything is still to be pushed.
  void initialise();
  // Brings the estimates of a large graph near the solution. Almost every node is above its limit
  // at first, so instead of pushing one by one this moves all nodes at once, row by row, in
  // parallel and in the order of the graph. Returns the number of sweeps.
  std::uint64_t sweep(int threads);
  // Queues the nodes from `first` on that are above their limit; `touch` marks all of them.
  void scan(std::size_t first, bool touch);
  // Pushes until nothing is queued; returns false if it was interrupted before.
  bool converge();
  // Recomputes all residuals from the estimates, on this thread.
  void rewrite();

  // Adds d^beta times a change of features, [columns of all blocks] in thresholds, to a residual.
  void change_features(Node node, const double* change);
  // Applies the changes that the channel state went through: nodes from `first_new` on are new, and
  // `limits_changed` says whether all limits did. Returns what converge() does.
  bool step(std::size_t first_new, bool limits_changed);
  void discard_touched() { touched_.discard(block_.touched); }

  // Compares the stored residuals with true ones, computed from the estimates in float64.
  struct Audit {
    std::vector<double> ratio;  // [width]: max |true residual| / degree
    double drift = 0, untracked = 0, excess = 0;
  };
  Audit audit(int threads) const;

  void release_residuals();
  void archive(Archive& archive, const std::string& name);

 private:
  const Channel& of_channel() const { return state_->channels[channel_]; }
  const View& view() const { return state_->view(channel_); }
  std::size_t nodes() const { return state_->versions.nodes(); }
  // Calls work(range) for up to kRange nodes from `first` on.
  template <class Work>
  void with_range(std::size_t first, Work work) const;
  // Calls work(range) for all nodes, in parallel.
  template <class Work>
  void for_ranges(int threads, Work work) const;
  void initialise_row(std::size_t node, double degree);
  void clear_row(Node node);
  void rewrite_node(Node node);

  std::size_t channel_ = 0, number_ = 0;
  const ColumnBlock* columns_ = nullptr;
  const Features<Real>* features_ = nullptr;
  const ChannelState<Real>* state_ = nullptr;
  Interrupt* interrupt_ = nullptr;
  RowStore<Real> estimate_, residual_;
  std::vector<Bounds<Real>> bounds_;
  typename Features<Real>::Reader reader_;
  std::vector<Node> queue_;
  TouchedLog touched_;
  Block<Real> block_{};
};

}  // namespace tidegraph
