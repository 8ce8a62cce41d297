// Features propagated over a changing graph, within a guaranteed error of the exact solution.
// ARCHITECTURE.md has the equations in the scaled variables used here.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "block_state.hpp"
#include "channel_state.hpp"
#include "columns.hpp"
#include "features.hpp"
#include "interrupt.hpp"
#include "parallel.hpp"
#include "replicas.hpp"
#include "touched.hpp"

namespace tidegraph {

struct Settings {
  bool directed = false;
  double self_loop = 1;
  bool scale_by_degree = true;
  // The widest block.
  std::size_t block_columns = 0;
  int threads = 1;
  // From this number of nodes on, the first propagation begins with sweeps over all of them.
  std::size_t sweep_nodes = std::size_t(1) << 20;
  FeatureSource features;
  std::vector<VersionSpec> versions;
  std::vector<std::pair<std::size_t, Direction>> views;  // version, direction
  std::vector<ChannelSpec> channels;
};

// Changes that take effect together. Feature rows are [count, columns].
struct Update {
  Rows rows;
  // The time the step moves to.
  std::optional<std::int64_t> end;
  std::size_t new_nodes = 0;
  // Of the new nodes; if empty, the feature source decides.
  std::span<const double> new_features;
  std::span<const std::int64_t> feature_nodes;
  std::span<const double> feature_values;
  std::span<const std::int64_t> removed_nodes;
};

// Why a step was rejected; empty if none was.
struct Rejection {
  std::string reason;
  bool of_precision = false;  // a PrecisionError rather than an EventError
  bool empty() const { return reason.empty(); }
};

// A change failed half-way, as when memory runs out. Thrown by every later use of the propagator.
struct BrokenError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Real>
class Propagator {
 public:
  // One threshold per column. Nothing is propagated before start().
  Propagator(Settings settings, std::size_t nodes, std::span<const double> thresholds);

  // Before start(): the features of the nodes from `first` on, [count, columns], or those of all
  // nodes in a matrix that outlives this object; in any number of calls.
  void set_features(std::size_t first, std::span<const double> rows);
  template <class Given>
  void borrow_features(std::span<const Given> rows) {
    features_.borrow(rows.data(), rows.size() / columns());
  }
  // Finds the largest feature in units of its threshold, which decides what the precision can hold.
  // Must follow the features and precede start().
  void read_peak() { state_.peak = peak_of(0, nodes()); }
  // Before start(): edges of the graph, in any number of calls.
  void load(const Rows& rows, std::optional<std::int64_t> end);
  // Instead of load(): lists that outlive this object; `targets` counts if the graph is directed.
  void attach_base(const CompactLists& sources, const CompactLists& targets, std::size_t edges,
                   const Entries& selves);
  // The graph, to merge its changed lists with the base. No result depends on it.
  Graph& graph_to_merge() { return state_.versions.graph_to_merge(); }
  // Propagates for the first time.
  void start();

  // A long call can be interrupted between any two pushes. The next call completes what it began,
  // so that nobody sees it half done. Call begin() before the call and interrupted() after it.
  void begin(std::function<bool()> poll) { interrupt_.begin(std::move(poll)); }
  bool interrupted() const { return interrupt_.happened(); }
  // Completes an interrupted call. Must precede every other function.
  void complete();

  // Applies all of an update or, if it throws EventError or PrecisionError, nothing. touched()
  // returns the touched nodes, sorted, until the next step.
  void apply(const Update& update);
  std::span<const Node> touched() const { return touched_.nodes(); }
  // Applies steps rows[offsets[s]:offsets[s + 1]] one after the other and writes the number of
  // touched nodes per step to `counts`. Returns the number of steps applied; if that is fewer than
  // given, `rejection` holds the reason. Calls after(s) once step s has been applied; false stops.
  std::size_t apply_steps(const Rows& rows, std::span<const std::int64_t> offsets,
                          std::span<std::int64_t> counts, Rejection& rejection,
                          const std::function<bool(std::size_t)>& after = {});

  std::size_t nodes() const { return state_.versions.nodes(); }
  std::size_t columns() const { return thresholds_.size(); }
  std::size_t channels() const { return state_.channels.size(); }
  const Versions& versions() const {
    require_intact();
    return state_.versions;
  }
  const Settings& settings() const { return settings_; }
  void set_threads(int threads) { settings_.threads = threads; }

  // Results for the given nodes, [count, channels, columns]; features [count, columns], degrees
  // [count, channels].
  void embedding(std::span<const std::int64_t> nodes, std::span<Real> out) const;
  void residual(std::span<const std::int64_t> nodes, std::span<Real> out) const;
  void features(std::span<const std::int64_t> nodes, std::span<double> out) const;
  void degree(std::span<const std::int64_t> nodes, std::span<double> out) const;
  // The promised error.
  void threshold(std::span<const std::int64_t> nodes, std::span<double> out) const;
  // The certificate: the error computed now.
  void error_bound(std::span<const std::int64_t> nodes, std::span<double> out);
  // The embedding of all nodes, as the last use of this object: it frees the residuals first, so
  // that they and `out` need not be in memory together.
  void finish(std::span<Real> out);

  // Per channel, relative to the limits: the largest |stored - true residual|, the largest
  // |true residual|, and how far the former exceeds the recorded drift.
  struct Audit {
    std::vector<double> drift, residual, untracked;
  };
  Audit audit();
  // Recomputes all residuals and converges.
  void repair();
  // Sets every threshold to `factor` times the one given at the start, and converges.
  void refine(double factor);
  double tolerance() const { return state_.tolerance; }
  // The smallest factor of refine() that the precision can hold, with features as large as those
  // so far, or as `peak`, in units of their thresholds.
  double finest_tolerance(double peak = 0) const;

  struct Statistics {
    std::uint64_t events = 0, pushes = 0, edge_pushes = 0, correction_rows = 0, stalled = 0;
    std::uint64_t rewrites = 0;     // recomputed residuals of one node in one block
    std::uint64_t sweeps = 0;       // of one channel on one block
    std::uint64_t most_pushes = 0;  // of one step
    std::size_t graph_bytes = 0, state_bytes = 0, edges = 0;
  };
  Statistics statistics() const;

  // Reading replaces load() and start() on a propagator made with the same settings, nodes and
  // thresholds.
  void archive(Archive& archive);

 private:
  using Channel = typename ChannelState<Real>::Channel;

  // Marks the propagator as broken if an exception leaves its scope.
  class Changing {
   public:
    explicit Changing(Propagator& of) : of_(of), exceptions_(std::uncaught_exceptions()) {}
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;
    ~Changing() {
      if (std::uncaught_exceptions() > exceptions_) of_.broken_ = true;
    }

   private:
    Propagator& of_;
    int exceptions_;
  };
  void require_intact() const;

  const BlockState<Real>& block(std::size_t channel, std::size_t number) const {
    return blocks_[channel * columns_.size() + number];
  }
  // All blocks, on all threads.
  Replica<Real> all() { return {state_, all_blocks_, settings_.threads}; }
  void resize(std::size_t nodes);
  double peak_of(std::size_t first, std::size_t last) const;
  double peak_of(const Update& update) const;
  bool set_precision(const Replica<Real>& replica);
  template <class Work>
  void for_blocks(const Replica<Real>& replica, Work work) {
    const auto item = [&](std::size_t i) { work(*replica.blocks[i]); };
    const auto waiting = [&] { interrupt_.check(); };
    // References, so that nothing is allocated.
    parallel_for(replica.blocks.size(), replica.threads, std::ref(item), std::ref(waiting));
  }
  // Converges all blocks after `prepare(block)`.
  template <class Prepare>
  void converge_all(Prepare prepare);
  void discard_touched();

  void change_features(const Update& update);
  void step(const Replica<Real>& replica, const Update& update);
  void merge_touched(std::size_t step, const Update& update);
  void drop_logs(std::size_t steps);

  template <class Visit>
  void for_nodes(std::span<const std::int64_t> nodes, Visit visit) const;
  void isolated_error(Node node, std::size_t channel, double* row) const;

  Settings settings_;
  ChannelState<Real> state_;
  std::vector<double> thresholds_;
  std::vector<ColumnBlock> columns_;
  Features<Real> features_;
  std::vector<BlockState<Real>> blocks_;       // [channels, blocks of columns]
  std::vector<BlockState<Real>*> all_blocks_;  // pointers to all of them
  std::vector<double> feature_change_;         // scratch: [count, columns], in thresholds
  TouchedNodes touched_;
  std::uint64_t sweeps_ = 0;
  bool started_ = false;
  Interrupt interrupt_;
  std::atomic<bool> incomplete_{false};  // an interrupted call left nodes queued
  bool broken_ = false;
};

}  // namespace tidegraph
