// The steps of an update.
#include <algorithm>
#include <cmath>

#include "propagator.hpp"

namespace tidegraph {
namespace {

// Steps, and nodes in the log of one block, after which logs are merged.
constexpr std::size_t kLoggedSteps = 1024, kLoggedNodes = 1 << 16;

// How far one replica has come.
struct Progress {
  std::size_t done = 0;
  Rejection rejection;
};
bool behind(const Progress& a, const Progress& b) { return a.done < b.done; }

// Whether much is logged.
template <class Real>
bool must_merge(const Replica<Real>& replica) {
  return std::any_of(
      replica.blocks.begin(), replica.blocks.end(),
      [](const BlockState<Real>* block) { return block->touched().size() > kLoggedNodes; });
}

}  // namespace

template <class Real>
void Propagator<Real>::apply(const Update& update) {
  require_intact();
  for (const std::int64_t node : update.feature_nodes) {
    if (node < 0 || std::size_t(node) >= nodes())
      throw EventError("feature_nodes names node " + std::to_string(node) +
                       ", but there are nodes 0 to " + std::to_string(std::int64_t(nodes()) - 1));
    if (state_.versions.removed(Node(node)))
      throw EventError("feature_nodes names node " + std::to_string(node) + ", which was removed");
  }
  const double peak = std::max(state_.peak, peak_of(update));
  if (peak > state_.peak && !(state_.finest(peak) <= state_.tolerance))
    throw PrecisionError("features as large as " + number(peak) +
                         " times their threshold exceed what the precision can hold, which is " +
                         number(state_.tolerance / state_.finest(1)) + " times");
  // Large features and light edges both need precision, and may come together.
  state_.versions.set_lightest_accepted(state_.lightest_accepted(peak));
  try {
    state_.versions.check(update.rows, update.new_nodes, update.removed_nodes, update.end);
  } catch (...) {
    state_.versions.set_lightest_accepted(state_.lightest_accepted(state_.peak));
    throw;
  }
  const Changing changing(*this);
  state_.peak = peak;
  step(all(), update);
  merge_touched(0, update);
  drop_logs(1);
  touched_.sort();
}

template <class Real>
std::size_t Propagator<Real>::apply_steps(const Rows& rows, std::span<const std::int64_t> offsets,
                                          std::span<std::int64_t> counts, Rejection& rejection,
                                          const std::function<bool(std::size_t)>& after) {
  require_intact();
  const std::size_t steps = std::max<std::size_t>(offsets.size(), 1) - 1;
  const auto update_of = [&](std::size_t s) {
    Update update;
    update.rows = rows.slice(std::size_t(offsets[s]), std::size_t(offsets[s + 1]));
    if (!update.rows.t.empty()) update.end = update.rows.t.back();
    return update;
  };
  // Takes a replica through its steps until much is logged, one is rejected, or it is interrupted.
  const auto advance = [&](const Replica<Real>& replica, Progress& progress, std::size_t last) {
    while (progress.done < last && progress.rejection.empty() && !must_merge(replica)) {
      const Update update = update_of(progress.done);
      try {
        replica.state.versions.check(update.rows, 0, {}, update.end);
      } catch (const EventError& error) {
        progress.rejection = {error.what(), false};
        return;
      } catch (const PrecisionError& error) {
        progress.rejection = {error.what(), true};
        return;
      }
      step(replica, update);
      ++progress.done;
      if (replica.blocks.size() == blocks_.size() && interrupt_.check()) return;
    }
  };
  const std::size_t count =
      after ? 1
            : Replicas<Real>::worthwhile(state_, blocks_.size(), steps, settings_.threads,
                                         statistics().state_bytes);
  std::vector<Progress> progress(count);
  const Replicas<Real> replicas(state_, all_blocks_, count, settings_.threads);
  // Replicas must end at the same step, and `after` must see every step whole.
  const Interrupt::WholeSteps whole(interrupt_, after || count > 1);
  for (std::size_t done = 0;;) {
    std::size_t last = std::min(steps, done + (after ? 1 : kLoggedSteps));
    const bool stopping = interrupt_.check();
    if (stopping) last = std::max_element(progress.begin(), progress.end(), behind)->done;
    std::size_t now = done;
    {
      const Changing changing(*this);
      parallel_for(
          count, settings_.threads, [&](std::size_t r) { advance(replicas[r], progress[r], last); },
          [&] { interrupt_.check(); });
      // One replica may be ahead of another. All come to the same rejection, if to any.
      now = std::min_element(progress.begin(), progress.end(), behind)->done;
      for (std::size_t s = done; s < now; ++s) {
        merge_touched(s - done, update_of(s));
        counts[s] = std::int64_t(touched_.nodes().size());
      }
      drop_logs(now - done);
    }
    const bool applied = now > done;
    done = now;
    if (after && applied && !after(done - 1)) return done;
    if (done == steps || (stopping && done == last)) return done;
    const bool rejected = std::all_of(progress.begin(), progress.end(),
                                      [](const Progress& each) { return !each.rejection.empty(); });
    if (!rejected) continue;
    rejection = progress.front().rejection;
    return done;
  }
}

// R += d^beta (x' - x).
template <class Real>
void Propagator<Real>::change_features(const Update& update) {
  feature_change_.assign(update.feature_nodes.size() * columns(), 0.0);
  for (std::size_t f = 0; f < update.feature_nodes.size(); ++f) {
    const Node node = Node(update.feature_nodes[f]);
    const auto add = [&](double sign) {
      Real row[kMaxWidth];
      for (std::size_t b = 0; b < columns_.size(); ++b) {
        features_.read(b, node, row);
        for (std::size_t i = 0; i < columns_[b].count; ++i)
          feature_change_[f * columns() + columns_[b].first + i] += sign * double(row[i]);
      }
    };
    add(-1);
    features_.write(node, update.feature_values.data() + f * columns());
    add(+1);
  }
  for_blocks(all(), [&](BlockState<Real>& block) {
    for (std::size_t f = 0; f < update.feature_nodes.size(); ++f)
      block.change_features(Node(update.feature_nodes[f]), &feature_change_[f * columns()]);
  });
}

// Applies one step that was checked; after that only lack of memory can make it fail. Only the
// replica of all blocks takes new nodes and features.
template <class Real>
void Propagator<Real>::step(const Replica<Real>& replica, const Update& update) {
  ChannelState<Real>& state = replica.state;
  if (!update.feature_nodes.empty()) change_features(update);
  state.versions.pass_time(update.end);
  const std::size_t first_new = state.versions.nodes();
  state.versions.change(update.rows, update.new_nodes, update.removed_nodes);
  state.events += update.rows.size();
  if (update.new_nodes) {
    resize(nodes());
    set_features(first_new, update.new_features);
  }
  for (const std::int64_t node : update.removed_nodes) features_.clear(Node(node));
  const bool limits_changed = set_precision(replica);
  for (std::size_t c = 0; c < state.channels.size(); ++c) state.prepare(c, first_new);
  for_blocks(replica, [&](BlockState<Real>& block) {
    if (!block.step(first_new, limits_changed)) incomplete_ = true;
  });
}

// Collects the nodes that a logged step touched in any block, or that the update names.
template <class Real>
void Propagator<Real>::merge_touched(std::size_t step, const Update& update) {
  touched_.clear();
  for (const BlockState<Real>& block : blocks_)
    for (const Node node : block.touched().step(step)) touched_.add(node);
  for (const std::int64_t node : update.rows.src) touched_.add(Node(node));
  for (const std::int64_t node : update.rows.dst) touched_.add(Node(node));
  for (const std::int64_t node : update.feature_nodes) touched_.add(Node(node));
  for (std::size_t node = nodes() - update.new_nodes; node < nodes(); ++node)
    touched_.add(Node(node));
  touched_.finish();
}

template <class Real>
void Propagator<Real>::drop_logs(std::size_t steps) {
  for (BlockState<Real>& block : blocks_) block.touched().drop(steps);
}

#define TIDEGRAPH_STEPS(Real)                                                                    \
  template void Propagator<Real>::apply(const Update&);                                          \
  template std::size_t Propagator<Real>::apply_steps(const Rows&, std::span<const std::int64_t>, \
                                                     std::span<std::int64_t>, Rejection&,        \
                                                     const std::function<bool(std::size_t)>&);
TIDEGRAPH_STEPS(float)
TIDEGRAPH_STEPS(double)

}  // namespace tidegraph
