// Construction, the first propagation, and what brings every block to its limits.
#include "propagator.hpp"

#include <algorithm>
#include <cmath>

#include "parallel.hpp"

namespace tidegraph {

template <class Real>
Propagator<Real>::Propagator(Settings settings, std::size_t nodes,
                             std::span<const double> thresholds)
    : settings_(std::move(settings)),
      state_(Versions(nodes, settings_.directed, settings_.self_loop, Precision<Real>::kForgotten,
                      settings_.versions, settings_.views),
             settings_.scale_by_degree),
      thresholds_(thresholds.begin(), thresholds.end()),
      columns_(divide_columns(columns(), sizeof(Real), settings_.block_columns)),
      features_(settings_.features, columns_, thresholds_),
      blocks_(settings_.channels.size() * columns_.size()) {
  for (const ChannelSpec& spec : settings_.channels) state_.add_channel(spec);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const std::size_t channel = i / columns_.size(), number = i % columns_.size();
    blocks_[i].open(channel, number, columns_[number], features_, state_, interrupt_);
    all_blocks_.push_back(&blocks_[i]);
  }
  resize(nodes);
}

template <class Real>
void Propagator<Real>::require_intact() const {
  if (broken_)
    throw BrokenError(
        "an earlier call failed half-way, probably for lack of memory, and left this propagator "
        "incomplete: load a saved state or make a new propagator");
}

template <class Real>
void Propagator<Real>::set_features(std::size_t first, std::span<const double> rows) {
  for (std::size_t row = 0; row < rows.size() / columns(); ++row)
    features_.write(Node(first + row), rows.data() + row * columns());
}

template <class Real>
void Propagator<Real>::resize(std::size_t nodes) {
  features_.resize(nodes);
  state_.resize();
  touched_.resize(nodes);
  // No rows before start(): loading a graph needs memory of its own for a while.
  for (BlockState<Real>& block : blocks_) block.resize(nodes, started_);
}

// Updates what depends on the largest feature and the lightest edge; returns whether limits must be
// set.
template <class Real>
bool Propagator<Real>::set_precision(const Replica<Real>& replica) {
  ChannelState<Real>& state = replica.state;
  if (!state.set_precision()) return false;
  state.versions.set_lightest_accepted(state.lightest_accepted(state.peak));
  for (BlockState<Real>* const block : replica.blocks) block->set_precision();
  return true;
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
      for (std::size_t b = 0; b < columns_.size(); ++b) {
        features_.read(b, Node(node), x);
        for (std::size_t i = 0; i < columns_[b].width; ++i)
          found[chunk] = std::max(found[chunk], std::abs(double(x[i])));
      }
  });
  return found.empty() ? 0 : *std::max_element(found.begin(), found.end());
}

// The same for the features of an update.
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
template <class Prepare>
void Propagator<Real>::converge_all(Prepare prepare) {
  const Changing changing(*this);
  for_blocks(all(), [&](BlockState<Real>& block) {
    prepare(block);
    if (!block.converge()) incomplete_ = true;
  });
}

template <class Real>
void Propagator<Real>::discard_touched() {
  for (BlockState<Real>& block : blocks_) block.discard_touched();
}

template <class Real>
void Propagator<Real>::complete() {
  require_intact();
  if (!incomplete_.exchange(false)) return;
  converge_all([](BlockState<Real>&) {});
  if (!incomplete_) discard_touched();
}

template <class Real>
void Propagator<Real>::load(const Rows& rows, std::optional<std::int64_t> end) {
  constexpr std::size_t kPiece = 1 << 16;  // staging takes memory per row
  const Changing changing(*this);
  state_.events += rows.size();
  if (state_.versions.load(rows, end)) return;
  std::size_t first = 0;
  do {
    const Rows piece = rows.slice(first, std::min(rows.size(), first + kPiece));
    const std::optional<std::int64_t> then = piece.t.empty() ? end : std::optional(piece.t.back());
    state_.versions.count_rows_from(first);
    state_.versions.check(piece, 0, {}, then);
    state_.versions.pass_time(then);
    state_.versions.change(piece, 0, {});
    first += kPiece;
  } while (first < rows.size());
  state_.versions.count_rows_from(0);
}

template <class Real>
void Propagator<Real>::attach_base(const CompactLists& sources, const CompactLists& targets,
                                   std::size_t edges, const Entries& selves) {
  const Changing changing(*this);
  state_.versions.attach_base(sources, targets, edges, selves);
}

template <class Real>
void Propagator<Real>::start() {
  const Changing changing(*this);
  started_ = true;
  resize(nodes());
  set_precision(all());
  for (std::size_t c = 0; c < channels(); ++c) state_.set_pivots(c);
  for_blocks(all(), [](BlockState<Real>& block) { block.set_limits(); });
  const bool sweeps = nodes() >= settings_.sweep_nodes;
  for (std::size_t i = 0; sweeps && i < blocks_.size(); ++i)
    sweeps_ += blocks_[i].sweep(settings_.threads);
  converge_all([&](BlockState<Real>& block) {
    if (!sweeps) block.initialise();
    block.scan(0, true);
  });
  discard_touched();
}

template <class Real>
void Propagator<Real>::repair() {
  converge_all([](BlockState<Real>& block) {
    block.rewrite();
    block.scan(0, false);
  });
  if (!incomplete_) discard_touched();
}

template <class Real>
void Propagator<Real>::refine(double factor) {
  const Changing changing(*this);
  state_.tolerance = factor;
  set_precision(all());
  converge_all([](BlockState<Real>& block) {
    block.set_limits();
    block.scan(0, false);
  });
  if (!incomplete_) discard_touched();
}

template <class Real>
double Propagator<Real>::finest_tolerance(double peak) const {
  return state_.finest(std::max(peak, state_.peak));
}

template <class Real>
typename Propagator<Real>::Statistics Propagator<Real>::statistics() const {
  Statistics statistics;
  statistics.events = state_.events;
  statistics.correction_rows = state_.correction_rows;
  statistics.sweeps = sweeps_;
  statistics.graph_bytes = state_.versions.bytes();
  statistics.edges = state_.versions.edges();
  for (const BlockState<Real>& block : blocks_) {
    statistics.pushes += block.block().pushes;
    statistics.edge_pushes += block.block().edge_pushes;
    statistics.stalled += block.block().stalled;
    statistics.rewrites += block.block().rewrites;
    statistics.most_pushes +=
        std::uint64_t(state_.channels[block.channel()].rounds) * (nodes() + 1);
    statistics.state_bytes += block.bytes();
  }
  statistics.state_bytes += features_.bytes() + state_.bytes() - state_.versions.bytes();
  return statistics;
}

template <class Real>
void Propagator<Real>::archive(Archive& archive) {
  require_intact();
  std::optional<Changing> changing;
  if (archive.reading()) {
    changing.emplace(*this);
    started_ = true;
    features_.archive(archive);
    resize(nodes());
  } else {
    features_.archive(archive);
  }
  state_.versions.archive(archive);
  archive.scalar("tolerance", state_.tolerance);
  archive.scalar("peak", state_.peak);
  archive.scalar("events", state_.events);
  archive.scalar("correction_rows", state_.correction_rows);
  for (std::size_t b = 0; b < columns_.size(); ++b)
    for (std::size_t c = 0; c < channels(); ++c)
      blocks_[c * columns_.size() + b].archive(
          archive, "block" + std::to_string(b) + ".channel" + std::to_string(c));
  if (!archive.reading()) return;
  set_precision(all());
  for (std::size_t c = 0; c < channels(); ++c) state_.set_pivots(c);
  for (BlockState<Real>& block : blocks_) block.set_limits();
}

template class Propagator<float>;
template class Propagator<double>;

}  // namespace tidegraph
