// Versions of random histories, and models that follow their definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "check.hpp"
#include "history.hpp"
#include "support.hpp"
#include "versions.hpp"

namespace versions_tests {

using history::History;
using history::Pair;
using history::Step;
using support::contents;
using support::Random;
using support::repeats;
using tidegraph::Direction;
using tidegraph::EventError;
using tidegraph::Node;
using tidegraph::Op;
using tidegraph::Versions;
using tidegraph::VersionSpec;
using tidegraph::View;
using Kind = tidegraph::VersionSpec::Kind;

inline constexpr double kForgotten = 0x1p-54;
inline const VersionSpec kAll{Kind::all, 0, 0, 0};
inline VersionSpec decay(double half_life, int forget) {
  return {Kind::decay, half_life, 0, forget};
}
inline VersionSpec window(std::int64_t span) { return {Kind::window, 0, span, 0}; }
inline VersionSpec last(std::int64_t events) { return {Kind::last, 0, events, 0}; }

// Every version in every direction of the graph.
inline Versions make(std::size_t nodes, bool directed, double self_loop,
                     const std::vector<VersionSpec>& specs) {
  std::vector<std::pair<std::size_t, Direction>> views;
  for (std::size_t v = 0; v < specs.size(); ++v) {
    views.emplace_back(v, Direction::out);
    if (!directed) continue;
    views.emplace_back(v, Direction::in);
    views.emplace_back(v, Direction::both);
  }
  return Versions(nodes, directed, self_loop, kForgotten, specs, views);
}

inline void apply(Versions& versions, const Step& step) {
  versions.check(step.rows(), step.new_nodes, step.removed_nodes, step.end);
  versions.pass_time(step.end);
  versions.change(step.rows(), step.new_nodes, step.removed_nodes);
}

inline std::map<Pair, double> edges(const Versions& versions, std::optional<std::size_t> version) {
  const Versions::Edges found = versions.edges_of(version);
  std::map<Pair, double> all;
  for (std::size_t e = 0; e < found.src.size(); ++e)
    all[{found.src[e], found.dst[e]}] = found.weight[e];
  return all.size() == found.src.size()
             ? all
             : std::map<Pair, double>{{{-1, -1}, 0.0}};  // an edge is repeated
}

inline double weight(const Versions& versions, std::optional<std::size_t> version, Pair pair) {
  const std::map<Pair, double> all = edges(versions, version);
  return all.count(pair) ? all.at(pair) : 0;
}

// The largest difference of two graphs, relative to the larger weight. Ignores differences up to
// `negligible`.
inline double difference(const std::map<Pair, double>& a, const std::map<Pair, double>& b,
                         double negligible = 0) {
  double worst = 0;
  for (const auto* one : {&a, &b})
    for (const auto& [pair, w] : *one) {
      const auto find = [&](const std::map<Pair, double>& graph) {
        const auto found = graph.find(pair);
        return found == graph.end() ? 0.0 : found->second;
      };
      const double larger = std::max(find(a), find(b)), smaller = std::min(find(a), find(b));
      if (larger > 0) worst = std::max(worst, (larger - smaller - negligible) / larger);
    }
  return worst;
}

// The most that edges missing from `found` weigh at any node.
inline double missing(const std::map<Pair, double>& found, const std::map<Pair, double>& right) {
  std::map<std::int64_t, double> sums;
  for (const auto& [pair, w] : right) {
    if (found.count(pair)) continue;
    sums[pair.first] += w;
    if (pair.first != pair.second) sums[pair.second] += w;
  }
  double most = 0;
  for (const auto& [node, sum] : sums) most = std::max(most, sum);
  return most;
}

// What a version should hold by its definition, row by row.
class Model {
 public:
  virtual ~Model() = default;
  virtual void begin(std::int64_t, std::int64_t) {}  // a step, its first row and its end
  virtual void clock(std::int64_t) {}
  virtual void row(const History::Made& made) = 0;
  virtual void new_node() {}
  virtual std::map<Pair, double> edges() const = 0;
  virtual double loop(std::size_t) const { return self_loop; }
  virtual void remove_node(std::int64_t node) = 0;
  double self_loop = 1;
};

// A removal takes from the oldest contributions, even those that left the window. The list of an
// edge never loses any, so it sums to the user's weight.
class WindowModel final : public Model {
 public:
  WindowModel(std::int64_t span, bool counts_events) : span_(span), counts_events_(counts_events) {}
  void clock(std::int64_t t) override { now_ = t; }
  void row(const History::Made& made) override {
    now_ = made.t;
    std::deque<Part>& parts = parts_[made.pair];
    if (made.op == Op::remove) {
      double rest = double(made.before) - double(made.after);
      while (rest > 0 && !parts.empty()) {
        const double taken = std::min(rest, parts.front().left);
        rest -= taken;
        parts.front().left -= taken;
        if (parts.front().left == 0) parts.pop_front();
      }
      return;
    }
    if (made.op == Op::set) parts.clear();
    parts.push_back({made.t, ++events_, made.weight});
  }
  std::map<Pair, double> edges() const override {
    std::map<Pair, double> all;
    for (const auto& [pair, parts] : parts_)
      for (const Part& part : parts)
        if (counts_events_ ? part.number > events_ - span_ : part.t > now_ - span_)
          all[pair] += part.left;
    return all;
  }
  void remove_node(std::int64_t node) override {
    std::erase_if(parts_,
                  [&](const auto& e) { return e.first.first == node || e.first.second == node; });
  }

 private:
  struct Part {
    std::int64_t t, number;
    double left;
  };
  std::int64_t span_;
  bool counts_events_;
  std::map<Pair, std::deque<Part>> parts_;
  std::int64_t events_ = 0, now_ = 0;
};

class AllModel final : public Model {
 public:
  void row(const History::Made& made) override {
    if (made.after > 0)
      graph_[made.pair] = double(made.after);
    else
      graph_.erase(made.pair);
  }
  std::map<Pair, double> edges() const override { return graph_; }
  void remove_node(std::int64_t node) override {
    std::erase_if(graph_,
                  [&](const auto& e) { return e.first.first == node || e.first.second == node; });
  }

 private:
  std::map<Pair, double> graph_;
};

// Weights in units of the first time, so that passing time changes none of them. With self-loops
// this model drops no edge.
class DecayModel final : public Model {
 public:
  DecayModel(double half_life, int forget, std::size_t nodes, double self)
      : half_life_(half_life), forget_(forget) {
    self_loop = self;
    renewed_.resize(nodes, 0.0L);
  }
  void begin(std::int64_t first, std::int64_t end) override {
    if (!started_) start_ = first;
    started_ = true;
    const std::int64_t boundary = std::int64_t(std::floor(half_lives(end)));
    if (boundary > boundary_)
      std::erase_if(graph_, [&](const auto& e) { return e.second < floor(boundary, lightest_); });
    boundary_ = std::max(boundary, boundary_);
    planned_ = lightest_;
  }
  void clock(std::int64_t t) override {
    now_ = half_lives(t);
    lightest_ = planned_;
  }
  void row(const History::Made& made) override {
    const long double then = half_lives(made.t);
    long double& w = graph_[made.pair];
    const long double fresh = made.weight * std::exp2(then);
    if (made.op == Op::add) w += fresh;
    if (made.op == Op::set) w = fresh;
    if (made.op == Op::remove) w *= (long double)(made.after) / made.before;
    if (made.op == Op::add) planned_ = std::min(planned_, made.weight);
    if (made.after > 0) planned_ = std::min(planned_, made.after);
    if (w < floor(boundary_, planned_) || w == 0) graph_.erase(made.pair);
    for (const std::int64_t node : {made.pair.first, made.pair.second})
      if (std::size_t(node) < renewed_.size()) renewed_[std::size_t(node)] = then;
  }
  void new_node() override { renewed_.push_back(now_); }
  double loop(std::size_t node) const override {
    return double(self_loop * std::exp2(std::max(renewed_[node], (long double)(boundary_)) - now_));
  }
  std::map<Pair, double> edges() const override {
    std::map<Pair, double> present;
    for (const auto& [pair, w] : graph_) present[pair] = double(w / std::exp2(now_));
    return present;
  }
  void remove_node(std::int64_t node) override {
    std::erase_if(graph_,
                  [&](const auto& e) { return e.first.first == node || e.first.second == node; });
  }

 private:
  long double half_lives(std::int64_t t) const { return (long double)(t - start_) / half_life_; }
  // In units of the first time.
  long double floor(std::int64_t boundary, double lightest) const {
    if (self_loop > 0) return 0;
    return (1 - 0x1p-20L) * lightest * std::exp2((long double)(boundary - forget_));
  }
  double half_life_;
  int forget_;
  std::map<Pair, long double> graph_;
  std::vector<long double> renewed_;  // in half-lives
  bool started_ = false;
  std::int64_t start_ = 0, boundary_ = 0;
  long double now_ = 0;
  double lightest_ = 1, planned_ = 1;
};

inline std::vector<std::unique_ptr<Model>> models(const std::vector<VersionSpec>& specs,
                                                  std::size_t nodes, double self_loop) {
  std::vector<std::unique_ptr<Model>> all;
  for (const VersionSpec& spec : specs) {
    if (spec.kind == Kind::all) all.push_back(std::make_unique<AllModel>());
    if (spec.kind == Kind::window) all.push_back(std::make_unique<WindowModel>(spec.span, false));
    if (spec.kind == Kind::last) all.push_back(std::make_unique<WindowModel>(spec.span, true));
    if (spec.kind == Kind::decay)
      all.push_back(std::make_unique<DecayModel>(spec.half_life, spec.forget, nodes, self_loop));
    all.back()->self_loop = self_loop;
  }
  return all;
}

inline void follow(Model& model, const History& history, const Step& step) {
  if (step.end) model.begin(step.t.empty() ? *step.end : step.t.front(), *step.end);
  for (const History::Made& made : history.made()) model.row(made);
  if (step.end) model.clock(*step.end);
  for (std::size_t i = 0; i < step.new_nodes; ++i) model.new_node();
  for (const std::int64_t node : step.removed_nodes) model.remove_node(node);
}

using Matrix = std::map<Pair, double>;

// The matrix of a view in stored units: self-loops on the diagonal, edges as the direction says.
inline Matrix matrix(const Versions& versions, const View& view) {
  const double unit = versions.present(view.version());
  Matrix all;
  for (std::size_t node = 0; node < versions.nodes(); ++node)
    all[{node, node}] += versions.loop(view.version(), Node(node)) * unit;
  for (const auto& [pair, w] : edges(versions, view.version())) {
    const auto [src, dst] = pair;
    const bool undirected = !versions.directed(), both = view.direction() == Direction::both;
    if (undirected || both || view.direction() == Direction::out) all[{src, dst}] += w * unit;
    if (undirected && src == dst) continue;
    if (undirected || both || view.direction() == Direction::in) all[{dst, src}] += w * unit;
  }
  return all;
}

inline std::vector<double> row_sums(const Matrix& matrix, std::size_t nodes) {
  std::vector<double> sums(nodes, 0.0);
  for (const auto& [pair, w] : matrix) sums[std::size_t(pair.first)] += w;
  return sums;
}

// The matrices of every view before a change, to verify that the reported changes lead to those
// after it.
class Ledger {
 public:
  explicit Ledger(const Versions& versions) {
    for (const View& view : versions.views()) before_.push_back(matrix(versions, view));
  }
  // The largest departure, relative to the degree.
  double departure(const Versions& versions, bool time_passed) const {
    double worst = 0;
    for (std::size_t v = 0; v < before_.size(); ++v) {
      const View& view = versions.views()[v];
      const Matrix after = matrix(versions, view);
      const std::vector<double> sums = row_sums(after, versions.nodes());
      Matrix expected = before_[v];
      const std::vector<double> old_sums = row_sums(expected, versions.nodes());
      const auto depart = [&](std::size_t node, double a, double b) {
        const double size =
            std::max({std::abs(a), std::abs(b), sums[node], old_sums[node], 1e-300});
        worst = std::max(worst, std::abs(a - b) / size);
      };
      for (std::size_t node = 0; node < versions.nodes(); ++node)
        depart(node, sums[node], view.degree(Node(node)));
      std::span<const Versions::RescaledRow> rescaled;
      if (time_passed) rescaled = versions.rescaled(view.version());
      const double factor = versions.rescale_factor(view.version());
      std::vector<std::uint8_t> partly(versions.nodes());  // dropped an edge
      std::vector<double> factors(versions.nodes(), 1.0);
      for (std::size_t i = 0; i < rescaled.size(); ++i) {
        if (i && rescaled[i].node <= rescaled[i - 1].node) worst = 1;
        partly[rescaled[i].node] = !rescaled[i].whole;
        factors[rescaled[i].node] = factor;
        depart(rescaled[i].node, view.rescaled_degrees()[i].before, old_sums[rescaled[i].node]);
        depart(rescaled[i].node, view.rescaled_degrees()[i].after, sums[rescaled[i].node]);
      }
      for (auto& [pair, w] : expected) w *= factors[std::size_t(pair.first)];
      for (const Versions::RescaledRow& each : rescaled)
        expected[{each.node, each.node}] += each.loop_after - factor * each.loop_before;
      for (std::size_t node = before_nodes(v); node < versions.nodes(); ++node)
        expected[{node, node}] += versions.stored_loop(view, Node(node));
      for (const View::Degree& moved : view.moved()) {
        if (time_passed) break;  // of the step before
        if (moved.node < before_nodes(v)) depart(moved.node, moved.before, old_sums[moved.node]);
        depart(moved.node, moved.after, sums[moved.node]);
        for (std::uint32_t t = moved.first; t < moved.last; ++t)
          expected[{moved.node, view.terms()[t].other}] += view.terms()[t].change;
      }
      for (const Matrix* one : {&std::as_const(expected), &after})
        for (const auto& [pair, w] : *one) {
          const Node row = Node(pair.first);
          if (partly[row]) continue;  // has to be recomputed
          const auto find = [&](const Matrix& m) { return m.count(pair) ? m.at(pair) : 0.0; };
          depart(std::size_t(pair.first), find(expected), find(after));
        }
    }
    return worst;
  }

 private:
  std::size_t before_nodes(std::size_t v) const {
    std::size_t count = 0;
    for (const auto& [pair, w] : before_[v]) count = std::max(count, std::size_t(pair.first) + 1);
    return count;
  }
  std::vector<Matrix> before_;
};

// Applies a step and returns the largest departure of what its two halves report.
inline double apply_and_audit(Versions& versions, const Step& step) {
  versions.check(step.rows(), step.new_nodes, step.removed_nodes, step.end);
  const Ledger before(versions);
  versions.pass_time(step.end);
  const double passing = before.departure(versions, true);
  const Ledger between(versions);
  versions.change(step.rows(), step.new_nodes, step.removed_nodes);
  return std::max(passing, between.departure(versions, false));
}

inline bool rejects(Versions& versions, const Step& step) {
  try {
    versions.check(step.rows(), step.new_nodes, step.removed_nodes, step.end);
  } catch (const EventError&) { return true; }
  return false;
}

}  // namespace versions_tests
