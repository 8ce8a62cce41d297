// Features propagated over a changing graph, kept within a guaranteed error of the exact solution.
// ARCHITECTURE.md has the equations in the scaled variables used here.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "features.hpp"
#include "ground.hpp"
#include "rowstore.hpp"

namespace tidegraph {

struct Settings {
  bool directed = false;
  double self_loop = 1;
  bool scale_by_degree = true;
  std::size_t block_columns = 0;  // widest block
  int threads = 1;
  // From so many nodes on the first propagation begins with sweeps over all of them.
  std::size_t sweep_nodes = std::size_t(1) << 20;
  FeatureSource features;
  std::vector<VersionSpec> versions;
  std::vector<std::pair<std::size_t, Direction>> views;  // version, direction
  std::vector<ChannelSpec> channels;
};

// Changes that take effect together; node and feature events beside the rows. Feature rows are
// [count, columns].
struct Update {
  Rows rows;
  std::optional<std::int64_t> end;  // the time the step moves to
  std::size_t new_nodes = 0;
  std::span<const double> new_features;  // empty: what the source of the features says
  std::span<const std::int64_t> feature_nodes;
  std::span<const double> feature_values;
  std::span<const std::int64_t> removed_nodes;
};

// Why a step was refused; an empty text where none was.
struct Refusal {
  std::string why;
  bool of_precision = false;  // a PrecisionError rather than an EventError
  bool empty() const { return why.empty(); }
};

// Whether a call is to end early. The thread that made it asks someone outside, now and then.
class Interrupt {
 public:
  // `ask` is called on the thread that begins, and must not throw. None: nothing interrupts.
  void begin(std::function<bool()> ask);
  bool check();
  bool happened() const { return stop_.load(std::memory_order_relaxed); }

 private:
  std::function<bool()> ask_;
  std::thread::id caller_;
  std::chrono::steady_clock::time_point next_;
  std::atomic<bool> stop_{false};
};

template <class Real>
class Propagator {
 public:
  // One threshold per column. Nothing is propagated before start().
  Propagator(Settings settings, std::size_t nodes, std::span<const double> thresholds);

  // Features of the nodes from `first` on, [count, columns], or of all in a matrix that outlives
  // this object, and rows of a graph to start from, in any number of calls; then start() propagates
  // for the first time.
  void set_features(std::size_t first, std::span<const double> rows);
  template <class Given>
  void borrow_features(std::span<const Given> rows) {
    features_.borrow(rows.data(), rows.size() / columns());
  }
  // The largest of them, in units of their thresholds, decides what the precision can hold. To be
  // read before start().
  void read_peak() { ground_.peak = peak_of(0, nodes()); }
  void load(const Rows& rows, std::optional<std::int64_t> end);
  // Instead: lists that outlive this object; `targets` where the graph is directed.
  void stand_on(const CompactLists& sources, const CompactLists& targets, std::size_t edges,
                const Entries& selves) {
    ground_.versions.stand_on(sources, targets, edges, selves);
  }
  // Over such lists: those that changed, to be merged with the others. No result depends on it.
  Graph& graph_to_merge() { return ground_.versions.graph_to_merge(); }
  void start();

  // A long call may be interrupted between any two pushes. What it has begun is then completed by
  // the next call that needs it, so that nobody sees it half done. begin() before the call, and
  // interrupted() after it.
  void begin(std::function<bool()> ask) { interrupt_.begin(std::move(ask)); }
  bool interrupted() const { return interrupt_.happened(); }
  // Completes what an interrupted call left. Every other function expects that.
  void complete();

  // All or nothing. The touched nodes, sorted, stay readable until the next step.
  void apply(const Update& update);
  std::span<const Node> touched() const { return touched_; }
  // Steps rows[offsets[s]:offsets[s + 1]] one after the other; touched nodes per step into counts.
  // Returns the number of steps done: fewer than asked where one was refused, whose error then
  // stands in `refusal`. `after(s)` is called when step s has been applied; false ends there.
  std::size_t apply_steps(const Rows& rows, std::span<const std::int64_t> offsets,
                          std::span<std::int64_t> counts, Refusal& refusal,
                          const std::function<bool(std::size_t)>& after = {});

  std::size_t nodes() const { return ground_.versions.nodes(); }
  std::size_t columns() const { return thresholds_.size(); }
  std::size_t channels() const { return ground_.channels.size(); }
  const Versions& versions() const { return ground_.versions; }
  const Settings& settings() const { return settings_; }
  void set_threads(int threads) { settings_.threads = threads; }

  // Rows for the given nodes, [count, channels, columns] (features: [count, columns]).
  void embedding(std::span<const std::int64_t> nodes, std::span<Real> out) const;
  // The embedding of all nodes, as the last thing asked of this object: it lets go of its residuals
  // first, so that they and `out` need not be in memory together.
  void finish(std::span<Real> out);
  void residual(std::span<const std::int64_t> nodes, std::span<Real> out) const;
  void features(std::span<const std::int64_t> nodes, std::span<double> out) const;
  void degree(std::span<const std::int64_t> nodes,
              std::span<double> out) const;  // [count, channels]
  void threshold(std::span<const std::int64_t> nodes, std::span<double> out) const;  // the promise
  void error_bound(std::span<const std::int64_t> nodes, std::span<double> out);  // the certificate

  // Largest |stored - true residual| and |true residual| over the limit, per channel; and how much
  // of the former the account of rounding has missed.
  struct Audit {
    std::vector<double> drift, residual, untracked;
  };
  Audit audit();
  void repair();
  // Multiplies every threshold promised at the start by `factor` and settles.
  void refine(double factor);
  double tolerance() const { return ground_.tolerance; }
  // The smallest factor of refine() that the precision can hold, with features as large as those
  // so far, or as `peak`, in units of their thresholds.
  double finest_tolerance(double peak = 0) const;

  struct Statistics {
    std::uint64_t events = 0, pushes = 0, edge_pushes = 0, correction_rows = 0, stalled = 0;
    std::uint64_t rewrites = 0;     // of residuals whose drift had grown, one node in one block
    std::uint64_t sweeps = 0;       // of one channel on one block of columns
    std::uint64_t most_pushes = 0;  // that one step can take
    std::size_t graph_bytes = 0, state_bytes = 0, edges = 0;
  };
  Statistics statistics() const;

  // Reading takes the place of load() and start(), on a propagator made with the same settings,
  // nodes and thresholds.
  void archive(Archive& archive);

 private:
  using Channel = typename Ground<Real>::Channel;
  // States that go through steps together. The ground of a lane tells everything but the states, so
  // that lanes on equal grounds need not wait for each other.
  struct Lane {
    Ground<Real>& ground;
    std::span<const std::size_t> items;  // of states_
    int threads;
  };
  // On a line of memory of its own: threads count pushes in neighbouring states.
  struct alignas(64) State {
    RowStore<Real> estimate, residual;
    std::vector<Bounds<Real>> bounds;
    typename Features<Real>::Reader features;
    std::vector<Node> queue, touched;
    std::vector<std::uint8_t> is_touched;
    // Nodes touched in the steps since they were last united, and where each step begins.
    std::vector<Node> log;
    std::vector<std::size_t> log_begins;
    Block<Real> block{};
    // Where the residuals of this state follow from.
    Propagator* of = nullptr;
    const Ground<Real>* ground = nullptr;
    std::size_t channel = 0, number = 0;  // of the block
  };

  State& state(std::size_t channel, std::size_t block) {
    return states_[channel * blocks_.size() + block];
  }
  const State& state(std::size_t channel, std::size_t block) const {
    return states_[channel * blocks_.size() + block];
  }
  // Keeps steps from being interrupted, where wanted, for as long as it lives.
  class Uninterrupted {
   public:
    Uninterrupted(Propagator& of, bool wanted) : of_(of) { of_.interruptible_ = !wanted; }
    Uninterrupted(const Uninterrupted&) = delete;
    Uninterrupted& operator=(const Uninterrupted&) = delete;
    ~Uninterrupted() { of_.interruptible_ = true; }

   private:
    Propagator& of_;
  };
  // All states shared out, for as long as this lives. The first lane stands on the ground of the
  // propagator, so that when all have gone through the same steps the copies are no longer needed.
  class Lanes {
   public:
    Lanes(Propagator& of, std::size_t count);
    Lanes(const Lanes&) = delete;
    Lanes& operator=(const Lanes&) = delete;
    ~Lanes();
    std::size_t size() const { return items_.size(); }
    Lane operator[](std::size_t lane) const {
      return {ground(lane), items_[lane], size() > 1 ? 1 : of_.settings_.threads};
    }

   private:
    Ground<Real>& ground(std::size_t lane) const { return lane ? *copies_[lane - 1] : of_.ground_; }

    Propagator& of_;
    std::vector<std::unique_ptr<Ground<Real>>> copies_;
    std::vector<std::vector<std::size_t>> items_;  // per lane
  };

  Lane whole() { return {ground_, items_, settings_.threads}; }
  void resize(std::size_t nodes);
  void initialise(const Ground<Real>& ground, std::size_t channel, std::size_t block);
  void initialise_row(const Ground<Real>& ground, std::size_t channel, std::size_t block,
                      std::size_t node, double degree);
  double peak_of(std::size_t first, std::size_t last) const;
  double peak_of(const Update& update) const;
  void isolated(Node node, std::size_t channel, double* row) const;
  void clear_row(std::size_t channel, std::size_t block, Node node);
  void change_features(const Update& update);
  void correct(const Ground<Real>& ground, std::size_t channel, std::size_t block);
  void step(const Lane& lane, const Update& update);
  void log_touched(State& s);
  void forget_touched();
  void unite_touched(std::size_t step, const Update& update);
  bool logged_much(const Lane& lane) const;
  void drop_logs(std::size_t steps);
  std::size_t lanes_for(std::size_t steps) const;
  void stand(std::size_t item, const Ground<Real>& ground);
  template <class Work>
  void for_items(const Lane& lane, Work work);
  template <class Visit>
  void for_nodes(std::span<const std::int64_t> nodes, Visit visit) const;
  template <class Work>
  void with_range(const Ground<Real>& ground, std::size_t channel, std::size_t block,
                  std::size_t first, Work work);
  template <class Work>
  void for_ranges(std::size_t channel, std::size_t block, Work work);
  void sweep(std::size_t channel, std::size_t block);
  void rewrite_node(const Ground<Real>& ground, std::size_t channel, std::size_t block, Node node);
  void rewrite(const Ground<Real>& ground, std::size_t channel, std::size_t block);
  bool set_precision(const Lane& lane);
  void set_limits(const Ground<Real>& ground, std::size_t channel, std::size_t block);
  struct Certificate {
    std::vector<double> ratio;                     // [channels, padded columns]
    std::vector<double> drift, untracked, excess;  // [channels, blocks]
  };
  Certificate certify();
  void settle(const Ground<Real>& ground, std::size_t channel, std::size_t block);

  Settings settings_;
  Ground<Real> ground_;
  std::vector<double> thresholds_;
  std::vector<ColumnBlock> blocks_;
  Features<Real> features_;
  std::vector<State> states_;
  std::vector<std::size_t> items_;      // all of states_
  std::vector<double> feature_change_;  // scratch: [count, columns] in units of the threshold
  std::vector<Node> touched_;
  std::vector<std::uint8_t> is_touched_;  // all zero between two calls of unite_touched
  std::uint64_t sweeps_ = 0;
  bool started_ = false;
  Interrupt interrupt_;
  bool interruptible_ = true;  // within a step
  std::atomic<bool> unsettled_{false};
};

}  // namespace tidegraph
