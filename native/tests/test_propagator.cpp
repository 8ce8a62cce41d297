#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "check.hpp"
#include "history.hpp"
#include "propagator.hpp"
#include "support.hpp"

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

namespace {

constexpr double kAlpha = 0.2;
const VersionSpec kAll{Kind::all, 0, 0, 0};

struct Filter {
  double gamma0, gamma;
};
const Filter kLowPass{kAlpha, 1 - kAlpha}, kHighPass{kAlpha, kAlpha - 1}, kOdd{-1.3, 0.6};

std::vector<std::int64_t> all_nodes(std::size_t count) {
  std::vector<std::int64_t> nodes(count);
  for (std::size_t node = 0; node < count; ++node) nodes[node] = std::int64_t(node);
  return nodes;
}

// Thresholds that suit the columns of a history, which differ in size.
std::vector<double> thresholds(std::size_t columns, double r_max) {
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

// ---- the exact solution
// ---------------------------------------------------------------------------------------------

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

// The matrix of a channel. All edges: from the history alone. Versions in time: as the engine lists
// them, which the tests of versions answer for.
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

// How far a propagator is from what it promises; every number should be at most one.
struct Verdict {
  double error_over_bound = 0;    // against the exact solution
  double error_over_promise = 0;  // likewise
  double bound_over_promise = 0;
  double defect_over_audit = 0;  // of the invariant, against the drift that the audit admits
  double drift = 0;              // as the audit tells it, in units of the rule to stop
  double residual = 0;           // likewise
  double untracked = 0;          // drift that the account of rounding missed; should be zero
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

double ratio(Wide value, Wide limit) {
  if (value == 0) return 0;
  return limit > 0 && std::isfinite(value) ? double(value / limit)
                                           : std::numeric_limits<double>::infinity();
}

template <class Real>
Verdict judge(Propagator<Real>& p, const History& history) {
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
        // Without a degree both tell of rounding, once before and once after the last.
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
        // The promise is theta d^(1-beta) |gamma0| / (1 - |gamma|); drift is told in units of the
        // rule to stop.
        const Wide rule = promise / amplification * gamma0;
        verdict.defect_over_audit =
            std::max(verdict.defect_over_audit,
                     ratio(defect, Wide(audit.drift[c]) * rule + 16 * eps * size));
      }
    }
  }
  return verdict;
}

// Nodes whose estimates differ, other than by having been there or not.
template <class Real>
std::set<Node> differing(const Reading<Real>& before, const Reading<Real>& after, std::size_t row) {
  std::set<Node> nodes;
  for (std::size_t i = 0; i < before.embedding.size(); ++i)
    if (before.embedding[i] != after.embedding[i]) nodes.insert(Node(i / row));
  return nodes;
}

void expect_kept(const Verdict& verdict) {
  CHECK_AT_MOST(verdict.error_over_bound, 1.0);
  CHECK_AT_MOST(verdict.error_over_promise, 1.0);
  CHECK_AT_MOST(verdict.bound_over_promise, 1.0);
  CHECK_AT_MOST(verdict.defect_over_audit, 1.0);
  CHECK_AT_MOST(verdict.drift, 0.05);
  CHECK_AT_MOST(verdict.residual, 1.0);
  CHECK_EQUAL(verdict.untracked, 0.0);
  CHECK_AT_MOST(verdict.degree_error, 1e-12);
}

// Follows a history and judges after every step.
template <class Real>
void follow(const Settings& settings, const history::Options& options, double r_max,
            std::uint64_t seed, int steps, int judge_every = 1) {
  History history(options, seed);
  Started<Real> p(settings, history, thresholds(options.columns, r_max));
  CHECK_AT_MOST(p.finest_tolerance(), 1.0);
  Verdict verdict = judge(p, history);
  std::size_t untold = 0, unsorted = 0;
  for (int i = 0; i < steps; ++i) {
    const Reading<Real> before(p);
    const Step step = history.next();
    p.apply(step.update());
    const Reading<Real> after(p);
    const std::set<Node> touched(after.touched.begin(), after.touched.end());
    unsorted += !std::is_sorted(after.touched.begin(), after.touched.end()) ||
                touched.size() != after.touched.size();
    for (const Node node : differing(before, after, p.channels() * p.columns()))
      untold += !touched.count(node);
    for (const std::int64_t node : step.src) untold += !touched.count(Node(node));
    for (const std::int64_t node : step.removed_nodes) untold += !touched.count(Node(node));
    if (i % judge_every == 0) verdict.take(judge(p, history));
  }
  expect_kept(verdict);
  CHECK_EQUAL(untold, 0);
  CHECK_EQUAL(unsorted, 0);
  p.repair();
  expect_kept(judge(p, history));
  for (const double drift : p.audit().drift) CHECK_AT_MOST(drift, 0.01);
  if (p.finest_tolerance() < 0.1) {
    p.refine(0.1);
    expect_kept(judge(p, history));
  }
}

Settings one_channel(const VersionSpec& version, bool directed, Direction direction,
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
Settings many_channels(bool directed, int threads) {
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

history::Options busy_options(bool directed) {
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

// Audits after every step of a history, and judges now and then.
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
    if (i % 10 == 9) verdict.take(judge(p, history));
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

bool imprecise(const std::function<void()>& work) {
  try {
    work();
  } catch (const PrecisionError&) { return true; }
  return false;
}

bool refuses(const std::function<void()>& work) {
  try {
    work();
  } catch (const EventError&) { return true; }
  return false;
}

}  // namespace

// ---- invariant and bound
// --------------------------------------------------------------------------------------------

TEST(invariant_and_bound_hold_after_every_step_on_undirected_graphs) {
  std::uint64_t seed = 0;
  for (const double self_loop : {1.0, 0.25, 0.0})
    for (const double beta : {0.0, 0.3, 0.5, 1.0})
      for (const Filter& filter : {kLowPass, kHighPass, kOdd}) {
        Settings settings = one_channel(kAll, false, Direction::out, self_loop, filter, beta);
        settings.scale_by_degree = ++seed % 3 != 0;
        history::Options options;
        options.columns = 3 + seed % 9;
        options.exact_weights = seed % 2;
        follow<double>(settings, options, 1e-8, seed, int(repeats(100, 30)));
        follow<float>(settings, options, 5e-3, seed, int(repeats(100, 30)));
      }
}

TEST(invariant_and_bound_hold_after_every_step_on_directed_graphs) {
  std::uint64_t seed = 1000;
  for (const Direction direction : {Direction::out, Direction::in, Direction::both})
    for (const double beta : {0.0, 0.5, 0.8, 1.0})
      for (const Filter& filter : {kLowPass, kHighPass, kOdd}) {
        Settings settings =
            one_channel(kAll, true, direction, ++seed % 2 ? 1.0 : 0.25, filter, beta);
        settings.scale_by_degree = seed % 3 != 0;
        history::Options options;
        options.directed = true;
        options.columns = 3 + seed % 9;
        options.exact_weights = seed % 2;
        follow<double>(settings, options, 1e-8, seed, int(repeats(100, 30)));
        follow<float>(settings, options, 5e-3, seed, int(repeats(100, 30)));
      }
}

TEST(invariant_and_bound_hold_in_every_version_of_time) {
  std::uint64_t seed = 2000;
  const VersionSpec versions[] = {{Kind::window, 0, 15, 0},
                                  {Kind::last, 0, 25, 0},
                                  {Kind::decay, 7, 0, 16},
                                  {Kind::decay, 2.5, 0, 8}};
  for (const VersionSpec& version : versions)
    for (const bool directed : {false, true})
      for (const Filter& filter : {kLowPass, kHighPass}) {
        const Direction direction = directed ? Direction(seed % 3) : Direction::out;
        const double self_loop = !directed && ++seed % 3 == 0 ? 0.0 : 1.0;
        Settings settings = one_channel(version, directed, direction, self_loop, filter, 0.5);
        history::Options options;
        options.directed = directed;
        options.timed = true;
        options.columns = 4;
        options.exact_weights = false;
        options.long_pause = 0.04;
        options.pause = seed % 2 ? 30 : 400;
        follow<double>(settings, options, 1e-6, seed, int(repeats(200, 50)));
        follow<float>(settings, options, 2e-2, seed, int(repeats(200, 50)));
      }
}

TEST(the_promise_is_kept_with_weights_of_24_orders_of_magnitude) {
  std::uint64_t seed = 4000;
  const VersionSpec versions[] = {
      kAll, {Kind::window, 0, 15, 0}, {Kind::last, 0, 25, 0}, {Kind::decay, 7, 0, 16}};
  for (const VersionSpec& version : versions)
    for (const bool directed : {false, true})
      for (const double self_loop : {1.0, 1e-4, 1e4})
        for (const Filter& filter : {kLowPass, kHighPass}) {
          const Direction direction = directed ? Direction(++seed % 3) : Direction::out;
          Settings settings =
              one_channel(version, directed, direction, self_loop, filter, ++seed % 2 ? 0.5 : 1);
          settings.scale_by_degree = seed % 5 != 0;
          history::Options options;
          options.directed = directed;
          options.timed = true;
          options.columns = 3;
          options.exact_weights = false;
          options.decades = 12;
          options.long_pause = 0.04;
          options.pause = seed % 3 ? 30 : 400;
          audit_all<double>(settings, options, 1e-5, seed, int(repeats(80, 20)));
          audit_all<float>(settings, options, 5e-2, seed, int(repeats(80, 20)));
        }
}

TEST(the_promise_is_kept_without_self_loops_down_to_the_lightest_edges) {
  std::uint64_t seed = 5000;
  for (const VersionSpec& version :
       {kAll, VersionSpec{Kind::window, 0, 15, 0}, VersionSpec{Kind::decay, 7, 0, 10}})
    for (const double beta : {0.5, 0.8, 1.0})
      for (const Filter& filter : {kLowPass, kHighPass}) {
        history::Options options;
        options.timed = true;
        options.columns = 3;
        options.exact_weights = false;
        options.decades = 3;
        options.least = 1e-5;
        options.long_pause = 0.04;
        const Settings settings = one_channel(version, false, Direction::out, 0, filter, beta);
        audit_all<double>(settings, options, 1e-4, ++seed, int(repeats(120, 30)));
      }
}

// Hundreds of nodes wait at once.
TEST(invariant_and_bound_hold_where_much_is_to_be_done) {
  std::uint64_t seed = 3000;
  for (const bool directed : {false, true})
    for (const Filter& filter : {kLowPass, kHighPass}) {
      history::Options options;
      options.directed = directed;
      options.nodes = repeats(200, 120);
      options.rows = 120;
      options.columns = 3;
      const Settings settings = one_channel(kAll, directed, Direction::out, 1, filter, 0.5);
      follow<double>(settings, options, 1e-8, ++seed, 25, 6);
      follow<float>(settings, options, 5e-3, ++seed, 25, 6);
    }
}

TEST(many_channels_at_once_are_each_right) {
  for (const bool directed : {false, true}) {
    history::Options options = busy_options(directed);
    options.nodes = 14;
    follow<float>(many_channels(directed, 1), options, 5e-2, 3, 15);
    follow<double>(many_channels(directed, 2), options, 1e-6, 4, 15);
  }
}

TEST(a_graph_loaded_in_pieces_is_a_graph_to_start_from) {
  for (const bool directed : {false, true}) {
    history::Options options = busy_options(directed);
    options.node_events = false;
    options.columns = 0;
    History history(options, 5);
    history::Options with_features = options;
    with_features.columns = 6;
    const History features(with_features, 6);
    const std::vector<double> theta = thresholds(6, 0.05), x = features.flat_features();
    Settings settings = many_channels(directed, 2);
    Propagator<float> p(settings, history.nodes(), theta);
    for (int i = 0; i < 50; ++i) {
      const Step step = history.next();
      p.load(step.rows(), step.end);
    }
    CHECK_EQUAL(*p.versions().time(), history.now());
    const std::size_t half = x.size() / 12 * 6;
    p.set_features(half / 6, std::span(x).subspan(half));
    p.set_features(0, std::span(x).first(half));
    p.read_peak();
    p.start();
    struct Joined : History {
      Joined(const History& graph, const History& features) : History(graph) {
        x_ = features.features();
      }
    };
    expect_kept(judge(p, Joined(history, features)));
  }
}

TEST(loading_no_rows_still_sets_the_clock) {
  const std::vector<double> theta{0.01};
  for (const VersionSpec& version : {kAll, VersionSpec{Kind::decay, 10, 0, 16}}) {
    Propagator<float> p(one_channel(version, false, Direction::out, 1, kLowPass, 0.5), 2, theta);
    p.load(Step().at(5).rows(), 5);
    CHECK(p.versions().time() && *p.versions().time() == 5);
  }
}

TEST(a_bad_row_is_named_by_its_number_however_many_are_loaded) {
  const std::vector<double> theta{0.01};
  for (const VersionSpec& version : {kAll, VersionSpec{Kind::last, 0, 10, 0}}) {
    Propagator<float> p(one_channel(version, false, Direction::out, 1, kLowPass, 0.5), 2, theta);
    std::vector<std::int64_t> src(100'000, 0), dst(100'000, 1);
    dst[90'000] = 2;
    std::string message;
    try {
      p.load({src, dst, {}, {}, {}}, {});
    } catch (const EventError& error) { message = error.what(); }
    CHECK_EQUAL(message.substr(0, message.find(' ', 4)), "row 90000");
  }
}

TEST(rounding_does_not_pile_up_over_a_long_history) {
  history::Options options;
  options.columns = 2;
  options.nodes = 30;
  options.exact_weights = false;
  options.node_events = false;
  History history(options, 9);
  Started<float> p(one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5), history,
                   thresholds(2, 1e-3));
  Verdict verdict;
  for (std::size_t i = 0; i < repeats(40'000, 5000); ++i) {
    p.apply(history.next().update());
    if (i % 1000 == 0) verdict.take(judge(p, history));
  }
  expect_kept(verdict);
  expect_kept(judge(p, history));
  CHECK_AT_MOST(p.audit().drift[0], 0.1);
}

TEST(a_node_without_edges_or_self_loop_is_exact) {
  Settings settings = one_channel(kAll, false, Direction::out, 0, kHighPass, 0.5);
  const std::vector<double> theta{1e-3}, x{3, -5, 0};
  Started<double> p(settings, x, theta);
  const auto isolated = [&](std::int64_t node, double value) {
    double estimate = 0, residual = 1, bound = 1;
    const std::int64_t ids[] = {node};
    p.embedding(ids, {&estimate, 1});
    p.residual(ids, {&residual, 1});
    p.error_bound(ids, {&bound, 1});
    CHECK_AT_MOST(std::abs(estimate - kAlpha * value), 1e-15 * std::abs(value));
    CHECK_EQUAL(residual, 0.0);
    CHECK_AT_MOST(bound, 1e-14);
  };
  for (const std::int64_t node : {0, 1, 2}) isolated(node, x[std::size_t(node)]);
  p.apply(Step().row(0, 1, 2).update());
  isolated(2, 0);
  p.apply(Step().remove(0, 1).update());
  for (const std::int64_t node : {0, 1, 2}) isolated(node, x[std::size_t(node)]);
  Step change;
  change.feature_nodes = {2};
  change.feature_values = {7};
  p.apply(change.update());
  isolated(2, 7);
}

// ---- what the precision cannot hold
// ---------------------------------------------------------------------------------

TEST(a_feature_that_the_precision_cannot_hold_is_refused_and_one_that_it_can_is_propagated) {
  std::size_t refused = 0, taken = 0;
  for (const double theta : {1e-3, 1e-1, 1.0, 3.0, 10.0, 100.0}) {
    for (const bool directed : {false, true}) {
      const std::vector<double> thresholds{theta}, x{1, 0, 2, 0, 3};
      Started<float> p(one_channel(kAll, directed, Direction::out, 1, kLowPass, 0.5), x,
                       thresholds);
      p.apply(Step().row(0, 1).row(1, 2).row(2, 3).row(3, 4).row(4, 0).row(0, 2).update());
      const auto before = contents(p);
      Step change;
      change.feature_nodes = {2};
      change.feature_values = {1e6};
      if (imprecise([&] { p.apply(change.update()); })) {
        ++refused;
        CHECK(contents(p) == before);
        CHECK(p.finest_tolerance(1e6 / theta) > 1);
      } else {
        ++taken;
        CHECK_AT_MOST(p.finest_tolerance(), 1.0);
      }
      // Either way it goes on.
      p.apply(Step().remove(0, 1).row(1, 4, 0.1).update());
      const auto audit = p.audit();
      CHECK_AT_MOST(audit.residual[0], 1.0);
      CHECK_EQUAL(audit.untracked[0], 0.0);
      CHECK_EQUAL(p.statistics().stalled, 0);
      const Reading<float> reading(p);
      for (std::size_t i = 0; i < x.size(); ++i)
        CHECK_AT_MOST(reading.bound[i], reading.promise[i]);
    }
  }
  CHECK(refused > 2 && taken > 2);
}

TEST(without_self_loops_a_light_edge_and_a_large_feature_are_refused_together) {
  const std::vector<double> theta{1e-3}, x{1, -1, 0.5};
  Started<float> p(one_channel(kAll, false, Direction::out, 0, kLowPass, 0.5), x, theta);
  p.apply(Step().row(0, 1).row(1, 2).update());
  const auto before = contents(p);
  CHECK(imprecise([&] { p.apply(Step().row(0, 2, 1e-7).update()); }));
  CHECK(imprecise([&] { p.apply(Step().row(0, 2).remove(0, 1, 1 - 1e-7).update()); }));
  Step large;  // that feature alone, or that edge alone, would do
  large.feature_nodes = {0};
  large.feature_values = {20};
  large.row(0, 2, 1e-4);
  CHECK(imprecise([&] { p.apply(large.update()); }));
  CHECK(contents(p) == before);
  Rejection rejection;
  std::vector<std::int64_t> counts(2);
  const Step steps = Step().row(0, 2, 0.5).row(0, 2, 1e-7);
  const std::vector<std::int64_t> offsets{0, 1, 2};
  CHECK_EQUAL(p.apply_steps(steps.rows(), offsets, counts, rejection), 1);
  CHECK(!rejection.empty() && rejection.of_precision);
  Rejection other;
  const Step bad = Step().row(0, 3);
  CHECK_EQUAL(p.apply_steps(bad.rows(), std::span(offsets).first(2), counts, other), 0);
  CHECK(!other.empty() && !other.of_precision);
  p.apply(Step().row(0, 2, 1e-4).update());
  large = {};
  large.feature_nodes = {0};
  large.feature_values = {20};
  const auto after = contents(p);
  CHECK(imprecise([&] { p.apply(large.update()); }));
  CHECK(contents(p) == after);
  large.feature_values = {1.5};
  p.apply(large.update());
  CHECK_AT_MOST(p.audit().residual[0], 1.0);
}

TEST(a_node_whose_features_change_as_it_is_removed_is_nothing_left_to_push) {
  const std::vector<double> theta{1e-3}, x{1, 2, 3};
  Started<float> p(one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5), x, theta);
  p.apply(Step().row(0, 1).row(1, 2).update());
  Step removal;
  removal.feature_nodes = {1};
  removal.feature_values = {7};
  removal.removed_nodes = {1};
  p.apply(removal.update());
  CHECK_EQUAL(p.statistics().stalled, 0);
  CHECK_EQUAL(Reading<float>(p).embedding[1], 0.0f);
}

TEST(a_removed_node_is_zero_for_good) {
  for (const VersionSpec& version :
       {kAll, VersionSpec{Kind::decay, 5, 0, 8}, VersionSpec{Kind::window, 0, 20, 0}}) {
    const std::vector<double> theta{1e-4}, x{1, 2, 3, 4};
    Started<float> p(one_channel(version, false, Direction::out, 1, kLowPass, 0.5), x, theta);
    p.apply(Step().row(0, 1).row(1, 2).row(1, 1).row(2, 3).at(0).update());
    Step removal;
    removal.removed_nodes = {1};
    p.apply(removal.at(1).update());
    for (std::int64_t t = 2; t < 100; t += 7) {
      p.apply(Step().row(2, 3).at(t).update());
      const Reading<float> reading(p);
      CHECK_EQUAL(reading.embedding[1], 0.0f);
      CHECK_EQUAL(reading.residual[1], 0.0f);
    }
    CHECK(refuses([&] { p.apply(Step().row(1, 2).at(100).update()); }));
    Step change;
    change.feature_nodes = {1};
    change.feature_values = {1};
    CHECK(refuses([&] { p.apply(change.at(100).update()); }));
  }
}

// A silence forgets all edges, so that the estimate of a node without features falls to zero.
TEST(nodes_whose_estimate_a_long_silence_moves_are_touched) {
  const std::vector<double> theta{1e-3}, x{1, 0, 0};
  Started<float> p(one_channel({Kind::decay, 1, 0, 16}, false, Direction::out, 1, kLowPass, 0.5), x,
                   theta);
  p.apply(Step().row(0, 1).at(0).update());
  const Reading<float> before(p);
  CHECK(before.embedding[1] > 0);
  p.apply(Step().at(1000).update());
  const Reading<float> after(p);
  CHECK(after.embedding[1] != before.embedding[1]);
  CHECK_AT_MOST(std::abs(double(after.embedding[1])), after.promise[1]);
  CHECK(std::count(after.touched.begin(), after.touched.end(), Node(1)) == 1);
}

// ---- the same bits
// --------------------------------------------------------------------------------------------------

TEST(results_do_not_depend_on_the_number_of_threads) {
  for (const bool directed : {false, true}) {
    const int steps = int(repeats(60, 20));
    const auto alone = run<float>(many_channels(directed, 1), busy_options(directed), 21, steps);
    const auto twice = run<double>(many_channels(directed, 1), busy_options(directed), 21, steps);
    for (const int threads : {2, 3, 4}) {
      CHECK(run<float>(many_channels(directed, threads), busy_options(directed), 21, steps) ==
            alone);
      CHECK(run<double>(many_channels(directed, threads), busy_options(directed), 21, steps) ==
            twice);
    }
  }
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

TEST(steps_in_one_call_are_steps_one_by_one) {
  history::Options options = busy_options(false);
  options.node_events = false;
  History history(options, 31);
  const Settings settings = many_channels(false, 2);
  const std::vector<double> theta = thresholds(options.columns, 0.02);
  Started<float> single(settings, history, theta), joint(settings, history, theta);
  for (int round = 0; round < 4; ++round) {
    const Stream stream = stream_through(single, history, 30);
    std::vector<std::int64_t> counts(stream.steps());
    Rejection rejection;
    CHECK_EQUAL(joint.apply_steps(stream.rows(), stream.offsets, counts, rejection), counts.size());
    CHECK(counts == stream.touched);
    Reading<float> a(single), b(joint);
    std::sort(b.touched.begin(), b.touched.end());
    CHECK(a == b);
  }
  CHECK(contents(single) == contents(joint));
}

TEST(a_long_stream_leads_to_the_same_bytes_on_any_number_of_threads) {
  for (const bool directed : {false, true}) {
    history::Options options = busy_options(directed);
    options.node_events = false;
    options.columns = 11;
    options.nodes = 12;
    History history(options, 32);
    const std::vector<double> theta = thresholds(options.columns, 1e-4),
                              x = history.flat_features();
    Started<float> single(many_channels(directed, 1), x, theta);
    const Stream stream = stream_through(single, history, repeats(1100, 300));
    CHECK(support::kSanitized || single.statistics().rewrites > 0);
    const auto bytes = contents(single);
    const std::size_t graph_bytes = single.statistics().graph_bytes;
    const Step next = Step().set(0, 1, 2).at(history.now() + 3);
    single.apply(next.update());
    const Reading<float> afterwards(single);
    for (const int threads : {1, 2, 5}) {
      Started<float> joint(many_channels(directed, threads), x, theta);
      std::vector<std::int64_t> counts(stream.steps());
      Rejection rejection;
      const std::size_t done = joint.apply_steps(stream.rows(), stream.offsets, counts, rejection);
      CHECK_EQUAL(done, stream.steps());
      CHECK(counts == stream.touched);
      CHECK(contents(joint) == bytes);
      CHECK_EQUAL(joint.statistics().graph_bytes, graph_bytes);
      joint.apply(next.update());
      CHECK(Reading<float>(joint) == afterwards);
    }
  }
}

TEST(a_refused_step_among_many_leaves_the_earlier_ones_applied) {
  const std::vector<double> theta{1e-3}, x{1, 2, 3};
  const Settings settings = one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5);
  Started<float> p(settings, x, theta), same(settings, x, theta);
  const Step steps = Step().row(0, 1).row(1, 2).row(0, 2).remove(1, 1).row(0, 1);
  const std::vector<std::int64_t> offsets{0, 1, 2, 4, 5};
  std::vector<std::int64_t> counts(4, -1);
  Rejection rejection;
  CHECK_EQUAL(p.apply_steps(steps.rows(), offsets, counts, rejection), 2);
  CHECK(!rejection.empty());
  CHECK(counts[1] > 0);
  CHECK_EQUAL(counts[2], -1);
  same.apply(Step().row(0, 1).update());
  same.apply(Step().row(1, 2).update());
  CHECK(contents(p) == contents(same));
}

// Columns of different reach: blocks touch so many nodes, and not equally many, that those on
// different threads do not come to the refused step together.
TEST(a_rejection_late_in_a_long_stream_ends_all_threads_at_the_same_step) {
  history::Options options;
  options.timed = true;
  options.node_events = false;
  options.columns = 32;
  options.nodes = 300;
  History history(options, 33);
  std::vector<double> theta = thresholds(options.columns, 1e-5);
  for (std::size_t c = 0; c < theta.size(); ++c) theta[c] *= c < 8 ? 1 : 100;
  Settings settings = one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5);
  settings.block_columns = 8;
  const std::vector<double> x = history.flat_features();
  Started<float> single(settings, x, theta);
  Stream stream = stream_through(single, history, repeats(1300, 400));
  std::int64_t touched = 0;
  for (const std::int64_t count : stream.touched) touched += count;
  CHECK_AT_MOST(1 << 16, touched);
  stream.all.row(0, 300).row(0, 1).at(history.now());
  const std::int64_t rows = std::int64_t(stream.all.src.size());
  stream.offsets.insert(stream.offsets.end(), {rows - 1, rows});
  for (const int threads : {1, 2, 4}) {
    settings.threads = threads;
    Started<float> joint(settings, x, theta);
    std::vector<std::int64_t> counts(stream.steps(), -1);
    Rejection rejection;
    CHECK_EQUAL(joint.apply_steps(stream.rows(), stream.offsets, counts, rejection),
                stream.touched.size());
    CHECK(rejection.reason.find("node 300") != std::string::npos);
    CHECK(std::equal(stream.touched.begin(), stream.touched.end(), counts.begin()));
    CHECK_EQUAL(counts[stream.touched.size()], -1);
    CHECK(contents(joint) == contents(single));
  }
}

TEST(a_refused_update_changes_nothing) {
  History history(busy_options(true), 41);
  Started<float> p(many_channels(true, 1), history, thresholds(35, 0.02));
  for (int i = 0; i < 30; ++i) p.apply(history.next().update());
  const auto before = contents(p);
  const std::int64_t now = *p.versions().time(), nodes = std::int64_t(p.nodes());
  std::vector<Step> bad;
  bad.push_back(Step().row(0, nodes).at(now));
  bad.push_back(Step().row(0, 1).at(now - 1));
  bad.push_back(Step().row(0, 1));
  bad.push_back(Step().at(now));
  bad.back().feature_nodes = {nodes};
  bad.back().feature_values.resize(35);
  bad.push_back(Step().at(now));
  bad.back().removed_nodes = {nodes + 1};
  bad.back().new_nodes = 1;
  bad.back().new_features.resize(35);
  // Good in everything but its last row.
  bad.push_back(Step().row(0, nodes).row(1, nodes + 1).at(now + 5));
  bad.back().new_nodes = 1;
  bad.back().new_features.resize(35);
  bad.back().feature_nodes = {0};
  bad.back().feature_values.resize(35);
  std::size_t accepted = 0;
  for (const Step& step : bad) accepted += !refuses([&] { p.apply(step.update()); });
  CHECK_EQUAL(accepted, 0);
  CHECK(contents(p) == before);
}

TEST(a_propagator_read_back_goes_on_bit_for_bit) {
  for (const bool directed : {false, true}) {
    const auto round_trip = [&]<class Real>(Real) {
      const history::Options options = busy_options(directed);
      History history(options, 51);
      const std::vector<double> theta = thresholds(options.columns, 0.02);
      const Settings settings = many_channels(directed, 2);
      Started<Real> p(settings, history, theta);
      for (int round = 0; round < int(repeats(6, 3)); ++round) {
        for (int i = 0; i < 10; ++i) p.apply(history.next().update());
        if (round == 2) p.refine(0.9);
        support::MemoryArchive archive;
        p.archive(archive);
        archive.begin_reading();
        Propagator<Real> copy(settings, p.nodes(), theta);
        copy.archive(archive);
        CHECK(contents(copy) == archive.arrays);
        Reading<Real> one(p), other(copy);
        other.touched = one.touched;
        CHECK(one == other);
        for (int i = 0; i < 10; ++i) {
          const Step step = history.next();
          p.apply(step.update());
          copy.apply(step.update());
          CHECK(Reading<Real>(p) == Reading<Real>(copy));
        }
        CHECK(contents(p) == contents(copy));
      }
    };
    round_trip(float());
    round_trip(double());
  }
}

TEST(an_archive_of_another_propagator_is_refused) {
  const history::Options options = busy_options(false);
  History history(options, 52);
  const std::vector<double> theta = thresholds(options.columns, 0.02);
  Started<float> p(many_channels(false, 1), history, theta);
  support::MemoryArchive archive;
  p.archive(archive);
  archive.begin_reading();
  const auto refused = [&](auto&& other) {
    try {
      other.archive(archive);
    } catch (const tidegraph::ArchiveError&) { return true; }
    return false;
  };
  CHECK(!refused(Propagator<float>(many_channels(false, 1), p.nodes(), theta)));
  CHECK(refused(Propagator<double>(many_channels(false, 1), p.nodes(), theta)));
  CHECK(refused(Propagator<float>(many_channels(true, 1), p.nodes(), theta)));
  CHECK(refused(Propagator<float>(many_channels(false, 1), p.nodes() + 1, theta)));
  const auto whole = archive.arrays;
  std::size_t accepted = 0;
  for (const auto& [name, array] : whole) {
    archive.arrays = whole;
    archive.arrays.erase(name);
    accepted += !refused(Propagator<float>(many_channels(false, 1), p.nodes(), theta));
  }
  CHECK_EQUAL(accepted, 0);
}

TEST(time_that_passes_in_small_steps_changes_no_result) {
  const history::Options options = busy_options(false);
  History history(options, 61);
  Settings settings = many_channels(false, 1);
  const std::vector<double> theta = thresholds(options.columns, 1e-6);
  Started<double> plain(settings, history, theta), ticking(settings, history, theta);
  double worst = 0;
  std::optional<std::int64_t> now;
  for (int i = 0; i < 80; ++i) {
    const Step step = history.next();
    const std::int64_t first = step.t.empty() ? *step.end : step.t.front();
    for (std::int64_t t = now ? *now : first; t < first; ++t) ticking.apply(Step().at(t).update());
    plain.apply(step.update());
    ticking.apply(step.update());
    now = *step.end;
    const Reading<double> a(plain), b(ticking);
    for (std::size_t e = 0; e < a.embedding.size(); ++e)
      worst = std::max(worst, ratio(std::abs(a.embedding[e] - b.embedding[e]), a.promise[e]));
  }
  // Both are within the promise; rounding apart they are the same.
  CHECK_AT_MOST(worst, 2.0);
  expect_kept(judge(ticking, history));
}

// ---- interruptions
// --------------------------------------------------------------------------------------------------

// A graph on which every step takes a while.
template <class Real>
struct Slow : Propagator<Real> {
  explicit Slow(int threads)
      : Propagator<Real>(settings(threads), kNodes, std::vector<double>(kColumns, 1e-4)) {
    support::Random random(91);
    std::vector<double> x(kNodes * kColumns);
    for (double& value : x) value = random.between(-1, 1);
    this->set_features(0, x);
    this->read_peak();
    Step graph;
    for (std::size_t row = 0; row < 4 * kNodes; ++row) some_row(graph, random);
    this->load({graph.src, graph.dst, graph.weight, {}, {}}, {});
  }
  static void some_row(Step& step, support::Random& random) {
    step.row(std::int64_t(random.below(kNodes)), std::int64_t(random.below(kNodes)),
             random.between(0.1, 3));
  }
  static Step some_step(std::uint64_t seed) {
    support::Random random(seed);
    Step step;
    for (std::size_t row = 0; row < kNodes / 10; ++row) some_row(step, random);
    return step;
  }
  static Settings settings(int threads) {
    Settings settings = one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5);
    settings.block_columns = 16;
    settings.threads = threads;
    settings.channels.push_back({0, kHighPass.gamma0, kHighPass.gamma, 0.3});
    return settings;
  }
  static constexpr std::size_t kNodes = repeats(20'000, 4000), kColumns = 32;
};

TEST(what_was_interrupted_and_completed_is_what_was_not) {
  Slow<float> whole(1);
  whole.start();
  const auto begun = contents(whole);
  whole.apply(Slow<float>::some_step(1).update());
  const auto expected = contents(whole);
  std::size_t interruptions = 0;
  for (const int threads : {1, 2}) {
    Slow<float> p(threads);
    for (int patience = 0; patience < 2; ++patience) {
      const auto complete = [&] {
        // Several times, later and later, then for good.
        for (int asked = 0, more = 1; p.interrupted(); ++more) {
          ++interruptions;
          asked = 0;
          p.begin([&] { return more < 4 && asked++ >= more % 2 + patience; });
          p.complete();
        }
      };
      int asked = 0;
      p.begin([&] { return asked++ >= patience; });
      if (patience == 0)
        p.start();
      else
        p.apply(Slow<float>::some_step(1).update());
      complete();
      CHECK(contents(p) == (patience ? expected : begun));
      CHECK_AT_MOST(p.audit().residual[0], 1.0);
    }
  }
  CHECK(support::kSanitized || interruptions > 0);
}

TEST(steps_that_were_interrupted_go_on_where_they_ended) {
  constexpr std::size_t kSteps = 6;
  Slow<float> whole(1);
  whole.start();
  Step all;
  std::vector<std::int64_t> offsets{0};
  for (std::size_t s = 0; s < kSteps; ++s) {
    const Step step = Slow<float>::some_step(s);
    for (std::size_t row = 0; row < step.src.size(); ++row)
      all.row(step.src[row], step.dst[row], step.weight[row]);
    offsets.push_back(std::int64_t(all.src.size()));
    whole.apply(step.update());
  }
  for (const int threads : {1, 2}) {
    Slow<float> p(threads);
    p.start();
    std::vector<std::int64_t> counts(kSteps);
    Rejection rejection;
    std::size_t calls = 0;
    for (std::size_t done = 0; done < kSteps; ++calls) {
      p.begin([&] { return true; });
      done += p.apply_steps(all.rows(), std::span(offsets).subspan(done),
                            std::span(counts).subspan(done), rejection);
      p.begin({});
      p.complete();
      CHECK(rejection.empty());
      if (calls > 10 * kSteps) break;
    }
    CHECK(support::kSanitized || calls > 1);
    CHECK(contents(p) == contents(whole));
  }
}

// ---- processes and threads
// ------------------------------------------------------------------------------------------

TEST(a_child_forked_in_the_middle_gets_the_bits_of_its_parent) {
  if (!support::kForks) {
    std::printf(
        "skipped under the thread sanitizer, which forbids threads after fork: forked "
        "propagators\n");
    return;
  }
  const history::Options options = busy_options(false);
  History history(options, 71);
  Started<float> p(many_channels(false, 2), history, thresholds(options.columns, 0.02));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) p.apply(history.next().update());
    std::vector<Step> rest;
    for (int i = 0; i < 20; ++i) rest.push_back(history.next());
    const auto go_on = [&] {
      support::Digest digest;
      for (const Step& step : rest) {
        p.apply(step.update());
        const std::uint64_t value = Reading<float>(p).digest();
        digest.put<std::uint64_t>({&value, 1});
      }
      return digest.value();
    };
    support::Child child(go_on);
    const std::uint64_t expected = go_on();
    std::uint64_t value = 0;
    CHECK(child.finish(value));
    CHECK_EQUAL(value, expected);
  }
}

TEST(two_propagators_may_work_at_once) {
  const int steps = int(repeats(60, 25));
  const auto alone_one = run<float>(many_channels(false, 1), busy_options(false), 81, steps);
  const auto alone_two = run<double>(many_channels(true, 1), busy_options(true), 82, steps);
  std::vector<Reading<float>> one;
  std::vector<Reading<double>> two;
  std::thread first(
      [&] { one = run<float>(many_channels(false, 2), busy_options(false), 81, steps); });
  std::thread second(
      [&] { two = run<double>(many_channels(true, 2), busy_options(true), 82, steps); });
  first.join();
  second.join();
  CHECK(one == alone_one);
  CHECK(two == alone_two);
}
