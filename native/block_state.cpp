#include "block_state.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>
#include <utility>

#include "parallel.hpp"

namespace tidegraph {
namespace {

// Nodes in a range, the unit of work of threads.
constexpr std::size_t kRange = 1 << 13;
// Sweeps end when fewer nodes than this share are above their limit: pushing those costs less than
// another pass over all edges.
constexpr std::size_t kSweptShare = 64;
constexpr int kMaxSweeps = 200;

}  // namespace

template <class Real>
void BlockState<Real>::open(std::size_t channel, std::size_t number, const ColumnBlock& columns,
                            const Features<Real>& features, const ChannelState<Real>& state,
                            Interrupt& interrupt) {
  channel_ = channel;
  number_ = number;
  columns_ = &columns;
  features_ = &features;
  state_ = &state;
  interrupt_ = &interrupt;
  block_.width = columns.width;
  block_.gamma = of_channel().spec.gamma;
  block_.steepness = Real(std::abs(block_.gamma) * (1 + 4 * Precision<Real>::kUlp));
  block_.owner = this;
  block_.rewrite = [](void* owner, Node node) {
    static_cast<BlockState*>(owner)->rewrite_node(node);
  };
  block_.interrupted = [](void* owner) {
    return static_cast<BlockState*>(owner)->interrupt_->check_within_step();
  };
}

template <class Real>
void BlockState<Real>::resize(std::size_t nodes, bool rows) {
  if (rows) {
    estimate_.resize(nodes, columns_->width);
    residual_.resize(nodes, columns_->width);
    bounds_.resize(nodes);
  }
  touched_.resize(nodes, block_.touched);
  block_.nodes = nodes;
  block_.estimate = estimate_.data();
  block_.residual = residual_.data();
  block_.bounds = bounds_.data();
  reader_.open(*features_, number_);
  using Reader = typename Features<Real>::Reader;
  block_.features = {features_->kept(number_), &reader_, [](void* reader, Node node) {
                       return static_cast<Reader*>(reader)->row(node);
                     }};
  // Queued nodes stay queued, in a larger ring.
  if (const std::size_t room = std::bit_ceil(nodes + 1); room > queue_.size()) {
    std::rotate(queue_.begin(), queue_.begin() + std::ptrdiff_t(block_.head), queue_.end());
    queue_.resize(room);
    block_.head = 0;
    block_.ring = room - 1;
    block_.queue = queue_.data();
  }
  attach(*state_);
}

template <class Real>
void BlockState<Real>::attach(const ChannelState<Real>& state) {
  state_ = &state;
  block_.pivot = of_channel().pivot.data();
}

template <class Real>
std::size_t BlockState<Real>::bytes() const {
  return bounds_.size() * sizeof(Bounds<Real>) + estimate_.bytes() + residual_.bytes() +
         reader_.bytes() + queue_.size() * sizeof(Node) + touched_.bytes();
}

template <class Real>
void BlockState<Real>::set_precision() {
  block_.relaxation = Real(of_channel().omega);
  block_.noise = of_channel().noise;
}

template <class Real>
void BlockState<Real>::set_limits() {
  for (std::size_t node = 0; node < nodes(); ++node)
    bounds_[node].limit = state_->limit(channel_, Node(node));
}

template <class Real>
void BlockState<Real>::clear_row(Node node) {
  const std::size_t width = columns_->width, first = std::size_t(node) * width;
  std::fill_n(estimate_.data() + first, width, Real(0));
  std::fill_n(residual_.data() + first, width, Real(0));
  bounds_[node].drift = 0;
}

template <class Real>
void BlockState<Real>::initialise_row(std::size_t node, double degree) {
  const double scale = power(degree, of_channel().spec.beta);
  const std::size_t width = columns_->width;
  const Real* const x = reader_.row(Node(node));
  Real largest = 0;
  for (std::size_t i = 0; i < width; ++i) {
    const Real residual = Real(scale * double(x[i]));
    estimate_.data()[node * width + i] = 0;
    residual_.data()[node * width + i] = residual;
    largest = std::max(largest, std::abs(residual));
  }
  bounds_[node].limit = state_->limit(channel_, Node(node));
  bounds_[node].drift = Real(4 * Precision<Real>::kUlp) * largest;
}

template <class Real>
void BlockState<Real>::initialise() {
  for (std::size_t node = 0; node < nodes(); ++node)
    initialise_row(node, view().degree(Node(node)));
}

template <class Real>
void BlockState<Real>::scan(std::size_t first, bool touch) {
  kernels(block_).scan(block_, first, nodes(), touch);
}

template <class Real>
bool BlockState<Real>::converge() {
  block_.most_pushes = std::uint64_t(of_channel().rounds) * (block_.nodes + 1);
  kernels(block_).converge(block_, state_->matrix(channel_));
  return block_.queued == 0;
}

template <class Real>
template <class Work>
void BlockState<Real>::with_range(std::size_t first, Work work) const {
  const std::size_t last = std::min(nodes(), first + kRange);
  std::vector<double> pivots, powers;
  for (std::size_t node = first; node < last; ++node) {
    pivots.push_back(state_->pivot(channel_, Node(node)));
    powers.push_back(power(view().degree(Node(node)), of_channel().spec.beta));
  }
  FeatureRows<Real> features = block_.features;
  typename Features<Real>::Reader reader;  // threads must not share one
  if (!features.kept) {
    reader.open(*features_, number_);
    features.reader = &reader;
  }
  work(Range<Real>{first, last, pivots.data(), powers.data(), features});
}

template <class Real>
template <class Work>
void BlockState<Real>::for_ranges(int threads, Work work) const {
  parallel_for((nodes() + kRange - 1) / kRange, threads,
               [&](std::size_t i) { with_range(i * kRange, work); });
}

// The residuals and the estimates take turns as the memory of the next estimates.
template <class Real>
std::uint64_t BlockState<Real>::sweep(int threads) {
  const Matrix matrix = state_->matrix(channel_);
  const std::size_t width = columns_->width;
  for_ranges(threads, [&](const Range<Real>& range) {
    for (std::size_t node = range.first; node < range.last; ++node) {
      const Real* const x = range.features.kept
                                ? range.features.kept + node * width
                                : range.features.read(range.features.reader, Node(node));
      const double pivot = range.pivot[node - range.first];
      const double scale = pivot > 0 ? range.power[node - range.first] / pivot : 0;
      for (std::size_t i = 0; i < width; ++i)
        block_.estimate[node * width + i] = Real(scale * double(x[i]));
    }
  });
  // All nodes may stay above their limit for a while; after that their number must fall.
  std::uint64_t sweeps = 0;
  std::size_t before = nodes(), above = nodes();
  for (int round = 0; round < kMaxSweeps && above > nodes() / kSweptShare && !interrupt_->check();
       ++round) {
    std::atomic<std::size_t> found{0};
    for_ranges(threads, [&](const Range<Real>& range) {
      found += kernels(block_).sweep(block_, matrix, range, block_.residual);
    });
    before = std::exchange(above, found);
    std::swap(estimate_, residual_);
    std::swap(block_.estimate, block_.residual);
    ++sweeps;
    if (above >= before && before < nodes()) break;
  }
  for_ranges(threads,
             [&](const Range<Real>& range) { kernels(block_).rewrite(block_, matrix, range); });
  return sweeps;
}

template <class Real>
void BlockState<Real>::rewrite_node(Node node) {
  const double pivot = state_->pivot(channel_, node),
               of_degree = power(view().degree(node), of_channel().spec.beta);
  kernels(block_).rewrite(
      block_, state_->matrix(channel_),
      {std::size_t(node), std::size_t(node) + 1, &pivot, &of_degree, block_.features});
}

template <class Real>
void BlockState<Real>::rewrite() {
  const Matrix matrix = state_->matrix(channel_);
  for (std::size_t first = 0; first < nodes(); first += kRange)
    with_range(first,
               [&](const Range<Real>& range) { kernels(block_).rewrite(block_, matrix, range); });
}

template <class Real>
void BlockState<Real>::change_features(Node node, const double* change) {
  const double scale = power(view().degree(node), of_channel().spec.beta);
  Real* const r = block_.residual + std::size_t(node) * block_.width;
  Real largest = 0;
  for (std::size_t i = 0; i < columns_->count; ++i) {
    r[i] = Real(double(r[i]) + scale * change[columns_->first + i]);
    largest = std::max(largest, std::abs(r[i]));
  }
  bounds_[node].drift +=
      Real(4 * Precision<Real>::kUlp) * largest + Real(0x1p-49 * scale * state_->peak);
  kernels(block_).scan(block_, node, std::size_t(node) + 1, false);
}

template <class Real>
bool BlockState<Real>::step(std::size_t first_new, bool limits_changed) {
  const Kernels<Real>& kernel = kernels(block_);
  const Versions& versions = state_->versions;
  const std::vector<Moved>& moved = of_channel().moved;
  for (std::size_t node = first_new; node < nodes(); ++node)
    initialise_row(node, versions.stored_loop(view(), Node(node)));
  kernel.correct(block_, moved.data(), moved.size(), view().terms().data());
  for (const auto& [node, whole, loop_before, loop_after] : versions.rescaled(view().version())) {
    if (whole) continue;  // corrected above
    bounds_[node].limit = state_->limit(channel_, node);
    if (view().degree(node) > 0)
      rewrite_node(node);
    else  // its result is exact; it starts from zero if it gets an edge
      clear_row(node);
    kernel.scan(block_, node, std::size_t(node) + 1, true);
  }
  if (limits_changed) set_limits();
  scan(limits_changed ? 0 : first_new, false);
  const bool converged = converge();
  touched_.end_step(block_.touched);
  return converged;
}

template <class Real>
typename BlockState<Real>::Audit BlockState<Real>::audit(int threads) const {
  const std::size_t width = columns_->width;
  Audit audit;
  audit.ratio.assign(width, 0.0);
  std::mutex merging;
  std::vector<double> largest(width, 0.0);
  for_ranges(threads, [&](const Range<Real>& range) {
    std::vector<double> found(width, 0.0);
    kernels(block_).peak(block_, range.first, range.last, found.data());
    const std::lock_guard lock(merging);
    for (std::size_t i = 0; i < width; ++i) raise_to(largest[i], found[i]);
  });
  const Matrix matrix = state_->matrix(channel_);
  for_ranges(threads, [&](const Range<Real>& range) {
    std::vector<double> ratio(width, 0.0);
    Measured measured{ratio.data(), 0, 0, 0};
    kernels(block_).measure(block_, matrix, range, largest.data(), measured);
    const std::lock_guard lock(merging);
    for (std::size_t i = 0; i < width; ++i) raise_to(audit.ratio[i], ratio[i]);
    raise_to(audit.drift, measured.drift);
    raise_to(audit.untracked, measured.untracked);
    raise_to(audit.excess, measured.excess);
  });
  return audit;
}

template <class Real>
void BlockState<Real>::release_residuals() {
  residual_ = {};
  block_.residual = nullptr;
}

template <class Real>
void BlockState<Real>::archive(Archive& archive, const std::string& name) {
  const std::size_t size = nodes() * columns_->width;
  archive.lasting(name + ".estimate", estimate_.data(), size);
  archive.lasting(name + ".residual", residual_.data(), size);
  std::vector<Real> drift(nodes());
  for (std::size_t node = 0; node < nodes(); ++node) drift[node] = bounds_[node].drift;
  archive.block(name + ".drift", drift.data(), drift.size());
  for (std::size_t node = 0; node < nodes(); ++node) bounds_[node].drift = drift[node];
  std::uint64_t counters[] = {block_.pushes, block_.edge_pushes, block_.rewrites, block_.stalled};
  archive.block(name + ".counters", counters, 4);
  block_.pushes = counters[0];
  block_.edge_pushes = counters[1];
  block_.rewrites = counters[2];
  block_.stalled = counters[3];
}

template class BlockState<float>;
template class BlockState<double>;

}  // namespace tidegraph
