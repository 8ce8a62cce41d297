#include "propagator.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>
#include <numeric>
#include <utility>

#include "parallel.hpp"

namespace tidegraph {

#if TIDEGRAPH_X86
#define TIDEGRAPH_LEVELS(X) X(v2) X(v3) X(v2_narrow) X(v3_narrow)
#else
#define TIDEGRAPH_LEVELS(X) X(generic) X(generic_narrow)
#endif
#define TIDEGRAPH_DECLARE(level)               \
  namespace level {                            \
  extern const Kernels<float> kernels_float;   \
  extern const Kernels<double> kernels_double; \
  }
TIDEGRAPH_LEVELS(TIDEGRAPH_DECLARE)

namespace {
template <class Real>
const Kernels<Real>& choose(const Kernels<float>& single, const Kernels<double>& twice) {
  if constexpr (sizeof(Real) == sizeof(float))
    return (void)twice, single;
  else
    return (void)single, twice;
}
}  // namespace

template <class Real>
const Kernels<Real>& kernels(const Block<Real>& block) {
  const bool narrow = block.width * sizeof(Real) % kVectorBytes != 0;
#if TIDEGRAPH_X86
  static const bool modern = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (modern && narrow) return choose<Real>(v3_narrow::kernels_float, v3_narrow::kernels_double);
  if (modern) return choose<Real>(v3::kernels_float, v3::kernels_double);
  if (narrow) return choose<Real>(v2_narrow::kernels_float, v2_narrow::kernels_double);
  return choose<Real>(v2::kernels_float, v2::kernels_double);
#else
  if (narrow) return choose<Real>(generic_narrow::kernels_float, generic_narrow::kernels_double);
  return choose<Real>(generic::kernels_float, generic::kernels_double);
#endif
}

namespace {

// The smallest number that the precision tells from zero.
template <class Real>
constexpr double kSmallest = sizeof(Real) == 4 ? 0x1p-149 : 0x1p-1074;
// How far the estimate of a node without a degree may be from exact: its features and the estimate
// itself have been rounded to the working precision, and the units of the features to float64.
template <class Real>
double isolated_error(double size) {
  return size == 0 ? 0 : 4 * Precision<Real>::kUlp * size + kSmallest<Real>;
}
// What computing a bound in float64 may take from it.
constexpr double kRoundUp = 1 + 0x1p-46;
// Between two questions whether to stop.
constexpr std::chrono::milliseconds kPatience{20};
// Nodes touched in a step are listed while they are fewer than this share of all; beyond it, a look
// at all marks costs less than the step did.
constexpr std::size_t kListedShare = 16;
// Nodes in a range, of which threads take one after the other.
constexpr std::size_t kRange = 1 << 13;
// Sweeps end when the nodes above their limit are fewer than this share: pushing at those alone
// then costs less than another look at all edges.
constexpr std::size_t kSweptShare = 64;
constexpr int kMaxSweeps = 200;
// Steps, and entries in the log of one block, before the logs are united.
constexpr std::size_t kLoggedSteps = 1024, kLoggedNodes = 1 << 16;
// Bytes that are copied in the time that a step in a lane of its own gains, roughly; and what
// copies may take in any case.
constexpr std::size_t kCopiedPerStep = 1 << 11, kSmallCopies = std::size_t(1) << 26;

// Blocks of nearly equal width, an even number of them, in whole vectors. A function of the columns
// alone: results must not depend on the threads.
std::vector<ColumnBlock> share_out(std::size_t columns, std::size_t bytes, std::size_t widest) {
  const std::size_t lanes = (columns * bytes <= kNarrowBytes ? kNarrowBytes : kVectorBytes) / bytes;
  const std::size_t vectors = (columns + lanes - 1) / lanes;
  widest = std::min(widest, kMaxWidth) / lanes;
  std::size_t count = (vectors + widest - 1) / std::max<std::size_t>(widest, 1);
  if (count % 2 && vectors >= 4) ++count;
  std::vector<ColumnBlock> blocks;
  for (std::size_t b = 0, vector = 0; b < count; ++b) {
    const std::size_t take =
        (vectors - vector) / (count - b) + ((vectors - vector) % (count - b) != 0);
    const std::size_t first = vector * lanes;
    blocks.push_back({first, std::min(take * lanes, columns - first), take * lanes});
    vector += take;
  }
  return blocks;
}

}  // namespace

void Interrupt::begin(std::function<bool()> ask) {
  ask_ = std::move(ask);
  caller_ = std::this_thread::get_id();
  next_ = std::chrono::steady_clock::now() + kPatience;
  stop_.store(false, std::memory_order_relaxed);
}

bool Interrupt::check() {
  if (happened()) return true;
  if (!ask_ || std::this_thread::get_id() != caller_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  next_ = now + kPatience;
  if (ask_()) stop_.store(true, std::memory_order_relaxed);
  return happened();
}

template <class Real>
Propagator<Real>::Propagator(Settings settings, std::size_t nodes,
                             std::span<const double> thresholds)
    : settings_(std::move(settings)),
      ground_{Versions(nodes, settings_.directed, settings_.self_loop, Precision<Real>::kForgotten,
                       settings_.versions, settings_.views),
              settings_.scale_by_degree},
      thresholds_(thresholds.begin(), thresholds.end()),
      blocks_(share_out(columns(), sizeof(Real), settings_.block_columns)),
      features_(settings_.features, blocks_, thresholds_) {
  states_.resize(settings_.channels.size() * blocks_.size());
  items_.resize(states_.size());
  std::iota(items_.begin(), items_.end(), std::size_t(0));
  for (const ChannelSpec& spec : settings_.channels) ground_.add_channel(spec);
  resize(nodes);
}

template <class Real>
void Propagator<Real>::set_features(std::size_t first, std::span<const double> rows) {
  for (std::size_t row = 0; row < rows.size() / columns(); ++row)
    features_.write(Node(first + row), rows.data() + row * columns());
}

template <class Real>
void Propagator<Real>::resize(std::size_t nodes) {
  features_.resize(nodes);
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    for (std::size_t c = 0; c < channels(); ++c) {
      State& s = state(c, b);
      if (started_) {  // not before: loading a graph needs memory of its own for a while
        s.estimate.resize(nodes, blocks_[b].width);
        s.residual.resize(nodes, blocks_[b].width);
        s.bounds.resize(nodes);
      }
      s.touched.resize(nodes / kListedShare + 1);
      s.is_touched.resize(nodes, 0);
    }
  }
  ground_.resize();
  is_touched_.resize(nodes, 0);
  for (std::size_t c = 0; c < channels(); ++c) {
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      State& s = state(c, b);
      Block<Real>& block = s.block;
      block.nodes = nodes;
      block.width = blocks_[b].width;
      block.estimate = s.estimate.data();
      block.residual = s.residual.data();
      block.bounds = s.bounds.data();
      s.features.open(features_, b);
      using Reader = typename Features<Real>::Reader;
      block.features = {features_.kept(b), &s.features, [](void* reader, Node node) {
                          return static_cast<Reader*>(reader)->row(node);
                        }};
      block.pivot = ground_.channels[c].pivot.data();
      // What waits goes on waiting in a larger ring.
      if (const std::size_t room = std::bit_ceil(nodes + 1); room > s.queue.size()) {
        std::rotate(s.queue.begin(), s.queue.begin() + std::ptrdiff_t(block.head), s.queue.end());
        s.queue.resize(room);
        block.head = 0;
        block.ring = room - 1;
        block.queue = s.queue.data();
      }
      block.touched = s.touched.data();
      block.is_touched = s.is_touched.data();
      if (block.touches > block.touched_room) block.touches = nodes + 1;  // not all are listed
      block.touched_room = s.touched.size() - 1;
      s.of = this;
      s.ground = &ground_;
      s.channel = c;
      s.number = b;
      block.gamma = ground_.channels[c].spec.gamma;
      block.steepness = Real(std::abs(block.gamma) * (1 + 4 * Precision<Real>::kUlp));
      block.owner = &s;
      block.rewrite = [](void* owner, Node node) {
        const State& of = *static_cast<State*>(owner);
        of.of->rewrite_node(*of.ground, of.channel, of.number, node);
      };
      block.interrupted = [](void* owner) {
        Propagator& of = *static_cast<State*>(owner)->of;
        return of.interruptible_ && of.interrupt_.check();
      };
    }
  }
}

// Brings what depends on the largest feature and the lightest edge up to date; limits then have to
// be set.
template <class Real>
bool Propagator<Real>::set_precision(const Lane& lane) {
  Ground<Real>& ground = lane.ground;
  if (!ground.set_precision()) return false;
  ground.versions.set_lightest_accepted(ground.lightest_accepted(ground.peak));
  for (const std::size_t item : lane.items) {
    Block<Real>& block = states_[item].block;
    const Channel& channel = ground.channels[item / blocks_.size()];
    block.relaxation = Real(channel.omega);
    block.noise = channel.noise;
  }
  return true;
}

template <class Real>
void Propagator<Real>::set_limits(const Ground<Real>& ground, std::size_t c, std::size_t b) {
  Block<Real>& block = state(c, b).block;
  for (std::size_t node = 0; node < ground.versions.nodes(); ++node)
    block.bounds[node].limit = ground.limit(c, Node(node));
}

// The largest feature of the nodes [first, last), in units of its threshold.
template <class Real>
double Propagator<Real>::peak_of(std::size_t first, std::size_t last) const {
  constexpr std::size_t kChunk = 1024;
  std::vector<double> found((last - first + kChunk - 1) / kChunk, 0.0);
  parallel_for(found.size(), settings_.threads, [&](std::size_t chunk) {
    Real x[kMaxWidth];
    const std::size_t begin = first + chunk * kChunk;
    for (std::size_t node = begin; node < std::min(last, begin + kChunk); ++node)
      for (std::size_t b = 0; b < blocks_.size(); ++b) {
        features_.read(b, Node(node), x);
        for (std::size_t i = 0; i < blocks_[b].width; ++i)
          found[chunk] = std::max(found[chunk], std::abs(double(x[i])));
      }
  });
  return found.empty() ? 0 : *std::max_element(found.begin(), found.end());
}

// The same of features that an update brings.
template <class Real>
double Propagator<Real>::peak_of(const Update& update) const {
  double peak = 0;
  for (const std::span<const double> rows : {update.new_features, update.feature_values})
    for (std::size_t i = 0; i < rows.size(); ++i)
      peak = std::max(peak, std::abs(rows[i] / thresholds_[i % columns()]));
  if (update.new_nodes && update.new_features.empty() &&
      settings_.features.kind == FeatureSource::Kind::sketched)
    peak = std::max(peak, peak_of(nodes(), nodes() + update.new_nodes));
  return peak;
}

template <class Real>
void Propagator<Real>::complete() {
  if (!unsettled_.exchange(false)) return;
  for_items(whole(), [&](std::size_t c, std::size_t b) { settle(ground_, c, b); });
  if (!unsettled_) forget_touched();
}

// Calls work(range) for the nodes from `first` on, up to kRange of them, with what their residuals
// follow from.
template <class Real>
template <class Work>
void Propagator<Real>::with_range(const Ground<Real>& ground, std::size_t c, std::size_t b,
                                  std::size_t first, Work work) {
  const std::size_t last = std::min(ground.versions.nodes(), first + kRange);
  std::vector<double> pivots, powers;
  for (std::size_t node = first; node < last; ++node) {
    pivots.push_back(ground.pivot(c, Node(node)));
    powers.push_back(power(ground.view(c).degree(Node(node)), ground.channels[c].spec.beta));
  }
  FeatureRows<Real> features = state(c, b).block.features;
  typename Features<Real>::Reader reader;  // threads must not share one
  if (!features.kept) {
    reader.open(features_, b);
    features.reader = &reader;
  }
  work(Range<Real>{first, last, pivots.data(), powers.data(), features});
}

template <class Real>
template <class Work>
void Propagator<Real>::for_ranges(std::size_t c, std::size_t b, Work work) {
  parallel_for((nodes() + kRange - 1) / kRange, settings_.threads,
               [&](std::size_t i) { with_range(ground_, c, b, i * kRange, work); });
}

template <class Real>
void Propagator<Real>::rewrite_node(const Ground<Real>& ground, std::size_t c, std::size_t b,
                                    Node node) {
  Block<Real>& block = state(c, b).block;
  const double pivot = ground.pivot(c, node),
               of_degree = power(ground.view(c).degree(node), ground.channels[c].spec.beta);
  kernels(block).rewrite(
      block, ground.matrix(c),
      {std::size_t(node), std::size_t(node) + 1, &pivot, &of_degree, block.features});
}

// Residuals from the estimates, on this thread.
template <class Real>
void Propagator<Real>::rewrite(const Ground<Real>& ground, std::size_t c, std::size_t b) {
  Block<Real>& block = state(c, b).block;
  const std::size_t nodes = ground.versions.nodes();
  for (std::size_t first = 0; first < nodes; first += kRange)
    with_range(ground, c, b, first, [&](const Range<Real>& range) {
      kernels(block).rewrite(block, ground.matrix(c), range);
    });
  kernels(block).scan(block, 0, nodes, false);
}

template <class Real>
template <class Work>
void Propagator<Real>::for_items(const Lane& lane, Work work) {
  const auto item = [&](std::size_t i) {
    work(lane.items[i] / blocks_.size(), lane.items[i] % blocks_.size());
  };
  const auto waiting = [&] { interrupt_.check(); };
  // References: nothing is allocated.
  parallel_for(lane.items.size(), lane.threads, std::ref(item), std::ref(waiting));
}

template <class Real>
void Propagator<Real>::clear_row(std::size_t c, std::size_t b, Node node) {
  State& s = state(c, b);
  const std::size_t width = blocks_[b].width, first = std::size_t(node) * width;
  std::fill_n(s.estimate.data() + first, width, Real(0));
  std::fill_n(s.residual.data() + first, width, Real(0));
  s.bounds[node].drift = 0;
}

// p = 0 and R = d^beta x: the invariant holds, and everything is still to be pushed.
template <class Real>
void Propagator<Real>::initialise_row(const Ground<Real>& ground, std::size_t c, std::size_t b,
                                      std::size_t node, double degree) {
  State& s = state(c, b);
  const double scale = power(degree, ground.channels[c].spec.beta);
  const std::size_t width = blocks_[b].width;
  const Real* const x = s.features.row(Node(node));
  Real largest = 0;
  for (std::size_t i = 0; i < width; ++i) {
    const Real residual = Real(scale * double(x[i]));
    s.estimate.data()[node * width + i] = 0;
    s.residual.data()[node * width + i] = residual;
    largest = std::max(largest, std::abs(residual));
  }
  s.bounds[node].limit = ground.limit(c, Node(node));
  s.bounds[node].drift = Real(4 * Precision<Real>::kUlp) * largest;
}

template <class Real>
void Propagator<Real>::initialise(const Ground<Real>& ground, std::size_t c, std::size_t b) {
  for (std::size_t node = 0; node < ground.versions.nodes(); ++node)
    initialise_row(ground, c, b, node, ground.view(c).degree(Node(node)));
  kernels(state(c, b).block).scan(state(c, b).block, 0, ground.versions.nodes(), true);
}

// The first propagation over a large graph, where almost every node is above its limit: instead of
// pushing one by one all are moved at once, by rows, which threads share out among nodes and which
// reads the graph in its order. The residuals take turns with the estimates as their next values.
template <class Real>
void Propagator<Real>::sweep(std::size_t c, std::size_t b) {
  State& s = state(c, b);
  Block<Real>& block = s.block;
  const Matrix of = ground_.matrix(c);
  const std::size_t width = block.width;
  for_ranges(c, b, [&](const Range<Real>& range) {
    for (std::size_t node = range.first; node < range.last; ++node) {
      const Real* const x = range.features.kept
                                ? range.features.kept + node * width
                                : range.features.read(range.features.reader, Node(node));
      const double pivot = range.pivot[node - range.first];
      const double scale = pivot > 0 ? range.power[node - range.first] / pivot : 0;
      for (std::size_t i = 0; i < width; ++i)
        block.estimate[node * width + i] = Real(scale * double(x[i]));
    }
  });
  // All nodes may stay above for a while; once fewer are, ever fewer must be.
  std::size_t before = nodes(), above = nodes();
  for (int round = 0; round < kMaxSweeps && above > nodes() / kSweptShare && !interrupt_.check();
       ++round) {
    std::atomic<std::size_t> found{0};
    for_ranges(c, b, [&](const Range<Real>& range) {
      found += kernels(block).sweep(block, of, range, block.residual);
    });
    before = std::exchange(above, found);
    std::swap(s.estimate, s.residual);
    std::swap(block.estimate, block.residual);
    ++sweeps_;
    if (above >= before && before < nodes()) break;
  }
  for_ranges(c, b, [&](const Range<Real>& range) { kernels(block).rewrite(block, of, range); });
}

template <class Real>
void Propagator<Real>::load(const Rows& rows, std::optional<std::int64_t> end) {
  constexpr std::size_t kPiece = 1 << 16;  // staging takes memory per row
  ground_.events += rows.size();
  if (ground_.versions.load(rows, end)) return;
  std::size_t first = 0;
  do {
    const Rows piece = rows.slice(first, std::min(rows.size(), first + kPiece));
    const std::optional<std::int64_t> then = piece.t.empty() ? end : std::optional(piece.t.back());
    ground_.versions.count_rows_from(first);
    ground_.versions.check(piece, 0, {}, then);
    ground_.versions.pass_time(then);
    ground_.versions.change(piece, 0, {});
    first += kPiece;
  } while (first < rows.size());
  ground_.versions.count_rows_from(0);
}

template <class Real>
void Propagator<Real>::start() {
  started_ = true;
  resize(nodes());
  set_precision(whole());
  for (std::size_t c = 0; c < channels(); ++c) ground_.set_pivots(c);
  for_items(whole(), [&](std::size_t c, std::size_t b) { set_limits(ground_, c, b); });
  const bool wide = nodes() >= settings_.sweep_nodes;
  for (std::size_t item = 0; wide && item < states_.size(); ++item)
    sweep(item / blocks_.size(), item % blocks_.size());
  for_items(whole(), [&](std::size_t c, std::size_t b) {
    Block<Real>& block = state(c, b).block;
    if (wide)
      kernels(block).scan(block, 0, nodes(), true);
    else
      initialise(ground_, c, b);
    settle(ground_, c, b);
  });
  forget_touched();
}

template <class Real>
void Propagator<Real>::apply(const Update& update) {
  for (const std::int64_t node : update.feature_nodes) {
    if (node < 0 || std::size_t(node) >= nodes())
      throw EventError("feature_nodes names node " + std::to_string(node) +
                       ", but there are nodes 0 to " + std::to_string(std::int64_t(nodes()) - 1));
    if (ground_.versions.removed(Node(node)))
      throw EventError("feature_nodes names node " + std::to_string(node) + ", which was removed");
  }
  const double peak = std::max(ground_.peak, peak_of(update));
  if (peak > ground_.peak && !(ground_.finest(peak) <= ground_.tolerance))
    throw PrecisionError(
        "features as large as " + number(peak) +
        " times their threshold ask for more than the precision can hold, which is " +
        number(ground_.tolerance / ground_.finest(1)) + " times");
  // Large features and light edges each ask for precision, and may come together.
  ground_.versions.set_lightest_accepted(ground_.lightest_accepted(peak));
  try {
    ground_.versions.check(update.rows, update.new_nodes, update.removed_nodes, update.end);
  } catch (...) {
    ground_.versions.set_lightest_accepted(ground_.lightest_accepted(ground_.peak));
    throw;
  }
  ground_.peak = peak;
  step(whole(), update);
  unite_touched(0, update);
  drop_logs(1);
  std::sort(touched_.begin(), touched_.end());
}

template <class Real>
std::size_t Propagator<Real>::apply_steps(const Rows& rows, std::span<const std::int64_t> offsets,
                                          std::span<std::int64_t> counts, Refusal& refusal,
                                          const std::function<bool(std::size_t)>& after) {
  const std::size_t steps = std::max<std::size_t>(offsets.size(), 1) - 1;
  const auto update_of = [&](std::size_t s) {
    Update update;
    update.rows = rows.slice(std::size_t(offsets[s]), std::size_t(offsets[s + 1]));
    if (!update.rows.t.empty()) update.end = update.rows.t.back();
    return update;
  };
  struct Progress {
    std::size_t done = 0;
    Refusal refusal;
  };
  const auto behind_of = [](const Progress& a, const Progress& b) { return a.done < b.done; };
  // Until there is much to unite, or it is interrupted.
  const auto go_on = [&](const Lane& lane, Progress& progress, std::size_t last) {
    while (progress.done < last && progress.refusal.empty() && !logged_much(lane)) {
      const Update update = update_of(progress.done);
      try {
        lane.ground.versions.check(update.rows, 0, {}, update.end);
      } catch (const EventError& error) {
        progress.refusal = {error.what(), false};
        return;
      } catch (const PrecisionError& error) {
        progress.refusal = {error.what(), true};
        return;
      }
      step(lane, update);
      ++progress.done;
      if (lane.items.size() == items_.size() && interrupt_.check()) return;
    }
  };
  const Lanes lanes(*this, after ? 1 : lanes_for(steps));
  std::vector<Progress> progress(lanes.size());
  // Lanes must end at the same step, and whoever looks on must see every step whole.
  const Uninterrupted within(*this, after || lanes.size() > 1);
  for (std::size_t done = 0;;) {
    std::size_t last = std::min(steps, done + (after ? 1 : kLoggedSteps));
    const bool stopping = interrupt_.check();
    if (stopping) last = std::max_element(progress.begin(), progress.end(), behind_of)->done;
    parallel_for(
        lanes.size(), settings_.threads, [&](std::size_t l) { go_on(lanes[l], progress[l], last); },
        [&] { interrupt_.check(); });
    // One lane may be ahead of another. All come to the same refusal, if to any.
    const auto behind = std::min_element(progress.begin(), progress.end(), behind_of);
    for (std::size_t s = done; s < behind->done; ++s) {
      unite_touched(s - done, update_of(s));
      counts[s] = std::int64_t(touched_.size());
    }
    drop_logs(behind->done - done);
    const bool applied = behind->done > done;
    done = behind->done;
    if (after && applied && !after(done - 1)) return done;
    if (done == steps || (stopping && done == last)) return done;
    const bool refused = std::all_of(progress.begin(), progress.end(),
                                     [](const Progress& each) { return !each.refusal.empty(); });
    if (!refused) continue;
    refusal = behind->refusal;
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
      for (std::size_t b = 0; b < blocks_.size(); ++b) {
        features_.read(b, node, row);
        for (std::size_t i = 0; i < blocks_[b].count; ++i)
          feature_change_[f * columns() + blocks_[b].first + i] += sign * double(row[i]);
      }
    };
    add(-1);
    features_.write(node, update.feature_values.data() + f * columns());
    add(+1);
  }
  for_items(whole(), [&](std::size_t c, std::size_t b) {
    const Channel& channel = ground_.channels[c];
    Block<Real>& block = state(c, b).block;
    for (std::size_t f = 0; f < update.feature_nodes.size(); ++f) {
      const Node node = Node(update.feature_nodes[f]);
      const double scale = power(ground_.view(c).degree(node), channel.spec.beta);
      const double* const change = feature_change_.data() + f * columns() + blocks_[b].first;
      Real* const r = block.residual + std::size_t(node) * block.width;
      Real largest = 0;
      for (std::size_t i = 0; i < blocks_[b].count; ++i) {
        r[i] = Real(double(r[i]) + scale * change[i]);
        largest = std::max(largest, std::abs(r[i]));
      }
      block.bounds[node].drift +=
          Real(4 * Precision<Real>::kUlp) * largest + Real(0x1p-49 * scale * ground_.peak);
      kernels(block).scan(block, node, std::size_t(node) + 1, false);
    }
  });
}

// One step, already checked: nothing below may fail. New nodes and features are for all lanes at
// once.
template <class Real>
void Propagator<Real>::step(const Lane& lane, const Update& update) {
  Ground<Real>& ground = lane.ground;
  if (!update.feature_nodes.empty()) change_features(update);
  ground.versions.pass_time(update.end);
  const std::size_t before = ground.versions.nodes();
  ground.versions.change(update.rows, update.new_nodes, update.removed_nodes);
  ground.events += update.rows.size();
  if (update.new_nodes) {
    resize(nodes());
    set_features(before, update.new_features);
  }
  for (const std::int64_t node : update.removed_nodes) features_.clear(Node(node));
  const bool stricter = set_precision(lane);
  for (std::size_t c = 0; c < ground.channels.size(); ++c) ground.prepare(c, before);
  const std::size_t now = ground.versions.nodes();
  for_items(lane, [&](std::size_t c, std::size_t b) {
    State& s = state(c, b);
    for (std::size_t node = before; node < now; ++node)
      initialise_row(ground, c, b, node, ground.versions.stored_loop(ground.view(c), Node(node)));
    correct(ground, c, b);
    for (const auto& [node, whole, loop_before, loop_after] :
         ground.versions.swept(ground.view(c).version())) {
      if (whole) continue;  // corrected above
      s.bounds[node].limit = ground.limit(c, node);
      if (ground.view(c).degree(node) > 0)
        rewrite_node(ground, c, b, node);
      else  // told exactly; what comes next begins from zero
        clear_row(c, b, node);
      kernels(s.block).scan(s.block, node, std::size_t(node) + 1, true);
    }
    if (stricter) set_limits(ground, c, b);
    kernels(s.block).scan(s.block, stricter ? 0 : before, now, false);
    settle(ground, c, b);
    s.log_begins.push_back(s.log.size());
    log_touched(s);
  });
}

template <class Real>
void Propagator<Real>::correct(const Ground<Real>& ground, std::size_t c, std::size_t b) {
  const Channel& channel = ground.channels[c];
  Block<Real>& block = state(c, b).block;
  kernels(block).correct(block, channel.moved.data(), channel.moved.size(),
                         ground.view(c).terms().data());
}

// Empties the list of a block into its log. On the thread that filled it, to which its memory is
// near: the lists of a step are united when there are many.
template <class Real>
void Propagator<Real>::log_touched(State& s) {
  Block<Real>& block = s.block;
  const auto take = [&](Node node) {
    s.is_touched[node] = 0;
    s.log.push_back(node);
  };
  if (block.touches <= block.touched_room) {
    for (std::size_t i = 0; i < block.touches; ++i) take(block.touched[i]);
  } else {
    for (std::size_t node = 0; node < s.is_touched.size(); ++node)
      if (s.is_touched[node]) take(Node(node));
  }
  block.touches = 0;
}

template <class Real>
void Propagator<Real>::forget_touched() {
  for (State& s : states_) {
    std::fill(s.is_touched.begin(), s.is_touched.end(), std::uint8_t(0));
    s.block.touches = 0;
  }
}

// The nodes that a step in the logs touched, in any block or by name.
template <class Real>
void Propagator<Real>::unite_touched(std::size_t step, const Update& update) {
  touched_.clear();
  const auto touch = [&](Node node) {
    if (is_touched_[node]) return;
    is_touched_[node] = 1;
    touched_.push_back(node);
  };
  for (const State& s : states_) {
    const std::size_t last = step + 1 < s.log_begins.size() ? s.log_begins[step + 1] : s.log.size();
    for (std::size_t i = s.log_begins[step]; i < last; ++i) touch(s.log[i]);
  }
  for (const std::int64_t node : update.rows.src) touch(Node(node));
  for (const std::int64_t node : update.rows.dst) touch(Node(node));
  for (const std::int64_t node : update.feature_nodes) touch(Node(node));
  for (std::size_t node = nodes() - update.new_nodes; node < nodes(); ++node) touch(Node(node));
  for (const Node node : touched_) is_touched_[node] = 0;
}

template <class Real>
bool Propagator<Real>::logged_much(const Lane& lane) const {
  return std::any_of(lane.items.begin(), lane.items.end(),
                     [&](std::size_t item) { return states_[item].log.size() > kLoggedNodes; });
}

// Forgets the first steps in the logs.
template <class Real>
void Propagator<Real>::drop_logs(std::size_t steps) {
  for (State& s : states_) {
    const std::size_t end = steps < s.log_begins.size() ? s.log_begins[steps] : s.log.size();
    s.log.erase(s.log.begin(), s.log.begin() + std::ptrdiff_t(end));
    s.log_begins.erase(s.log_begins.begin(), s.log_begins.begin() + std::ptrdiff_t(steps));
    for (std::size_t& begin : s.log_begins) begin -= end;
  }
}

// ---- lanes
// --------------------------------------------------------------------------------------------------------

// How many lanes a call of so many steps is worth: each further one copies the ground, which must
// neither take much memory nor longer than not waiting for each other saves.
template <class Real>
std::size_t Propagator<Real>::lanes_for(std::size_t steps) const {
  const std::size_t most = std::min(states_.size(), std::size_t(std::max(settings_.threads, 1)));
  const std::size_t bytes = ground_.bytes();
  if (most < 2 || bytes == 0 || bytes > steps * kCopiedPerStep) return 1;
  const std::size_t room = std::max(kSmallCopies, statistics().state_bytes / 8);
  return std::min(most, 1 + room / bytes);
}

template <class Real>
Propagator<Real>::Lanes::Lanes(Propagator& of, std::size_t count)
    : of_(of), copies_(count - 1), items_(count) {
  parallel_for(copies_.size(), of.settings_.threads,
               [&](std::size_t i) { copies_[i] = std::make_unique<Ground<Real>>(of.ground_); });
  for (const std::size_t item : of.items_) {
    items_[item % count].push_back(item);
    of.stand(item, ground(item % count));
  }
}

template <class Real>
Propagator<Real>::Lanes::~Lanes() {
  for (const std::size_t item : of_.items_) of_.stand(item, of_.ground_);
}

// Has a state read its pivots, and what its residuals follow from, there.
template <class Real>
void Propagator<Real>::stand(std::size_t item, const Ground<Real>& ground) {
  states_[item].ground = &ground;
  states_[item].block.pivot = ground.channels[item / blocks_.size()].pivot.data();
}

// ---- reading
// --------------------------------------------------------------------------------------------------------

template <class Real>
template <class Visit>
void Propagator<Real>::for_nodes(std::span<const std::int64_t> nodes, Visit visit) const {
  constexpr std::size_t kChunk = 1024;
  const std::function<void(std::size_t)> chunk = [&](std::size_t i) {
    for (std::size_t k = i * kChunk; k < std::min(nodes.size(), (i + 1) * kChunk); ++k)
      for (std::size_t c = 0; c < channels(); ++c) visit(k, Node(nodes[k]), c);
  };
  parallel_for((nodes.size() + kChunk - 1) / kChunk, settings_.threads, chunk);
}

template <class Real>
void Propagator<Real>::embedding(std::span<const std::int64_t> nodes, std::span<Real> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const Channel& channel = ground_.channels[c];
    const double degree = ground_.view(c).degree(node);
    const double scale = channel.spec.gamma0 * power(degree, 1 - channel.spec.beta);
    Real* const row = out.data() + (k * channels() + c) * columns();
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const auto [first, count, width] = blocks_[b];
      const Real* const p = state(c, b).estimate.data() + std::size_t(node) * width;
      if (degree > 0) {
        for (std::size_t i = 0; i < count; ++i)
          row[first + i] = Real(double(p[i]) * scale * thresholds_[first + i]);
        continue;
      }
      Real x[kMaxWidth];
      features_.read(b, node, x);
      for (std::size_t i = 0; i < count; ++i)
        row[first + i] = Real(channel.spec.gamma0 * double(x[i]) * thresholds_[first + i]);
    }
  });
}

template <class Real>
void Propagator<Real>::finish(std::span<Real> out) {
  for (State& s : states_) {
    s.residual = {};
    s.block.residual = nullptr;
  }
  std::vector<std::int64_t> all(nodes());
  std::iota(all.begin(), all.end(), std::int64_t(0));
  embedding(all, out);
}

template <class Real>
void Propagator<Real>::residual(std::span<const std::int64_t> nodes, std::span<Real> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const Channel& channel = ground_.channels[c];
    const double degree = ground_.view(c).degree(node);
    const double scale = degree > 0 ? 1 / power(degree, channel.spec.beta) : 0;
    Real* const row = out.data() + (k * channels() + c) * columns();
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const Real* const r = state(c, b).residual.data() + std::size_t(node) * blocks_[b].width;
      for (std::size_t i = 0; i < blocks_[b].count; ++i)
        row[blocks_[b].first + i] = Real(double(r[i]) * scale * thresholds_[blocks_[b].first + i]);
    }
  });
}

template <class Real>
void Propagator<Real>::features(std::span<const std::int64_t> nodes, std::span<double> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    if (c) return;
    Real row[kMaxWidth];
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const std::size_t first = blocks_[b].first;
      features_.read(b, node, row);
      for (std::size_t i = 0; i < blocks_[b].count; ++i)
        out[k * columns() + first + i] = double(row[i]) * thresholds_[first + i];
    }
  });
}

template <class Real>
void Propagator<Real>::degree(std::span<const std::int64_t> nodes, std::span<double> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const View& matrix = ground_.view(c);
    out[k * channels() + c] = matrix.degree(node) / ground_.versions.present(matrix.version());
  });
}

// How far a node without a degree, which is told exactly, may be off by rounding: [columns].
template <class Real>
void Propagator<Real>::isolated(Node node, std::size_t c, double* row) const {
  Real x[kMaxWidth];
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    features_.read(b, node, x);
    for (std::size_t i = 0; i < blocks_[b].count; ++i) {
      const std::size_t column = blocks_[b].first + i;
      row[column] = isolated_error<Real>(
          std::abs(ground_.channels[c].spec.gamma0 * double(x[i]) * thresholds_[column]));
    }
  }
}

template <class Real>
void Propagator<Real>::threshold(std::span<const std::int64_t> nodes, std::span<double> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const auto& spec = ground_.channels[c].spec;
    const View& matrix = ground_.view(c);
    const double degree = matrix.degree(node) / ground_.versions.present(matrix.version());
    const double scale = ground_.tolerance * power(degree, 1 - spec.beta) * std::abs(spec.gamma0) /
                         (1 - std::abs(spec.gamma));
    double* const row = out.data() + (k * channels() + c) * columns();
    for (std::size_t i = 0; i < columns(); ++i) row[i] = scale * thresholds_[i];
    if (degree <= 0) isolated(node, c, row);
  });
}

template <class Real>
typename Propagator<Real>::Certificate Propagator<Real>::certify() {
  const std::size_t padded = blocks_.back().first + blocks_.back().width;
  Certificate certificate;
  certificate.ratio.resize(channels() * padded);
  certificate.drift.resize(states_.size());
  certificate.untracked.resize(states_.size());
  certificate.excess.resize(states_.size());
  std::mutex joining;
  // A value that is not a number wins, so that a certificate cannot miss it.
  const auto raise = [](double& to, double value) {
    if (!(value <= to) && !std::isnan(to)) to = value;
  };
  for (std::size_t item = 0; item < states_.size(); ++item) {
    const std::size_t c = item / blocks_.size(), b = item % blocks_.size();
    const Block<Real>& block = state(c, b).block;
    std::vector<double> largest(block.width, 0.0);
    for_ranges(c, b, [&](const Range<Real>& range) {
      std::vector<double> found(block.width, 0.0);
      kernels(block).peak(block, range.first, range.last, found.data());
      const std::lock_guard lock(joining);
      for (std::size_t i = 0; i < block.width; ++i) raise(largest[i], found[i]);
    });
    for_ranges(c, b, [&](const Range<Real>& range) {
      std::vector<double> ratio(block.width, 0.0);
      Measured measured{ratio.data(), 0, 0, 0};
      kernels(block).measure(block, ground_.matrix(c), range, largest.data(), measured);
      const std::lock_guard lock(joining);
      for (std::size_t i = 0; i < block.width; ++i)
        raise(certificate.ratio[c * padded + blocks_[b].first + i], ratio[i]);
      raise(certificate.drift[item], measured.drift);
      raise(certificate.untracked[item], measured.untracked);
      raise(certificate.excess[item], measured.excess);
    });
  }
  return certificate;
}

template <class Real>
void Propagator<Real>::error_bound(std::span<const std::int64_t> nodes, std::span<double> out) {
  const Certificate certificate = certify();
  const std::size_t padded = certificate.ratio.size() / channels();
  std::vector<Real> estimates(nodes.size() * channels() * columns());
  embedding(nodes, estimates);
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const auto& spec = ground_.channels[c].spec;
    // max |r| / d^(1-beta) = max |R| / d; times d^(1-beta) the units of the graph cancel.
    const double degree = ground_.view(c).degree(node);
    const double scale =
        power(degree, 1 - spec.beta) * std::abs(spec.gamma0) / (1 - std::abs(spec.gamma));
    const std::size_t at = (k * channels() + c) * columns();
    if (degree <= 0) return isolated(node, c, out.data() + at);
    for (std::size_t i = 0; i < columns(); ++i)
      out[at + i] = kRoundUp * (scale * certificate.ratio[c * padded + i] * thresholds_[i] +
                                Precision<Real>::kReading * std::abs(double(estimates[at + i])) +
                                kSmallest<Real>);
  });
}

template <class Real>
typename Propagator<Real>::Audit Propagator<Real>::audit() {
  const Certificate certificate = certify();
  Audit audit;
  for (std::size_t c = 0; c < channels(); ++c) {
    const auto worst = [&](const std::vector<double>& values) {
      const auto first = values.begin() + std::ptrdiff_t(c * blocks_.size());
      return *std::max_element(first, first + std::ptrdiff_t(blocks_.size()));
    };
    audit.drift.push_back(worst(certificate.drift));
    audit.residual.push_back(worst(certificate.excess));
    audit.untracked.push_back(worst(certificate.untracked));
  }
  return audit;
}

template <class Real>
void Propagator<Real>::repair() {
  for_items(whole(), [&](std::size_t c, std::size_t b) {
    rewrite(ground_, c, b);
    settle(ground_, c, b);
  });
  if (!unsettled_) forget_touched();
}

// Pushes until nothing waits, or until it is interrupted.
template <class Real>
void Propagator<Real>::settle(const Ground<Real>& ground, std::size_t c, std::size_t b) {
  Block<Real>& block = state(c, b).block;
  block.most_pushes = std::uint64_t(ground.channels[c].rounds) * (block.nodes + 1);
  kernels(block).settle(block, ground.matrix(c));
  if (block.queued) unsettled_ = true;
}

template <class Real>
void Propagator<Real>::refine(double factor) {
  ground_.tolerance = factor;
  set_precision(whole());
  for_items(whole(), [&](std::size_t c, std::size_t b) {
    set_limits(ground_, c, b);
    kernels(state(c, b).block).scan(state(c, b).block, 0, nodes(), false);
    settle(ground_, c, b);
  });
  if (!unsettled_) forget_touched();
}

template <class Real>
double Propagator<Real>::finest_tolerance(double peak) const {
  return ground_.finest(std::max(peak, ground_.peak));
}

template <class Real>
typename Propagator<Real>::Statistics Propagator<Real>::statistics() const {
  Statistics statistics;
  statistics.events = ground_.events;
  statistics.correction_rows = ground_.correction_rows;
  statistics.sweeps = sweeps_;
  statistics.graph_bytes = ground_.versions.bytes();
  statistics.edges = ground_.versions.edges();
  for (const State& s : states_) {
    statistics.pushes += s.block.pushes;
    statistics.edge_pushes += s.block.edge_pushes;
    statistics.stalled += s.block.stalled;
    statistics.rewrites += s.block.rewrites;
    statistics.most_pushes += std::uint64_t(ground_.channels[s.channel].rounds) * (nodes() + 1);
    statistics.state_bytes += s.bounds.size() * sizeof(Bounds<Real>) + s.estimate.bytes() +
                              s.residual.bytes() + s.features.bytes() + s.is_touched.size() +
                              (s.queue.size() + s.touched.size() + s.log.capacity()) * sizeof(Node);
  }
  statistics.state_bytes += features_.bytes() + ground_.bytes() - ground_.versions.bytes();
  return statistics;
}

template <class Real>
void Propagator<Real>::archive(Archive& archive) {
  if (archive.reading()) {
    started_ = true;
    features_.archive(archive);
    resize(nodes());
  } else {
    features_.archive(archive);
  }
  ground_.versions.archive(archive);
  archive.scalar("tolerance", ground_.tolerance);
  archive.scalar("peak", ground_.peak);
  archive.scalar("events", ground_.events);
  archive.scalar("correction_rows", ground_.correction_rows);
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const std::string name = "block" + std::to_string(b);
    const std::size_t size = nodes() * blocks_[b].width;
    for (std::size_t c = 0; c < channels(); ++c) {
      State& s = state(c, b);
      const std::string part = name + ".channel" + std::to_string(c);
      archive.lasting(part + ".estimate", s.estimate.data(), size);
      archive.lasting(part + ".residual", s.residual.data(), size);
      std::vector<Real> drift(nodes());
      for (std::size_t node = 0; node < nodes(); ++node) drift[node] = s.bounds[node].drift;
      archive.block(part + ".drift", drift.data(), drift.size());
      for (std::size_t node = 0; node < nodes(); ++node) s.bounds[node].drift = drift[node];
      std::uint64_t counters[] = {s.block.pushes, s.block.edge_pushes, s.block.rewrites,
                                  s.block.stalled};
      archive.block(part + ".counters", counters, 4);
      s.block.pushes = counters[0];
      s.block.edge_pushes = counters[1];
      s.block.rewrites = counters[2];
      s.block.stalled = counters[3];
    }
  }
  if (!archive.reading()) return;
  set_precision(whole());
  for (std::size_t c = 0; c < channels(); ++c) {
    ground_.set_pivots(c);
    for (std::size_t b = 0; b < blocks_.size(); ++b) set_limits(ground_, c, b);
  }
}

template class Propagator<float>;
template class Propagator<double>;

}  // namespace tidegraph
