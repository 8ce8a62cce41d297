#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "check.hpp"
#include "history.hpp"
#include "support.hpp"
#include "versions.hpp"

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
using tidegraph::PairMap;
using tidegraph::Versions;
using tidegraph::VersionSpec;
using tidegraph::View;
using Kind = tidegraph::VersionSpec::Kind;

namespace {

constexpr double kForgotten = 0x1p-54;
const VersionSpec kAll{Kind::all, 0, 0, 0};
VersionSpec decay(double half_life, int forget) { return {Kind::decay, half_life, 0, forget}; }
VersionSpec window(std::int64_t span) { return {Kind::window, 0, span, 0}; }
VersionSpec last(std::int64_t events) { return {Kind::last, 0, events, 0}; }

// Every version in every direction that the graph has.
Versions make(std::size_t nodes, bool directed, double self_loop,
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

void apply(Versions& versions, const Step& step) {
  versions.check(step.rows(), step.new_nodes, step.removed_nodes, step.end);
  versions.pass_time(step.end);
  versions.change(step.rows(), step.new_nodes, step.removed_nodes);
}

std::map<Pair, double> edges(const Versions& versions, std::optional<std::size_t> version) {
  const Versions::Edges found = versions.edges_of(version);
  std::map<Pair, double> all;
  for (std::size_t e = 0; e < found.src.size(); ++e)
    all[{found.src[e], found.dst[e]}] = found.weight[e];
  return all.size() == found.src.size()
             ? all
             : std::map<Pair, double>{{{-1, -1}, 0.0}};  // an edge came twice
}

double weight(const Versions& versions, std::optional<std::size_t> version, Pair pair) {
  const std::map<Pair, double> all = edges(versions, version);
  return all.count(pair) ? all.at(pair) : 0;
}

// Largest difference of two graphs, as a share of the larger weight. What is not larger than
// `negligible` does not count.
double difference(const std::map<Pair, double>& a, const std::map<Pair, double>& b,
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

// The most that edges of `right` which are not in `found` weigh at any node.
double missing(const std::map<Pair, double>& found, const std::map<Pair, double>& right) {
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

// ---- what a version should hold, from the definition and row by row
// -------------------------------------------------

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

// A removal takes from the oldest contributions, whether the window still holds them or not.
// Nothing is ever dropped from the list of an edge, so the list of each sums to the user's weight.
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

// Weights in units of the first time seen, so that time passing changes none of them. With
// self-loops nothing is forgotten here.
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

std::vector<std::unique_ptr<Model>> models(const std::vector<VersionSpec>& specs, std::size_t nodes,
                                           double self_loop) {
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

void follow(Model& model, const History& history, const Step& step) {
  if (step.end) model.begin(step.t.empty() ? *step.end : step.t.front(), *step.end);
  for (const History::Made& made : history.made()) model.row(made);
  if (step.end) model.clock(*step.end);
  for (std::size_t i = 0; i < step.new_nodes; ++i) model.new_node();
  for (const std::int64_t node : step.removed_nodes) model.remove_node(node);
}

// ---- laws of a view
// -------------------------------------------------------------------------------------------------

using Matrix = std::map<Pair, double>;

// The matrix of a view in stored units: self-loops on the diagonal, edges as the direction says.
Matrix matrix(const Versions& versions, const View& view) {
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

std::vector<double> row_sums(const Matrix& matrix, std::size_t nodes) {
  std::vector<double> sums(nodes, 0.0);
  for (const auto& [pair, w] : matrix) sums[std::size_t(pair.first)] += w;
  return sums;
}

// Matrices of every view before a change, and whether what the change reports leads to those after
// it.
class Ledger {
 public:
  explicit Ledger(const Versions& versions) {
    for (const View& view : versions.views()) before_.push_back(matrix(versions, view));
  }
  // The largest departure, as a share of the degree it belongs to.
  double departure(const Versions& versions, bool time_passed) const {
    double worst = 0;
    for (std::size_t v = 0; v < before_.size(); ++v) {
      const View& view = versions.views()[v];
      const Matrix after = matrix(versions, view);
      const std::vector<double> sums = row_sums(after, versions.nodes());
      Matrix told = before_[v];
      const std::vector<double> old_sums = row_sums(told, versions.nodes());
      const auto depart = [&](std::size_t node, double a, double b) {
        const double size =
            std::max({std::abs(a), std::abs(b), sums[node], old_sums[node], 1e-300});
        worst = std::max(worst, std::abs(a - b) / size);
      };
      for (std::size_t node = 0; node < versions.nodes(); ++node)
        depart(node, sums[node], view.degree(Node(node)));
      std::span<const Versions::RescaledRow> swept;
      if (time_passed) swept = versions.rescaled(view.version());
      const double factor = versions.rescale_factor(view.version());
      std::vector<std::uint8_t> partly(versions.nodes());  // lost an edge on the way
      std::vector<double> factors(versions.nodes(), 1.0);
      for (std::size_t i = 0; i < swept.size(); ++i) {
        if (i && swept[i].node <= swept[i - 1].node) worst = 1;
        partly[swept[i].node] = !swept[i].whole;
        factors[swept[i].node] = factor;
        depart(swept[i].node, view.rescaled_degrees()[i].before, old_sums[swept[i].node]);
        depart(swept[i].node, view.rescaled_degrees()[i].after, sums[swept[i].node]);
      }
      for (auto& [pair, w] : told) w *= factors[std::size_t(pair.first)];
      for (const Versions::RescaledRow& each : swept)
        told[{each.node, each.node}] += each.loop_after - factor * each.loop_before;
      for (std::size_t node = before_nodes(v); node < versions.nodes(); ++node)
        told[{node, node}] += versions.stored_loop(view, Node(node));
      for (const View::Degree& moved : view.moved()) {
        if (time_passed) break;  // told of the step before
        if (moved.node < before_nodes(v)) depart(moved.node, moved.before, old_sums[moved.node]);
        depart(moved.node, moved.after, sums[moved.node]);
        for (std::uint32_t t = moved.first; t < moved.last; ++t)
          told[{moved.node, view.terms()[t].other}] += view.terms()[t].change;
      }
      for (const Matrix* one : {&std::as_const(told), &after})
        for (const auto& [pair, w] : *one) {
          const Node row = Node(pair.first);
          if (partly[row]) continue;  // computed from scratch
          const auto find = [&](const Matrix& m) { return m.count(pair) ? m.at(pair) : 0.0; };
          depart(std::size_t(pair.first), find(told), find(after));
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

// Applies a step; the largest departure of what its two halves report.
double apply_and_audit(Versions& versions, const Step& step) {
  versions.check(step.rows(), step.new_nodes, step.removed_nodes, step.end);
  const Ledger before(versions);
  versions.pass_time(step.end);
  const double passing = before.departure(versions, true);
  const Ledger between(versions);
  versions.change(step.rows(), step.new_nodes, step.removed_nodes);
  return std::max(passing, between.departure(versions, false));
}

bool refuses(Versions& versions, const Step& step) {
  try {
    versions.check(step.rows(), step.new_nodes, step.removed_nodes, step.end);
  } catch (const EventError&) { return true; }
  return false;
}

}  // namespace

// ---- PairMap
// --------------------------------------------------------------------------------------------------------

TEST(a_pair_map_agrees_with_a_map) {
  for (std::size_t style = 0; style < 3; ++style) {
    PairMap pairs;
    std::unordered_map<std::uint64_t, std::uint32_t> model;
    std::vector<std::uint64_t> keys;  // of the model, in any order
    Random random(style);
    std::size_t wrong = 0;
    CHECK_EQUAL(pairs.find(0), PairMap::kAbsent);
    for (std::size_t i = 0; i < repeats(1'000'000, 200'000); ++i) {
      const bool growing = i / 100'000 % 2 == 0;
      const std::uint64_t a = random.below(2000), b = random.below(300);
      // Dense pairs, pairs alike in their low halves, anything.
      const std::uint64_t key = style == 0   ? a << 32 | b
                                : style == 1 ? (a * 300 + b) << 32 | 7
                                             : random.next() / 2;
      const auto found = model.find(key);
      wrong += pairs.find(key) != (found == model.end() ? PairMap::kAbsent : found->second);
      if (found == model.end() && random.chance(growing ? 0.9 : 0.2)) {
        pairs.insert(key, std::uint32_t(i));
        model[key] = std::uint32_t(i);
        keys.push_back(key);
      }
      if (!keys.empty() && random.chance(growing ? 0.2 : 0.9)) {
        std::uint64_t& chosen = keys[random.below(keys.size())];
        wrong += pairs.find(chosen) != model.at(chosen);
        pairs.erase(chosen);
        wrong += pairs.find(chosen) != PairMap::kAbsent;
        model.erase(chosen);
        chosen = keys.back();
        keys.pop_back();
      }
      wrong += pairs.size() != model.size();
    }
    for (const auto& [key, value] : model) wrong += pairs.find(key) != value;
    CHECK_EQUAL(wrong, 0);
  }
}

TEST(a_pair_map_that_has_grown_takes_no_more_memory) {
  PairMap pairs;
  for (std::uint64_t key = 0; key < 1000; ++key) pairs.insert(key << 32, 1);
  const std::size_t bytes = pairs.bytes();
  for (std::uint64_t key = 0; key < 100'000; ++key) {
    pairs.erase(key << 32);
    pairs.insert((key + 1000) << 32, 1);
  }
  CHECK_EQUAL(pairs.bytes(), bytes);
  CHECK_EQUAL(pairs.size(), 1000);
}

// ---- all versions against the definitions
// ---------------------------------------------------------------------------

TEST(every_version_holds_what_its_definition_says) {
  const std::vector<VersionSpec> specs{kAll,          window(1),    window(7), window(60),
                                       last(1),       last(5),      last(64),  decay(4, 16),
                                       decay(2.5, 8), decay(64, 24)};
  for (const bool directed : {false, true}) {
    for (const double self_loop : {1.0, 0.125, 0.0}) {
      if (directed && self_loop == 0) continue;
      for (std::uint64_t seed = 0; seed < repeats(4, 1); ++seed) {
        history::Options options;
        options.directed = directed;
        options.timed = true;
        options.long_pause = 0.03;
        options.pause = seed % 2 ? 40 : 1000;
        History history(options, 100 * seed + 7);
        Versions versions = make(options.nodes, directed, self_loop, specs);
        const auto expected = models(specs, options.nodes, self_loop);
        double worst = 0, worst_loop = 0, departure = 0, forgotten = 0;
        std::size_t wrong = 0;
        for (int i = 0; i < 120; ++i) {
          const Step step = history.next();
          departure = std::max(departure, apply_and_audit(versions, step));
          std::map<Pair, double> user;
          for (const auto& [pair, w] : history.graph()) user[pair] = double(w);
          wrong += edges(versions, std::nullopt) != user || versions.edges() != user.size();
          wrong += versions.nodes() != history.nodes();
          for (std::size_t v = 0; v < specs.size(); ++v) {
            follow(*expected[v], history, step);
            const std::map<Pair, double> found = edges(versions, v), right = expected[v]->edges();
            if (specs[v].kind == Kind::decay) {
              worst = std::max(worst, difference(found, right, kForgotten * self_loop));
              forgotten = std::max(
                  forgotten, missing(found, right) * versions.present(v) - versions.forgotten(v));
            } else {
              wrong += found != right;
            }
            for (std::size_t node = 0; node < versions.nodes(); ++node) {
              if (history.removed(node) || self_loop == 0) continue;
              const double loop = versions.loop(v, Node(node)), model = expected[v]->loop(node);
              worst_loop = std::max(worst_loop, std::abs(loop / model - 1));
            }
          }
        }
        CHECK_EQUAL(wrong, 0);
        // Each row of an edge rounds its decayed weight a few times.
        CHECK_AT_MOST(worst, 64 * 0x1p-53);
        CHECK_AT_MOST(worst_loop, 4 * 0x1p-53);
        CHECK_AT_MOST(forgotten, 0.0);
        // Degrees and terms are sums of double of weights that are exact in double.
        CHECK_AT_MOST(departure, 1e-12);
      }
    }
  }
}

TEST(degrees_stay_those_of_the_graph_with_weights_that_do_not_add_up_exactly) {
  const std::vector<VersionSpec> specs{kAll, window(20), last(12), decay(8, 16)};
  for (const bool directed : {false, true}) {
    history::Options options;
    options.directed = directed;
    options.timed = true;
    options.exact_weights = false;
    History history(options, 77);
    Versions versions = make(options.nodes, directed, 1, specs);
    const auto expected = models(specs, options.nodes, 1);
    double worst = 0, departure = 0;
    for (std::size_t i = 0; i < repeats(2000, 400); ++i) {
      const Step step = history.next();
      const bool look = i % 50 == 0;
      if (look)
        departure = std::max(departure, apply_and_audit(versions, step));
      else
        apply(versions, step);
      for (std::size_t v = 0; v < specs.size(); ++v) {
        follow(*expected[v], history, step);
        if (!look) continue;
        // What a removal leaves of a windowed edge is known as well as the user's weight: to an ulp
        // of what has been there.
        const std::map<Pair, double> found = edges(versions, v), right = expected[v]->edges();
        for (const auto& [pair, w] : right) {
          const double other = found.count(pair) ? found.at(pair) : 0;
          worst = std::max(worst, std::abs(w - other));
        }
      }
    }
    CHECK_AT_MOST(worst, 1e-13);
    CHECK_AT_MOST(departure, 1e-14);
  }
}

TEST(how_rows_are_batched_does_not_matter) {
  const std::vector<VersionSpec> specs{kAll, window(9), last(10), decay(4, 16), decay(32, 8)};
  for (const bool directed : {false, true}) {
    for (std::uint64_t seed = 0; seed < repeats(8, 3); ++seed) {
      history::Options options;
      options.directed = directed;
      options.timed = true;
      options.node_events = false;
      options.long_pause = 0.05;
      options.pause = 60;
      History history(options, 31 * seed + 1);
      Step whole;
      std::vector<Step> singles;
      for (int i = 0; i < 60; ++i) {
        const Step step = history.next();
        for (std::size_t row = 0; row < step.src.size(); ++row) {
          const auto same = [&](Step& to) {
            to.row(step.src[row], step.dst[row], step.weight[row], Op(step.op[row]))
                .at(step.t[row]);
          };
          same(whole);
          same(singles.emplace_back());
        }
      }
      Versions at_once = make(options.nodes, directed, 1, specs),
               one_by_one = make(options.nodes, directed, 1, specs),
               with_clock = make(options.nodes, directed, 1, specs);
      apply(at_once, whole);
      std::int64_t now = whole.t.front();
      for (const Step& step : singles) {
        apply(one_by_one, step);
        for (++now; now < step.t.front(); ++now) apply(with_clock, Step().at(now));
        now = step.t.front();
        apply(with_clock, step);
      }
      for (std::size_t v = 0; v < specs.size(); ++v) {
        for (const Versions* other : {&one_by_one, &with_clock}) {
          if (specs[v].kind != Kind::decay) CHECK(edges(at_once, v) == edges(*other, v));
          CHECK_AT_MOST(difference(edges(at_once, v), edges(*other, v), kForgotten), 64 * 0x1p-53);
          double worst = 0;
          for (Node node = 0; node < options.nodes; ++node)
            worst = std::max(worst, std::abs(at_once.loop(v, node) / other->loop(v, node) - 1));
          CHECK_AT_MOST(worst, 4 * 0x1p-53);
        }
      }
    }
  }
}

// ---- windows
// --------------------------------------------------------------------------------------------------------

TEST(an_event_counts_while_it_is_younger_than_the_window) {
  Versions versions = make(2, false, 1, {window(10)});
  apply(versions, Step().row(0, 1, 2).at(100));
  apply(versions, Step().at(109));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  apply(versions, Step().at(110));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 2.0);
  CHECK_EQUAL(versions.views()[0].degree(0), 1.0);
}

TEST(the_last_events_count_and_removals_are_none) {
  Versions versions = make(4, false, 1, {last(2)});
  apply(versions, Step().row(0, 1).row(1, 2));
  apply(versions, Step().remove(0, 1));
  CHECK_EQUAL(edges(versions, 0).size(), 1);
  apply(versions, Step().row(2, 3));  // pushes out the event that was removed already
  CHECK_EQUAL(edges(versions, 0).size(), 2);
  apply(versions, Step().set(2, 3, 5));
  CHECK_EQUAL(edges(versions, 0).size(), 1);
  CHECK_EQUAL(weight(versions, 0, {2, 3}), 5.0);
}

TEST(a_removal_takes_the_oldest_contributions_also_those_that_expired) {
  Versions versions = make(2, false, 1, {window(10)});
  apply(versions, Step().row(0, 1, 3).at(0));
  apply(versions, Step().row(0, 1, 2).at(5));
  apply(versions, Step().remove(0, 1, 1).at(6));  // of the first
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 4.0);
  apply(versions, Step().at(10));  // the rest of the first expires
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  apply(versions, Step().remove(0, 1, 1.5).at(11));  // still of the first, for the user has it
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  apply(versions, Step().remove(0, 1, 1.5).at(12));  // half of it, and one of the second
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 1.0);
  CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 1.0);
}

TEST(what_was_removed_does_not_expire_a_second_time) {
  Versions versions = make(2, false, 1, {window(10), last(3)});
  apply(versions, Step().row(0, 1, 1).at(0));
  apply(versions, Step().remove(0, 1).at(1));
  apply(versions, Step().row(0, 1, 4).at(5));
  apply(versions, Step().at(10));  // when the first would have left
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 4.0);
  apply(versions, Step().set(0, 1, 2).at(11));
  apply(versions, Step().at(15));  // and the second, which was replaced
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  CHECK_EQUAL(weight(versions, 1, {0, 1}), 2.0);
  apply(versions, Step().at(21));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK_EQUAL(versions.views()[0].degree(1), 1.0);
}

TEST(removing_what_a_window_let_go_is_no_event_there) {
  Versions versions = make(3, false, 1, {kAll, window(10)});
  apply(versions, Step().row(0, 1).at(0));
  apply(versions, Step().row(1, 2).at(20));
  const auto before = edges(versions, 1);
  apply(versions, Step().remove(0, 1).at(21));
  CHECK(edges(versions, 1) == before);
  CHECK(versions.views()[1].moved().empty());
  CHECK_EQUAL(versions.edges(), 1);
}

TEST(a_window_over_an_endless_stream_stays_bounded) {
  Versions versions = make(50, false, 1, {window(100)});
  Random random(1);
  std::map<Pair, bool> present;
  std::size_t early = 0, most = 0;
  const std::int64_t end = std::int64_t(repeats(50'000, 10'000));
  for (std::int64_t t = 0; t < end; ++t) {
    const std::int64_t src = std::int64_t(random.below(50)), dst = std::int64_t(random.below(50));
    bool& exists = present[std::minmax(src, dst)];
    apply(versions,
          exists && t % 3 == 2 ? Step().remove(src, dst).at(t) : Step().row(src, dst).at(t));
    exists = !(exists && t % 3 == 2);
    if (t < end / 2)
      early = std::max(early, versions.bytes());
    else
      most = std::max(most, versions.bytes());
  }
  CHECK_AT_MOST(most, early + early / 2);
  CHECK_AT_MOST(edges(versions, 0).size(), 100);
}

// An edge as the list of its contributions.
class NaiveWindow {
 public:
  void add(std::int64_t t, std::uint64_t key, double weight) { parts_.push_back({t, key, weight}); }
  long double sum(std::uint64_t key, std::size_t first = 0) const {
    long double sum = 0;
    for (std::size_t i = first; i < parts_.size(); ++i)
      if (parts_[i].key == key) sum += parts_[i].left;
    return sum;
  }
  void lower(std::uint64_t key, double weight) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].key != key) continue;
      const long double rest = sum(key, i + 1);
      if (rest + parts_[i].left <= weight) return;
      parts_[i].left = std::max(0.0L, weight - rest);
    }
  }
  void drop_beyond(std::size_t most) {
    while (parts_.size() > most) parts_.pop_front();
  }
  void drop_until(std::int64_t until) {
    while (!parts_.empty() && parts_.front().t <= until) parts_.pop_front();
  }

 private:
  struct Part {
    std::int64_t t;
    std::uint64_t key;
    long double left;
  };
  std::deque<Part> parts_;
};

TEST(a_window_of_edges_is_the_list_of_what_came_into_it) {
  for (const bool directed : {false, true}) {
    for (std::uint64_t seed = 0; seed < repeats(20, 4); ++seed) {
      constexpr std::uint64_t kNodes = 4;
      auto window = std::make_unique<tidegraph::EdgeWindow>(directed);
      window->resize(kNodes);
      NaiveWindow naive;
      Random random(seed);
      std::map<std::uint64_t, double> told;  // what settling said last
      double worst = 0;
      std::size_t wrong = 0;
      for (std::int64_t t = 0; t < 600; ++t) {
        for (std::size_t i = random.below(4); i > 0; --i) {
          std::uint64_t src = random.below(kNodes), dst = random.below(kNodes);
          if (!directed && src > dst) std::swap(src, dst);
          const std::uint64_t key = src << 32 | dst;
          if (random.chance(0.3)) {
            // A removal that leaves less than 2^-32 of an edge leaves nothing.
            const double share = std::exp2(random.between(-32, 0));
            const double to = random.chance(0.2) ? 0 : double(naive.sum(key)) * share;
            window->lower(key, to);
            naive.lower(key, to);
          } else {
            const double weight = std::pow(10.0, random.between(-12, 12));
            window->add(t, key, weight);
            naive.add(t, key, weight);
          }
        }
        if (seed % 2) {
          window->drop_until(t - 15);
          naive.drop_until(t - 15);
        } else {
          window->drop_beyond(25);
          naive.drop_beyond(25);
        }
        window->apply([&](Node src, Node dst, double before, double after) {
          double& known = told[std::uint64_t(src) << 32 | dst];
          wrong += known != before;
          known = after;
        });
        std::size_t edges = 0;
        for (std::uint64_t src = 0; src < kNodes; ++src)
          for (std::uint64_t dst = directed ? 0 : src; dst < kNodes; ++dst) {
            const std::uint64_t key = src << 32 | dst;
            double found = 0;
            const bool exists = window->graph().read(Node(src), Node(dst), {&found, 1});
            const long double right = naive.sum(key);
            wrong += exists != (right > 0) || told[key] != found;
            edges += exists;
            if (right > 0) worst = std::max(worst, double(std::abs(found - right) / right));
          }
        wrong += window->graph().edges() != edges;
        if (t % 100 == 99) {  // read back
          support::MemoryArchive archive;
          window->archive(archive, "window");
          archive.begin_reading();
          window = std::make_unique<tidegraph::EdgeWindow>(directed);
          window->resize(kNodes);
          window->archive(archive, "window");
          support::MemoryArchive again;
          window->archive(again, "window");
          CHECK(again.arrays == archive.arrays);
        }
      }
      CHECK_EQUAL(wrong, 0);
      CHECK_AT_MOST(worst, 2 * 0x1p-53);
    }
  }
}

// ---- decay
// ----------------------------------------------------------------------------------------------------------

TEST(weights_halve_per_half_life_and_the_users_do_not) {
  Versions versions = make(2, false, 1, {decay(10, 16)});
  apply(versions, Step().row(0, 1, 8).at(1000));
  apply(versions, Step().at(1010));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 4.0);
  CHECK_EQUAL(versions.loop(0, 0), 1.0);  // as at every boundary
  CHECK_EQUAL(versions.views()[0].degree(0) / versions.present(0), 5.0);
  apply(versions, Step().row(0, 1, 1).at(1020));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 3.0);
  CHECK_EQUAL(versions.loop(0, 1), 1.0);
  apply(versions,
        Step().remove(0, 1, 4.5).at(1030));  // half of the user's nine, half of what is left
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.75);
  CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 4.5);
  apply(versions, Step().set(0, 1, 7).at(1035));
  CHECK_AT_MOST(std::abs(weight(versions, 0, {0, 1}) - 7), 7 * 0x1p-51);
}

TEST(without_self_loops_an_edge_is_forgotten_at_the_first_boundary_where_it_is_negligible) {
  Versions versions = make(2, false, 0, {decay(10, 8)});
  apply(versions, Step().row(0, 1, 1).at(0));
  apply(versions, Step().at(80));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0x1p-8);  // not below the floor
  apply(versions, Step().at(89));
  CHECK(weight(versions, 0, {0, 1}) > 0);  // below it, but no boundary
  apply(versions, Step().at(90));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK_EQUAL(versions.views()[0].degree(0), 0.0);
  CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 1.0);
  apply(versions, Step().remove(0, 1, 0.5).at(91));  // of something forgotten
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  apply(versions, Step().row(0, 1, 2).at(92));
  CHECK(std::abs(weight(versions, 0, {0, 1}) - 2) < 1e-14);
}

TEST(without_self_loops_the_lightest_weight_so_far_decides_what_is_negligible) {
  Versions versions = make(4, false, 0, {decay(10, 8)});
  CHECK_EQUAL(versions.lightest(), 1.0);
  apply(versions, Step().row(0, 1, 16).row(1, 2, 1).at(0));
  apply(versions, Step().remove(0, 1, 15.75).row(2, 3, 8).at(0));
  CHECK_EQUAL(versions.lightest(), 0.25);
  apply(versions, Step().at(80));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0x1p-10);
  apply(versions, Step().at(90));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK_EQUAL(weight(versions, 0, {1, 2}), 0x1p-9);
  apply(versions, Step().at(130));
  CHECK_EQUAL(weight(versions, 0, {1, 2}), 0.0);
  CHECK_EQUAL(weight(versions, 0, {2, 3}), 0x1p-10);
  // A row that leaves next to nothing forgets the edge at once.
  apply(versions, Step().remove(2, 3, 7).at(130));
  CHECK_EQUAL(weight(versions, 0, {2, 3}), 0.0);
  CHECK_EQUAL(weight(versions, std::nullopt, {2, 3}), 1.0);
}

TEST(with_self_loops_an_edge_fades_until_it_is_far_below_them) {
  Versions versions = make(3, false, 4, {decay(10, 8)});
  apply(versions, Step().row(0, 1, 1).row(1, 2, 1).at(0));
  for (std::int64_t half_lives = 1; half_lives < 80; ++half_lives) {
    apply(versions, Step().at(10 * half_lives));
    const double found = weight(versions, 0, {0, 1}), right = std::exp2(-double(half_lives));
    CHECK(found == right || (found == 0 && 2 * right <= versions.forgotten(0)));
    CHECK_EQUAL(versions.views()[0].degree(1), 4 + 2 * found);
  }
  CHECK_EQUAL(versions.forgotten(0), 4 * kForgotten);
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK(!versions.rescaled(0).empty() || versions.views()[0].degree(0) == 4);
  apply(versions, Step().at(1000));
  CHECK(versions.rescaled(0).empty());
}

TEST(all_self_loops_are_renewed_at_every_boundary_and_by_rows_between_them) {
  Versions versions = make(3, false, 4, {decay(10, 8)});
  apply(versions, Step().row(0, 1, 1).at(0));
  apply(versions, Step().row(0, 0, 1).at(5));
  const double half = 4 * std::exp2(-0.5);
  const auto near = [&](double a, double b) { return std::abs(a - b) <= b * 0x1p-51; };
  CHECK(near(versions.loop(0, 0), 4.0));
  CHECK(near(versions.loop(0, 1), half));
  CHECK(near(versions.loop(0, 2), half));
  apply(versions, Step().at(10));
  for (const Node node : {0, 1, 2}) CHECK_EQUAL(versions.loop(0, node), 4.0);
  apply(versions, Step().at(15));
  for (const Node node : {0, 1, 2}) CHECK(near(versions.loop(0, node), half));
  apply(versions, Step().at(181 + 90 * 1000));
  for (const Node node : {0, 1, 2}) {
    CHECK(near(versions.loop(0, node), 4 * std::exp2(-0.1)));
    CHECK(near(versions.views()[0].degree(node) / versions.present(0), versions.loop(0, node)));
  }
}

TEST(an_endless_decaying_stream_keeps_a_bounded_graph_and_finite_numbers) {
  for (const double self_loop : {1.0, 0.0}) {
    Versions versions = make(40, false, self_loop, {decay(5, 16)});
    Random random(2);
    std::size_t most = 0;
    for (std::int64_t i = 0; i < std::int64_t(repeats(20'000, 4000)); ++i) {
      const std::int64_t t = 3 * i;
      apply(versions,
            Step().row(std::int64_t(random.below(40)), std::int64_t(random.below(40))).at(t));
      most = std::max(most, edges(versions, 0).size());
      for (Node node = 0; node < 40; ++node) {
        const double degree = versions.views()[0].degree(node);
        CHECK(degree == 0 ? self_loop == 0 : degree >= 0x1p-16 && degree < 0x1p10);
      }
    }
    // Events of so many half-lives: at most 41 entries are in a row.
    const std::size_t lasting = self_loop > 0 ? 54 + 7 + 1 : 17;
    CHECK_AT_MOST(most, lasting * 5 / 3 + 10);
  }
}

TEST(a_heavy_edge_outlives_a_long_silence) {
  Versions in_one = make(3, false, 1, {decay(1, 24)}), in_two = make(3, false, 1, {decay(1, 24)});
  for (Versions* versions : {&in_one, &in_two}) apply(*versions, Step().row(0, 1, 0x1p20).at(0));
  apply(in_one, Step().at(40));
  apply(in_two, Step().at(20));
  apply(in_two, Step().at(40));
  CHECK_EQUAL(weight(in_two, 0, {0, 1}), 0x1p-20);
  CHECK_EQUAL(weight(in_one, 0, {0, 1}), 0x1p-20);
}

TEST(nothing_returns_after_a_silence_longer_than_32_bits_of_half_lives) {
  for (const int bits : {31, 32, 33, 40}) {
    Versions versions = make(3, false, 1, {decay(1, 16)});
    apply(versions, Step().row(0, 1, 1).row(1, 2, 1).at(0));
    apply(versions, Step().row(0, 1, 1).at(std::int64_t(1) << bits));
    CHECK_EQUAL(weight(versions, 0, {0, 1}), 1.0);
    CHECK_EQUAL(weight(versions, 0, {1, 2}), 0.0);
    CHECK_EQUAL(versions.loop(0, 0), 1.0);
    CHECK_EQUAL(versions.views()[0].degree(0) / versions.present(0), 2.0);
  }
}

// Boundaries are the same distance away here and there.
TEST(weights_far_from_the_start_are_kept_to_the_last_digit) {
  for (const double half_life : {3.0, 2.5, 1024.0}) {
    const std::int64_t far = std::int64_t(std::ldexp(half_life, 40));
    Versions near = make(6, true, 1, {decay(half_life, 16)}),
             distant = make(6, true, 1, {decay(half_life, 16)});
    for (Versions* versions : {&near, &distant}) apply(*versions, Step().row(0, 1, 0.1).at(-7));
    apply(near, Step().at(std::int64_t(std::ldexp(half_life, 7)) - 7));
    apply(distant, Step().at(far - 7));
    const std::int64_t begin = *near.time();
    Random random(40);
    std::int64_t passed = 0;
    for (int i = 0; i < 200; ++i) {
      passed += std::int64_t(random.below(std::uint64_t(2 * half_life)));
      const std::int64_t src = std::int64_t(random.below(6)), dst = std::int64_t(random.below(6));
      const double w = random.between(0.1, 2);
      apply(near, Step().set(src, dst, w).at(begin + passed));
      apply(distant, Step().set(src, dst, w).at(far - 7 + passed));
      CHECK(edges(near, 0) == edges(distant, 0));
      CHECK_EQUAL(near.present(0), distant.present(0));
      for (std::size_t v = 0; v < 3; ++v)
        CHECK(near.views()[v].degrees() == distant.views()[v].degrees());
    }
  }
}

TEST(half_lives_that_no_number_tells_apart_are_refused) {
  Versions versions = make(3, false, 1, {decay(1, 16)});
  apply(versions, Step().row(0, 1, 1).at(0));
  const auto before = contents(versions);
  CHECK(refuses(versions, Step().row(0, 1, 1).at((std::int64_t(1) << 52) + 1)));
  CHECK(contents(versions) == before);
  apply(versions, Step().row(0, 1, 3).at(std::int64_t(1) << 52));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 3.0);
}

// ---- rejections
// -------------------------------------------------------------------------------------------------------

TEST(what_cannot_be_applied_is_refused_and_changes_nothing) {
  for (const bool directed : {false, true}) {
    Versions versions = make(5, directed, 1, {kAll, window(10), last(4), decay(8, 16)});
    apply(versions, Step().row(0, 1, 2).row(1, 2, 3).row(2, 2, 1).at(50));
    Step removal;
    removal.removed_nodes = {4};
    apply(versions, removal.at(60));
    const auto before = contents(versions);
    std::vector<Step> bad;
    const auto step = [&]() -> Step& {
      return bad.emplace_back().row(0, 1, 1).at(61);
    };  // a good row first
    step().row(0, 5).at(61);
    step().row(-1, 0).at(61);
    step().row(0, std::int64_t(1) << 40).at(61);
    step().row(4, 0).at(61);
    step().row(0, 4).at(61);
    step().remove(0, 3).at(61);
    step().remove(0, 1, 3.1).at(61);  // of three, with the row before
    step().remove(0, 1).remove(0, 1).at(61);
    step().row(1, 2, 0x1.ffp-65).at(61);
    step().row(1, 2, 0x1.01p64).at(61);
    step().row(1, 2, 0x1p63).row(1, 2, 0x1.1p63).at(61);
    step().set(1, 2, 0x1.01p64).at(61);
    step().set(1, 2, 1e-60).at(61);
    step().row(1, 2, std::nan("")).at(61);
    step().removed_nodes = {5};
    step().removed_nodes = {-1};
    step().removed_nodes = {4};
    bad.push_back(Step().row(0, 1).at(59));
    bad.push_back(Step().at(59));
    bad.push_back(Step().row(0, 1));  // no time
    if (directed) step().remove(1, 0).at(61);
    std::size_t accepted = 0;
    for (const Step& refused : bad) accepted += !refuses(versions, refused);
    CHECK_EQUAL(accepted, 0);
    CHECK(contents(versions) == before);
    // And what comes next does not see them.
    Step good = Step().row(0, 1, 1).at(61);
    apply(versions, good);
    CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 3.0);
    CHECK_EQUAL(versions.views()[0].degree(0), 4.0);
    Step grown = Step().row(5, 6, 1).at(62);
    CHECK(refuses(versions, grown));
    grown.new_nodes = 1;
    CHECK(refuses(versions, grown));
    grown.new_nodes = 2;
    apply(versions, grown);
    CHECK_EQUAL(versions.nodes(), 7);
  }
}

TEST(a_refused_first_step_does_not_set_the_clock) {
  Versions versions = make(3, false, 1, {decay(10, 16)});
  CHECK(refuses(versions, Step().remove(0, 1).at(12345)));
  CHECK(!versions.time());
  apply(versions, Step().row(0, 1, 1).at(7));
  apply(versions, Step().at(17));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.5);
  CHECK_EQUAL(*versions.time(), 17);
}

TEST(removing_the_weight_but_for_rounding_removes_the_edge) {
  Versions versions = make(2, false, 1, {kAll});
  for (const double share : {1 - 0x1p-33, 1.0, 1 + 0.5e-6}) {
    apply(versions, Step().row(0, 1, 0.3));
    apply(versions, Step().remove(1, 0, 0.3 * share));
    CHECK_EQUAL(versions.edges(), 0);
    CHECK_EQUAL(versions.views()[0].degree(0), 1.0);
  }
  apply(versions, Step().row(0, 1, 0.3));
  CHECK(refuses(versions, Step().remove(0, 1, 0.3 * (1 + 3e-6))));
  const double most = 0.3 * (1 - 0x1p-30);
  apply(versions, Step().remove(0, 1, most));
  CHECK_EQUAL(versions.edges(), 1);
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.3 - most);
}

// ---- weights as they were given
// -------------------------------------------------------------------------------------

TEST(what_is_left_of_a_weight_is_exact) {
  for (const bool directed : {false, true}) {
    Versions versions = make(3, directed, 1, {kAll, window(100), last(100)});
    apply(versions, Step().row(0, 1, 1e6 + 0.5).row(1, 1, 1e6 + 0.125).at(0));
    apply(versions, Step().remove(0, 1, 1e6).remove(1, 1, 1e6).at(1));
    for (const std::size_t v : {0, 1, 2}) {
      CHECK_EQUAL(weight(versions, v, {0, 1}), 0.5);
      CHECK_EQUAL(weight(versions, v, {1, 1}), 0.125);
    }
    for (const View& view : versions.views())
      CHECK_EQUAL(view.degree(1), 1 + view.self_edges() * 0.125 +
                                      (view.direction() == Direction::out && directed ? 0 : 0.5));
  }
}

TEST(two_hundred_thousand_tenths_add_up_as_in_float64) {
  Versions one_by_one = make(2, false, 1, {kAll, window(10)}), at_once = make(2, false, 1, {kAll});
  Step all;
  double sum = 0;
  for (int i = 0; i < 200'000; ++i) {
    apply(one_by_one, Step().row(0, 1, 0.1).at(0));
    all.row(0, 1, 0.1);
    sum += 0.1;
  }
  apply(at_once, all.at(0));
  CHECK_EQUAL(weight(one_by_one, 0, {0, 1}), sum);
  CHECK_EQUAL(weight(at_once, 0, {0, 1}), sum);
  CHECK_EQUAL(one_by_one.views()[0].degree(1), 1 + sum);
  // A window knows its parts, and loses nothing.
  CHECK_EQUAL(weight(one_by_one, 1, {0, 1}), double(200'000 * (long double)(0.1)));
  apply(one_by_one, Step().remove(0, 1, sum - 0.1).at(1));
  CHECK_EQUAL(weight(one_by_one, 0, {0, 1}), sum - (sum - 0.1));
  CHECK_EQUAL(weight(one_by_one, 1, {0, 1}), sum - (sum - 0.1));
}

TEST(a_directed_self_edge_counts_twice_where_both_directions_are_added_up) {
  Versions versions = make(2, true, 1, {kAll, window(10), decay(10, 16)});
  apply(versions, Step().row(0, 0, 3).row(0, 1, 5).at(0));
  for (const View& view : versions.views()) {
    const bool both = view.direction() == Direction::both;
    CHECK_EQUAL(view.self_edges(), both ? 2.0 : 1.0);
    CHECK_EQUAL(versions.self_weight(view, 0), both ? 7.0 : 4.0);
    CHECK_EQUAL(view.degree(0), both ? 12.0 : view.direction() == Direction::out ? 9.0 : 4.0);
  }
  apply(versions, Step().remove(0, 0).at(0));
  for (const View& view : versions.views()) CHECK_EQUAL(versions.self_weight(view, 0), 1.0);
}

TEST(degrees_are_the_sums_of_what_is_left_when_heavy_edges_have_gone) {
  const std::vector<VersionSpec> specs{kAll, window(1000), last(100'000), decay(50, 16)};
  for (const bool directed : {false, true}) {
    for (std::uint64_t seed = 0; seed < repeats(6, 2); ++seed) {
      Versions versions = make(8, directed, 1e-6, specs);
      Random random(seed);
      std::map<Pair, double> present;
      double worst = 0;
      for (int i = 0; i < 400; ++i) {
        Step step;
        for (int row = 0; row < 3; ++row) {
          Pair pair{std::int64_t(random.below(8)), std::int64_t(random.below(8))};
          if (!directed && pair.first > pair.second) std::swap(pair.first, pair.second);
          const auto found = present.find(pair);
          if (found != present.end() && random.chance(0.6)) {
            step.remove(pair.first, pair.second);
            present.erase(found);
          } else {
            const double w = std::pow(10.0, random.between(-12, 12));
            step.set(pair.first, pair.second, w);
            present[pair] = w;
          }
        }
        apply(versions, step.at(i));
        for (const View& view : versions.views()) {
          // Stored weights of decayed versions are known but for the last places.
          const bool decays = specs[view.version()].kind == Kind::decay;
          const std::vector<double> sums = row_sums(matrix(versions, view), 8);
          for (Node node = 0; node < 8; ++node)
            worst = std::max(
                worst, std::abs(view.degree(node) / sums[node] - 1) / (decays ? 4e-15 : 1e-15));
        }
      }
      CHECK_AT_MOST(worst, 1.0);
    }
  }
}

TEST(without_self_loops_an_edge_lighter_than_accepted_is_refused_and_changes_nothing) {
  Versions versions = make(3, false, 0, {kAll}), with_loops = make(3, false, 1, {kAll});
  for (Versions* each : {&versions, &with_loops}) {
    each->set_lightest_accepted(1e-3);
    apply(*each, Step().row(0, 1, 1));
  }
  const auto before = contents(versions);
  const auto imprecise = [](Versions& of, const Step& step) {
    try {
      of.check(step.rows(), 0, {}, {});
    } catch (const tidegraph::PrecisionError&) { return true; }
    return false;
  };
  for (const Step& light : {Step().row(1, 2, 1).row(0, 2, 0.9e-3), Step().set(0, 1, 1e-6),
                            Step().remove(0, 1, 1 - 1e-4)}) {
    CHECK(imprecise(versions, light));
    CHECK(!imprecise(with_loops, light));
  }
  CHECK(contents(versions) == before);
  apply(versions, Step().row(0, 2, 1e-3));
  CHECK_EQUAL(versions.lightest(), 1e-3);
  apply(versions, Step().remove(0, 2));
  CHECK_EQUAL(versions.lightest(), 1e-3);  // so far
}

TEST(first_rows_loaded_at_once_are_rows_applied) {
  for (const bool directed : {false, true}) {
    Versions loaded = make(60, directed, 0.5, {kAll}), applied = make(60, directed, 0.5, {kAll});
    Random random(3);
    Step first, later;
    for (int row = 0; row < 500; ++row)
      (row < 400 ? first : later)
          .row(std::int64_t(random.below(60)), std::int64_t(random.below(60)),
               random.between(0.1, 2))
          .at(100 + row / 10);
    apply(applied, first);
    CHECK(loaded.load({first.src, first.dst, first.weight, {}, first.t}, first.end));
    CHECK(loaded.time() == applied.time());
    for (Versions* each : {&loaded, &applied}) apply(*each, later);
    CHECK(edges(loaded, 0) == edges(applied, 0));
    CHECK_EQUAL(loaded.edges(), applied.edges());
    double worst = 0;
    for (std::size_t v = 0; v < loaded.views().size(); ++v)
      for (Node node = 0; node < 60; ++node)
        worst = std::max(
            worst, std::abs(loaded.views()[v].degree(node) / applied.views()[v].degree(node) - 1));
    CHECK_AT_MOST(worst, 1e-14);
    CHECK(!loaded.load({first.src, first.dst, {}, {}, {}}, {}));  // not the first rows
    Versions timed = make(60, directed, 1, {kAll, window(5)});
    CHECK(!timed.load({first.src, first.dst, {}, {}, first.t}, first.end));
    Versions fresh = make(60, directed, 1, {kAll});
    CHECK(!fresh.load(first.rows(), first.end));  // operations
    const std::vector<std::int64_t> src{0}, beyond{60};
    bool thrown = false;
    try {
      fresh.load({src, beyond, {}, {}, {}}, {});
    } catch (const EventError&) { thrown = true; }
    CHECK(thrown);
    CHECK_EQUAL(fresh.edges(), 0);
  }
}

TEST(rows_without_columns_add_ones_and_remove_whole_edges) {
  Versions versions = make(3, false, 1, {kAll, last(10)});
  const std::vector<std::int64_t> src{0, 0, 1}, dst{1, 1, 2};
  const std::vector<std::uint8_t> ops{1, 1, 1};
  versions.check({src, dst, {}, {}, {}}, 0, {}, {});
  versions.pass_time({});
  versions.change({src, dst, {}, {}, {}}, 0, {});
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  CHECK_EQUAL(weight(versions, 1, {0, 1}), 2.0);
  const tidegraph::Rows removal = tidegraph::Rows{src, dst, {}, ops, {}}.slice(1, 3);
  versions.check(removal, 0, {}, {});
  versions.pass_time({});
  versions.change(removal, 0, {});
  CHECK_EQUAL(versions.edges(), 0);
  CHECK(edges(versions, 1).empty());
}

// ---- snapshots and archives
// -----------------------------------------------------------------------------------------

TEST(the_difference_to_a_snapshot_leads_to_the_snapshot) {
  for (const bool directed : {false, true}) {
    history::Options options;
    options.directed = directed;
    options.node_events = false;
    History history(options, 5), other(options, 6);
    Versions versions = make(options.nodes, directed, 1, {kAll});
    for (int round = 0; round < 30; ++round) {
      for (int i = 0; i < 5; ++i) other.next();
      Step snapshot;
      std::map<Pair, double> wanted;
      for (const auto& [pair, w] : other.graph()) {
        wanted[pair] = double(w);
        snapshot.row(pair.first, pair.second, double(w) / 2)
            .row(pair.second, pair.first, double(w) / 2);
        if (!directed) continue;
        snapshot.src.back() = pair.first;
        snapshot.dst.back() = pair.second;
      }
      const Versions::Difference found =
          versions.difference({snapshot.src, snapshot.dst, snapshot.weight, {}, {}});
      Step step;
      step.src = found.src, step.dst = found.dst, step.weight = found.weight, step.op = found.op;
      apply(versions, step);
      CHECK(edges(versions, std::nullopt) == wanted);
      CHECK_EQUAL(
          versions.difference({snapshot.src, snapshot.dst, snapshot.weight, {}, {}}).src.size(), 0);
    }
    const std::vector<std::int64_t> src{0}, beyond{std::int64_t(options.nodes)};
    bool thrown = false;
    try {
      versions.difference({src, beyond, {}, {}, {}});
    } catch (const EventError&) { thrown = true; }
    CHECK(thrown);
  }
}

TEST(versions_read_back_go_on_the_same) {
  const std::vector<VersionSpec> specs{kAll, window(20), last(12), decay(4, 16)};
  for (const bool directed : {false, true}) {
    history::Options options;
    options.directed = directed;
    options.timed = true;
    options.exact_weights = false;
    options.long_pause = 0.05;
    History history(options, 12);
    Versions versions = make(options.nodes, directed, 1, specs);
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 10; ++i) apply(versions, history.next());
      support::MemoryArchive archive;
      versions.archive(archive);
      archive.begin_reading();
      Versions copy = make(versions.nodes(), directed, 1, specs);
      copy.archive(archive);
      CHECK(contents(copy) == archive.arrays);
      for (int i = 0; i < 10; ++i) {
        const Step step = history.next();
        apply(versions, step);
        apply(copy, step);
      }
      for (std::size_t v = 0; v < specs.size(); ++v) CHECK(edges(copy, v) == edges(versions, v));
      for (std::size_t v = 0; v < versions.views().size(); ++v)
        CHECK(copy.views()[v].degrees() == versions.views()[v].degrees());
    }
  }
}
