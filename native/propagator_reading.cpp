// What a propagator knows about nodes: results, the promised error, and the certificate.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "propagator.hpp"

namespace tidegraph {
namespace {

// The smallest positive number of the precision.
template <class Real>
constexpr double kSmallest = sizeof(Real) == 4 ? 0x1p-149 : 0x1p-1074;
// Covers the rounding of a bound that is computed in float64.
constexpr double kRoundUp = 1 + 0x1p-46;

}  // namespace

// Calls visit(index, node, channel) for all nodes and channels.
template <class Real>
template <class Visit>
void Propagator<Real>::for_nodes(std::span<const std::int64_t> nodes, Visit visit) const {
  constexpr std::size_t kChunk = 1024;
  require_intact();
  const std::function<void(std::size_t)> chunk = [&](std::size_t i) {
    for (std::size_t k = i * kChunk; k < std::min(nodes.size(), (i + 1) * kChunk); ++k)
      for (std::size_t c = 0; c < channels(); ++c) visit(k, Node(nodes[k]), c);
  };
  parallel_for((nodes.size() + kChunk - 1) / kChunk, settings_.threads, chunk);
}

template <class Real>
void Propagator<Real>::embedding(std::span<const std::int64_t> nodes, std::span<Real> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const Channel& channel = state_.channels[c];
    const double degree = state_.view(c).degree(node);
    const double scale = channel.spec.gamma0 * power(degree, 1 - channel.spec.beta);
    Real* const row = out.data() + (k * channels() + c) * columns();
    for (std::size_t b = 0; b < columns_.size(); ++b) {
      const auto [first, count, width] = columns_[b];
      if (degree > 0) {
        const Real* const p = block(c, b).estimate(node);
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
  const Changing changing(*this);
  for (BlockState<Real>& block : blocks_) block.release_residuals();
  std::vector<std::int64_t> all(nodes());
  std::iota(all.begin(), all.end(), std::int64_t(0));
  embedding(all, out);
}

template <class Real>
void Propagator<Real>::residual(std::span<const std::int64_t> nodes, std::span<Real> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const Channel& channel = state_.channels[c];
    const double degree = state_.view(c).degree(node);
    const double scale = degree > 0 ? 1 / power(degree, channel.spec.beta) : 0;
    Real* const row = out.data() + (k * channels() + c) * columns();
    for (std::size_t b = 0; b < columns_.size(); ++b) {
      const auto [first, count, width] = columns_[b];
      const Real* const r = block(c, b).residual(node);
      for (std::size_t i = 0; i < count; ++i)
        row[first + i] = Real(double(r[i]) * scale * thresholds_[first + i]);
    }
  });
}

template <class Real>
void Propagator<Real>::features(std::span<const std::int64_t> nodes, std::span<double> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    if (c) return;
    Real row[kMaxWidth];
    for (std::size_t b = 0; b < columns_.size(); ++b) {
      const std::size_t first = columns_[b].first;
      features_.read(b, node, row);
      for (std::size_t i = 0; i < columns_[b].count; ++i)
        out[k * columns() + first + i] = double(row[i]) * thresholds_[first + i];
    }
  });
}

template <class Real>
void Propagator<Real>::degree(std::span<const std::int64_t> nodes, std::span<double> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const View& matrix = state_.view(c);
    out[k * channels() + c] = matrix.degree(node) / state_.versions.present(matrix.version());
  });
}

// The error of a node without a degree, [columns]. Its result is exact but for rounding: features
// and result were rounded to the working precision, and the units of the features to float64.
template <class Real>
void Propagator<Real>::isolated_error(Node node, std::size_t c, double* row) const {
  Real x[kMaxWidth];
  for (std::size_t b = 0; b < columns_.size(); ++b) {
    features_.read(b, node, x);
    for (std::size_t i = 0; i < columns_[b].count; ++i) {
      const std::size_t column = columns_[b].first + i;
      const double size =
          std::abs(state_.channels[c].spec.gamma0 * double(x[i]) * thresholds_[column]);
      row[column] = size == 0 ? 0 : 4 * Precision<Real>::kUlp * size + kSmallest<Real>;
    }
  }
}

template <class Real>
void Propagator<Real>::threshold(std::span<const std::int64_t> nodes, std::span<double> out) const {
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const auto& spec = state_.channels[c].spec;
    const View& matrix = state_.view(c);
    const double degree = matrix.degree(node) / state_.versions.present(matrix.version());
    const double scale = state_.tolerance * power(degree, 1 - spec.beta) * std::abs(spec.gamma0) /
                         (1 - std::abs(spec.gamma));
    double* const row = out.data() + (k * channels() + c) * columns();
    for (std::size_t i = 0; i < columns(); ++i) row[i] = scale * thresholds_[i];
    if (degree <= 0) isolated_error(node, c, row);
  });
}

template <class Real>
void Propagator<Real>::error_bound(std::span<const std::int64_t> nodes, std::span<double> out) {
  std::vector<double> ratio(channels() * columns());
  for (const BlockState<Real>& block : blocks_) {
    const auto audit = block.audit(settings_.threads);
    const ColumnBlock& of = columns_[block.number()];
    std::copy_n(audit.ratio.begin(), of.count, &ratio[block.channel() * columns() + of.first]);
  }
  std::vector<Real> estimates(nodes.size() * channels() * columns());
  embedding(nodes, estimates);
  for_nodes(nodes, [&](std::size_t k, Node node, std::size_t c) {
    const auto& spec = state_.channels[c].spec;
    // max |r| / d^(1-beta) = max |R| / d; times d^(1-beta) the units of the graph cancel.
    const double degree = state_.view(c).degree(node);
    const double scale =
        power(degree, 1 - spec.beta) * std::abs(spec.gamma0) / (1 - std::abs(spec.gamma));
    const std::size_t at = (k * channels() + c) * columns();
    if (degree <= 0) return isolated_error(node, c, out.data() + at);
    for (std::size_t i = 0; i < columns(); ++i)
      out[at + i] = kRoundUp * (scale * ratio[c * columns() + i] * thresholds_[i] +
                                Precision<Real>::kReading * std::abs(double(estimates[at + i])) +
                                kSmallest<Real>);
  });
}

template <class Real>
typename Propagator<Real>::Audit Propagator<Real>::audit() {
  require_intact();
  Audit worst;
  worst.drift.resize(channels());
  worst.residual.resize(channels());
  worst.untracked.resize(channels());
  for (const BlockState<Real>& block : blocks_) {
    const auto audit = block.audit(settings_.threads);
    raise_to(worst.drift[block.channel()], audit.drift);
    raise_to(worst.residual[block.channel()], audit.excess);
    raise_to(worst.untracked[block.channel()], audit.untracked);
  }
  return worst;
}

#define TIDEGRAPH_READING(Real)                                                                    \
  template void Propagator<Real>::embedding(std::span<const std::int64_t>, std::span<Real>) const; \
  template void Propagator<Real>::residual(std::span<const std::int64_t>, std::span<Real>) const;  \
  template void Propagator<Real>::features(std::span<const std::int64_t>, std::span<double>)       \
      const;                                                                                       \
  template void Propagator<Real>::degree(std::span<const std::int64_t>, std::span<double>) const;  \
  template void Propagator<Real>::threshold(std::span<const std::int64_t>, std::span<double>)      \
      const;                                                                                       \
  template void Propagator<Real>::error_bound(std::span<const std::int64_t>, std::span<double>);   \
  template void Propagator<Real>::finish(std::span<Real>);                                         \
  template Propagator<Real>::Audit Propagator<Real>::audit();
TIDEGRAPH_READING(float)
TIDEGRAPH_READING(double)

}  // namespace tidegraph
