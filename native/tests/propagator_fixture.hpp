// Propagators on random histories, and how far they are from the exact solution.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "check.hpp"
#include "history.hpp"
#include "propagator.hpp"
#include "support.hpp"

namespace propagator_tests {

using history::History;
using history::Pair;
using history::Step;
using support::contents;
using support::repeats;
using tidegraph::ChannelSpec;
using tidegraph::Direction;
using tidegraph::EventError;
using tidegraph::Node;
using tidegraph::Op;
using tidegraph::PrecisionError;
using tidegraph::Propagator;
using tidegraph::Rejection;
using tidegraph::Settings;
using tidegraph::VersionSpec;
using tidegraph::View;
using Kind = tidegraph::VersionSpec::Kind;

inline constexpr double kAlpha = 0.2;
inline const VersionSpec kAll{Kind::all, 0, 0, 0};

struct Filter {
  double gamma0, gamma;
};
inline const Filter kLowPass{kAlpha, 1 - kAlpha}, kHighPass{kAlpha, kAlpha - 1}, kOdd{-1.3, 0.6};

inline std::vector<std::int64_t> all_nodes(std::size_t count) {
  std::vector<std::int64_t> nodes(count);
  for (std::size_t node = 0; node < count; ++node) nodes[node] = std::int64_t(node);
  return nodes;
}

// Thresholds that suit the columns of a history, which differ in size.
inline std::vector<double> thresholds(std::size_t columns, double r_max) {
  std::vector<double> all(columns);
  for (std::size_t c = 0; c < columns; ++c) all[c] = r_max * std::pow(10.0, double(c % 5) - 2);
  return all;
}

template <class Real>
struct Started : Propagator<Real> {
  Started(const Settings& settings, std::span<const double> x, std::span<const double> theta)
      : Propagator<Real>(settings, x.size() / theta.size(), theta) {
    this->set_features(0, x);
    this->read_peak();
    this->start();
  }
  Started(const Settings& settings, const History& history, std::span<const double> theta)
      : Started(settings, history.flat_features(), theta) {}
};

template <class Real>
struct Reading {
  explicit Reading(Propagator<Real>& p) {
    const std::vector<std::int64_t> nodes = all_nodes(p.nodes());
    const std::size_t rows = p.nodes() * p.channels();
    embedding.resize(rows * p.columns());
    residual.resize(rows * p.columns());
    bound.resize(rows * p.columns());
    promise.resize(rows * p.columns());
    degree.resize(rows);
    p.embedding(nodes, embedding);
    p.residual(nodes, residual);
    p.error_bound(nodes, bound);
    p.threshold(nodes, promise);
    p.degree(nodes, degree);
    touched.assign(p.touched().begin(), p.touched().end());
  }
  bool operator==(const Reading&) const = default;
  std::uint64_t digest() const {
    support::Digest digest;
    digest.put<Real>(embedding);
    digest.put<Real>(residual);
    digest.put<double>(bound);
    digest.put<double>(degree);
    digest.put<Node>(touched);
    return digest.value();
  }
  std::vector<Real> embedding, residual;  // [nodes, channels, columns]
  std::vector<double> bound, promise, degree;
  std::vector<Node> touched;
};

using Wide = long double;

// P of a channel, dense, from a list of edges and the self-loops.
class Dense {
 public:
  Dense(std::size_t nodes, double beta)
      : nodes_(nodes), beta_(beta), w_(nodes * nodes, 0), d_(nodes, 0) {}

  void loop(std::size_t node, Wide weight) { w_[node * nodes_ + node] += weight; }
  void edge(Pair pair, Wide weight, bool directed, Direction direction) {
    const std::size_t src = std::size_t(pair.first), dst = std::size_t(pair.second);
    const bool both = !directed || direction == Direction::both;
    if (both || direction == Direction::out) w_[src * nodes_ + dst] += weight;
    if (!directed && src == dst) return;
    if (both || direction == Direction::in) w_[dst * nodes_ + src] += weight;
  }
  void normalise() {
    for (std::size_t i = 0; i < nodes_; ++i) {
      for (std::size_t j = 0; j < nodes_; ++j) d_[i] += w_[i * nodes_ + j];
      unit_.push_back(std::pow(d_[i], 1 - Wide(beta_)));
    }
    for (std::size_t i = 0; i < nodes_; ++i)
      for (std::size_t j = 0; j < nodes_; ++j)
        p_.push_back(w_[i * nodes_ + j] > 0 ? w_[i * nodes_ + j] / (d_[i] / unit_[i] * unit_[j])
                                            : 0);
  }
  Wide degree(std::size_t node) const { return d_[node]; }
  Wide unit(std::size_t node) const { return unit_[node]; }  // d^(1-beta)
  Wide p(std::size_t i, std::size_t j) const { return p_[i * nodes_ + j]; }
  // pi = gamma0 x + gamma P pi for all columns, by elimination: the matrix is diagonally dominant
  // up to scaling.
  std::vector<std::vector<Wide>> solve(Filter filter,
                                       const std::vector<std::vector<double>>& x) const {
    std::vector<std::vector<Wide>> a(nodes_, std::vector<Wide>(nodes_)), b(nodes_);
    for (std::size_t i = 0; i < nodes_; ++i) {
      for (std::size_t j = 0; j < nodes_; ++j)
        a[i][j] = Wide(i == j) - Wide(filter.gamma) * p(i, j);
      for (const double value : x[i]) b[i].push_back(Wide(filter.gamma0) * Wide(value));
    }
    for (std::size_t k = 0; k < nodes_; ++k) {
      std::size_t pivot = k;
      for (std::size_t i = k; i < nodes_; ++i)
        if (std::abs(a[i][k]) > std::abs(a[pivot][k])) pivot = i;
      std::swap(a[k], a[pivot]);
      std::swap(b[k], b[pivot]);
      for (std::size_t i = 0; i < nodes_; ++i) {
        if (i == k || a[i][k] == 0) continue;
        const Wide factor = a[i][k] / a[k][k];
        for (std::size_t j = k; j < nodes_; ++j) a[i][j] -= factor * a[k][j];
        for (std::size_t c = 0; c < b[i].size(); ++c) b[i][c] -= factor * b[k][c];
      }
    }
    for (std::size_t i = 0; i < nodes_; ++i)
      for (Wide& value : b[i]) value /= a[i][i];
    return b;
  }

 private:
  std::size_t nodes_;
  double beta_;
  std::vector<Wide> w_, d_, unit_, p_;
};

// The matrix of a channel: of all edges, from the history alone; of versions in time, as the engine
// lists them, which the tests of versions verify.
template <class Real>
Dense dense(const Propagator<Real>& p, std::size_t channel, const History& history) {
  const Settings& settings = p.settings();
  const ChannelSpec& spec = settings.channels[channel];
  const auto [version, direction] = settings.views[spec.view];
  Dense matrix(p.nodes(), spec.beta);
  if (settings.versions[version].kind == Kind::all) {
    for (std::size_t node = 0; node < p.nodes(); ++node)
      matrix.loop(node, Wide(settings.self_loop));
    for (const auto& [pair, w] : history.graph())
      matrix.edge(pair, Wide(w), settings.directed, direction);
  } else {
    for (std::size_t node = 0; node < p.nodes(); ++node)
      matrix.loop(node, Wide(p.versions().loop(version, Node(node))));
    const auto edges = p.versions().edges_of(version);
    for (std::size_t e = 0; e < edges.src.size(); ++e)
      matrix.edge({edges.src[e], edges.dst[e]}, Wide(edges.weight[e]), settings.directed,
                  direction);
  }
  matrix.normalise();
  return matrix;
}

// How far a propagator is from its promises; every number should be at most one.
struct Verdict {
  double error_over_bound = 0;    // against the exact solution
  double error_over_promise = 0;  // the same
  double bound_over_promise = 0;
  double defect_over_audit = 0;  // of the invariant, against the drift that the audit reports
  double drift = 0;              // as the audit reports it, relative to the limits
  double residual = 0;           // the same
  double untracked = 0;          // drift in excess of the recorded one; should be zero
  double degree_error = 0;       // relative

  void take(const Verdict& other) {
    error_over_bound = std::max(error_over_bound, other.error_over_bound);
    error_over_promise = std::max(error_over_promise, other.error_over_promise);
    bound_over_promise = std::max(bound_over_promise, other.bound_over_promise);
    defect_over_audit = std::max(defect_over_audit, other.defect_over_audit);
    drift = std::max(drift, other.drift);
    residual = std::max(residual, other.residual);
    untracked = std::max(untracked, other.untracked);
    degree_error = std::max(degree_error, other.degree_error);
  }
};

inline double ratio(Wide value, Wide limit) {
  if (value == 0) return 0;
  return limit > 0 && std::isfinite(value) ? double(value / limit)
                                           : std::numeric_limits<double>::infinity();
}

template <class Real>
Verdict measure(Propagator<Real>& p, const History& history) {
  const Reading<Real> reading(p);
  const auto audit = p.audit();
  const Wide eps = sizeof(Real) == 4 ? 0x1p-24L : 0x1p-53L;
  Verdict verdict;
  for (std::size_t c = 0; c < p.channels(); ++c) {
    const ChannelSpec& spec = p.settings().channels[c];
    const Dense matrix = dense(p, c, history);
    const auto exact = matrix.solve({spec.gamma0, spec.gamma}, history.features());
    const Wide gamma0 = std::abs(Wide(spec.gamma0)),
               amplification = gamma0 / (1 - std::abs(Wide(spec.gamma)));
    const auto at = [&](const auto& values, std::size_t node, std::size_t column) {
      return Wide(values[(node * p.channels() + c) * p.columns() + column]);
    };
    verdict.drift = std::max(verdict.drift, audit.drift[c]);
    verdict.residual = std::max(verdict.residual, audit.residual[c]);
    verdict.untracked = std::max(verdict.untracked, audit.untracked[c]);
    for (std::size_t i = 0; i < p.nodes(); ++i) {
      const Wide degree = Wide(reading.degree[i * p.channels() + c]);
      if (matrix.degree(i) > 0 || degree != 0)
        verdict.degree_error = std::max(
            verdict.degree_error, ratio(std::abs(degree - matrix.degree(i)), matrix.degree(i)));
      for (std::size_t k = 0; k < p.columns(); ++k) {
        const Wide estimate = at(reading.embedding, i, k), residual = at(reading.residual, i, k);
        const Wide bound = at(reading.bound, i, k), promise = at(reading.promise, i, k);
        const Wide error = std::abs(estimate - exact[i][k]);
        verdict.error_over_bound = std::max(verdict.error_over_bound, ratio(error, bound));
        verdict.error_over_promise = std::max(verdict.error_over_promise, ratio(error, promise));
        // Without a degree both are rounding errors, before and after the last rounding.
        verdict.bound_over_promise =
            std::max(verdict.bound_over_promise,
                     ratio(bound, promise * (matrix.degree(i) > 0 ? 1 : 1 + eps)));
        Wide sum = 0, size = std::abs(estimate) +
                             gamma0 * (std::abs(residual) + std::abs(history.features()[i][k]));
        for (std::size_t j = 0; j < p.nodes(); ++j) {
          const Wide part = Wide(spec.gamma) * matrix.p(i, j) * at(reading.embedding, j, k);
          sum += part;
          size += std::abs(part);
        }
        const Wide defect = std::abs(estimate + Wide(spec.gamma0) * residual -
                                     Wide(spec.gamma0) * Wide(history.features()[i][k]) - sum);
        // The promise is theta d^(1-beta) |gamma0| / (1 - |gamma|); drift is relative to the limit.
        const Wide rule = promise / amplification * gamma0;
        verdict.defect_over_audit =
            std::max(verdict.defect_over_audit,
                     ratio(defect, Wide(audit.drift[c]) * rule + 16 * eps * size));
      }
    }
  }
  return verdict;
}

// Nodes that exist in both readings and whose estimates differ.
template <class Real>
std::set<Node> differing(const Reading<Real>& before, const Reading<Real>& after, std::size_t row) {
  std::set<Node> nodes;
  for (std::size_t i = 0; i < before.embedding.size(); ++i)
    if (before.embedding[i] != after.embedding[i]) nodes.insert(Node(i / row));
  return nodes;
}

inline void expect_promises_kept(const Verdict& verdict) {
  CHECK_AT_MOST(verdict.error_over_bound, 1.0);
  CHECK_AT_MOST(verdict.error_over_promise, 1.0);
  CHECK_AT_MOST(verdict.bound_over_promise, 1.0);
  CHECK_AT_MOST(verdict.defect_over_audit, 1.0);
  CHECK_AT_MOST(verdict.drift, 0.05);
  CHECK_AT_MOST(verdict.residual, 1.0);
  CHECK_EQUAL(verdict.untracked, 0.0);
  CHECK_AT_MOST(verdict.degree_error, 1e-12);
}

// Follows a history and measures after every step.
template <class Real>
void follow(const Settings& settings, const history::Options& options, double r_max,
            std::uint64_t seed, int steps, int measure_every = 1) {
  History history(options, seed);
  Started<Real> p(settings, history, thresholds(options.columns, r_max));
  CHECK_AT_MOST(p.finest_tolerance(), 1.0);
  Verdict verdict = measure(p, history);
  std::size_t unlisted = 0, unsorted = 0;
  for (int i = 0; i < steps; ++i) {
    const Reading<Real> before(p);
    const Step step = history.next();
    p.apply(step.update());
    const Reading<Real> after(p);
    const std::set<Node> touched(after.touched.begin(), after.touched.end());
    unsorted += !std::is_sorted(after.touched.begin(), after.touched.end()) ||
                touched.size() != after.touched.size();
    for (const Node node : differing(before, after, p.channels() * p.columns()))
      unlisted += !touched.count(node);
    for (const std::int64_t node : step.src) unlisted += !touched.count(Node(node));
    for (const std::int64_t node : step.removed_nodes) unlisted += !touched.count(Node(node));
    if (i % measure_every == 0) verdict.take(measure(p, history));
  }
  expect_promises_kept(verdict);
  CHECK_EQUAL(unlisted, 0);
  CHECK_EQUAL(unsorted, 0);
  p.repair();
  expect_promises_kept(measure(p, history));
  for (const double drift : p.audit().drift) CHECK_AT_MOST(drift, 0.01);
  if (p.finest_tolerance() < 0.1) {
    p.refine(0.1);
    expect_promises_kept(measure(p, history));
  }
}

inline Settings one_channel(const VersionSpec& version, bool directed, Direction direction,
                            double self_loop, Filter filter, double beta) {
  Settings settings;
  settings.directed = directed;
  settings.self_loop = self_loop;
  settings.block_columns = 64;
  settings.versions = {version};
  settings.views = {{0, direction}};
  settings.channels = {{0, filter.gamma0, filter.gamma, beta}};
  return settings;
}

// Every kind of version, both filters, several blocks.
inline Settings many_channels(bool directed, int threads) {
  Settings settings;
  settings.directed = directed;
  settings.block_columns = 8;
  settings.threads = threads;
  settings.versions = {
      kAll, {Kind::decay, 6, 0, 11}, {Kind::window, 0, 25, 0}, {Kind::last, 0, 30, 0}};
  for (std::size_t version = 0; version < settings.versions.size(); ++version) {
    settings.views.emplace_back(version, Direction::out);
    if (directed)
      settings.views.emplace_back(version, version % 2 ? Direction::in : Direction::both);
  }
  for (std::size_t view = 0; view < settings.views.size(); ++view)
    for (const Filter& filter : {kLowPass, kHighPass})
      settings.channels.push_back({view, filter.gamma0, filter.gamma, view % 3 ? 0.5 : 0.3});
  return settings;
}

inline history::Options busy_options(bool directed) {
  history::Options options;
  options.directed = directed;
  options.timed = true;
  options.exact_weights = false;
  options.columns = 35;  // five vectors of floats, the last one partly filled
  options.nodes = 40;
  options.long_pause = 0.01;
  options.pause = 80;
  return options;
}

template <class Real>
std::vector<Reading<Real>> run(const Settings& settings, const history::Options& options,
                               std::uint64_t seed, int steps) {
  History history(options, seed);
  Started<Real> p(settings, history, thresholds(options.columns, 0.02));
  std::vector<Reading<Real>> readings;
  for (int i = 0; i < steps; ++i) {
    p.apply(history.next().update());
    readings.emplace_back(p);
  }
  return readings;
}

// Audits after every step of a history, and measures after every tenth.
template <class Real>
void audit_all(const Settings& settings, const history::Options& options, double r_max,
               std::uint64_t seed, int steps) {
  History history(options, seed);
  Started<Real> p(settings, history, thresholds(options.columns, r_max));
  CHECK_AT_MOST(p.finest_tolerance(), 1.0);
  double residual = 0, untracked = 0;
  std::size_t overrun = 0;
  Verdict verdict;
  for (int i = 0; i < steps; ++i) {
    const std::uint64_t pushes = p.statistics().pushes;
    p.apply(history.next().update());
    overrun += p.statistics().pushes - pushes > p.statistics().most_pushes;
    const auto audit = p.audit();
    for (const double each : audit.residual) residual = std::max(residual, each);
    for (const double each : audit.untracked) untracked = std::max(untracked, each);
    if (i % 10 == 9) verdict.take(measure(p, history));
  }
  CHECK_AT_MOST(residual, 1.0);
  CHECK_EQUAL(untracked, 0.0);
  CHECK_EQUAL(overrun, 0);
  CHECK_EQUAL(p.statistics().stalled, 0);
  CHECK_AT_MOST(verdict.error_over_bound, 1.0);
  CHECK_AT_MOST(verdict.error_over_promise, 1.0);
  CHECK_AT_MOST(verdict.bound_over_promise, 1.0);
  CHECK_AT_MOST(verdict.degree_error, 1e-15);
}

inline bool imprecise(const std::function<void()>& work) {
  try {
    work();
  } catch (const PrecisionError&) { return true; }
  return false;
}

inline bool rejects(const std::function<void()>& work) {
  try {
    work();
  } catch (const EventError&) { return true; }
  return false;
}

// Steps of edges alone, for one call, and what each touches when they are applied one by one.
struct Stream {
  Step all;
  std::vector<std::int64_t> offsets{0}, touched;
  tidegraph::Rows rows() const { return all.rows(); }
  std::size_t steps() const { return offsets.size() - 1; }
};

template <class Real>
Stream stream_through(Propagator<Real>& p, History& history, std::size_t steps) {
  Stream stream;
  while (stream.steps() < steps) {
    Step step = history.next();
    step.feature_nodes.clear();
    step.feature_values.clear();
    if (step.src.empty()) continue;
    step.end = step.t.back();
    for (std::size_t row = 0; row < step.src.size(); ++row)
      stream.all.row(step.src[row], step.dst[row], step.weight[row], Op(step.op[row]))
          .at(step.t[row]);
    stream.offsets.push_back(std::int64_t(stream.all.src.size()));
    p.apply(step.update());
    stream.touched.push_back(std::int64_t(p.touched().size()));
  }
  return stream;
}

}  // namespace propagator_tests
