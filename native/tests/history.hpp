// Random histories of a graph: valid steps, and the graph and features that they lead to.
#pragma once

#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "propagator.hpp"
#include "support.hpp"

namespace history {

using tidegraph::Op;
using Pair = std::pair<std::int64_t, std::int64_t>;

inline constexpr double kWholeEdge = std::numeric_limits<double>::infinity();

// Owns what an Update only views.
struct Step {
  std::vector<std::int64_t> src, dst, t;
  std::vector<double> weight;
  std::vector<std::uint8_t> op;
  std::optional<std::int64_t> end;
  std::size_t new_nodes = 0;
  std::vector<double> new_features, feature_values;
  std::vector<std::int64_t> feature_nodes, removed_nodes;

  Step& row(std::int64_t from, std::int64_t to, double w = 1, Op kind = Op::add) {
    src.push_back(from);
    dst.push_back(to);
    weight.push_back(w);
    op.push_back(std::uint8_t(kind));
    return *this;
  }
  Step& at(std::int64_t time) {  // of all rows since the last call
    t.resize(src.size(), time);
    end = time;
    return *this;
  }
  Step& remove(std::int64_t from, std::int64_t to, double w = kWholeEdge) {
    return row(from, to, w, Op::remove);
  }
  Step& set(std::int64_t from, std::int64_t to, double w) { return row(from, to, w, Op::set); }

  tidegraph::Rows rows() const { return {src, dst, weight, op, t}; }
  tidegraph::Update update() const {
    return {rows(), end, new_nodes, new_features, feature_nodes, feature_values, removed_nodes};
  }
};

struct Options {
  bool directed = false;
  std::size_t nodes = 16, columns = 0, rows = 8;
  bool timed = false;
  bool node_events = true;
  bool exact_weights = true;  // multiples of a quarter, whose sums float32 holds
  double decades = 0;         // weights are scaled by up to this many powers of ten, either way
  double least = 0;           // the least weight that a partial removal leaves
  double long_pause = 0;      // the chance of a long pause between two rows
  std::int64_t pause = 100;
};

class History {
 public:
  History(const Options& options, std::uint64_t seed) : options_(options), random_(seed) {
    for (std::size_t node = 0; node < options.nodes; ++node) append_node();
  }

  const std::map<Pair, double>& graph() const { return graph_; }
  const std::vector<std::vector<double>>& features() const { return x_; }
  std::vector<double> flat_features() const {
    std::vector<double> flat;
    for (const auto& row : x_) flat.insert(flat.end(), row.begin(), row.end());
    return flat;
  }
  std::size_t nodes() const { return x_.size(); }
  std::int64_t now() const { return now_; }
  bool removed(std::size_t node) const { return removed_[node]; }
  // A row just made, and the weights of its edge before and after.
  struct Made {
    Pair pair;
    Op op;
    double weight;
    double before, after;
    std::int64_t t;
  };
  const std::vector<Made>& made() const { return made_; }

  Step next() {
    Step step;
    made_.clear();
    if (options_.node_events && random_.chance(0.1)) {
      step.new_nodes = 1 + random_.below(2);
      for (std::size_t i = 0; i < step.new_nodes; ++i) {
        append_node();
        step.new_features.insert(step.new_features.end(), x_.back().begin(), x_.back().end());
      }
    }
    if (options_.columns && random_.chance(0.2)) {
      const std::size_t node = random_.below(nodes() - step.new_nodes);
      if (!removed_[node]) {
        fill(x_[node]);
        step.feature_nodes = {std::int64_t(node)};
        step.feature_values = x_[node];
      }
    }
    const std::size_t rows = random_.chance(0.1) ? 0 : 1 + random_.below(options_.rows);
    for (std::size_t i = 0; i < rows; ++i) make_row(step);
    if (options_.timed && (rows == 0 || random_.chance(0.2))) {
      pass_time();
      step.end = now_;
    } else if (options_.timed) {
      step.end = step.t.back();
    }
    if (options_.node_events && random_.chance(0.07)) {
      const std::size_t node = random_.below(nodes());
      if (!removed_[node] && living_ > options_.nodes / 2) remove_node(step, node);
    }
    return step;
  }

 protected:
  std::vector<std::vector<double>> x_;

 private:
  void append_node() {
    x_.emplace_back(options_.columns);
    fill(x_.back());
    removed_.push_back(false);
    ++living_;
  }
  // Columns of very different size; zeros for some nodes.
  void fill(std::vector<double>& row) {
    const bool empty = random_.chance(0.2);
    for (std::size_t c = 0; c < row.size(); ++c)
      row[c] = empty ? 0 : random_.between(-1, 1) * std::pow(10.0, double(c % 5) - 2);
  }
  void pass_time() {
    now_ += std::int64_t(random_.below(3));
    if (random_.chance(options_.long_pause))
      now_ += std::int64_t(random_.below(std::uint64_t(options_.pause)));
  }
  std::int64_t living_node() {
    for (;;) {
      const double u = random_.uniform();
      const std::size_t node = std::size_t(u * u * double(nodes()));
      if (!removed_[node]) return std::int64_t(node);
    }
  }
  void make_row(Step& step) {
    Pair pair{living_node(), living_node()};
    Op op = random_.chance(0.15) ? Op::set : Op::add;
    if (!graph_.empty() && random_.chance(graph_.size() > 5 * nodes() ? 0.6 : 0.4)) {
      pair = std::next(graph_.begin(), std::ptrdiff_t(random_.below(graph_.size())))->first;
      if (random_.chance(0.7)) op = Op::remove;
    } else if (!options_.directed && pair.first > pair.second) {
      std::swap(pair.first, pair.second);
    }
    const auto found = graph_.find(pair);
    const double before = found == graph_.end() ? 0 : found->second;
    double weight =
        options_.exact_weights ? 0.25 * double(1 + random_.below(12)) : random_.between(0.05, 3);
    if (options_.decades) weight *= std::pow(10.0, random_.between(-1, 1) * options_.decades);
    double after = 0;
    if (op == Op::remove) {
      const double part = options_.exact_weights ? std::floor(before * 4 * random_.uniform()) / 4
                                                 : before * random_.between(0.1, 0.9);
      const bool partly = part > 0 && before - part >= options_.least && random_.chance(0.5);
      weight = partly ? part : random_.chance(0.5) ? kWholeEdge : before;
      if (weight < before) after = before - weight;
    } else {
      after = (op == Op::add ? before : 0.0) + weight;
    }
    if (after > 0)
      graph_[pair] = after;
    else
      graph_.erase(pair);
    // An undirected edge may be named in either direction.
    const bool swap = !options_.directed && random_.chance(0.5);
    step.row(swap ? pair.second : pair.first, swap ? pair.first : pair.second, weight, op);
    if (options_.timed) {
      pass_time();
      step.at(now_);
    }
    made_.push_back({pair, op, weight, before, after, now_});
  }
  void remove_node(Step& step, std::size_t node) {
    step.removed_nodes.push_back(std::int64_t(node));
    removed_[node] = true;
    --living_;
    x_[node].assign(options_.columns, 0.0);
    std::erase_if(graph_, [&](const auto& edge) {
      return edge.first.first == std::int64_t(node) || edge.first.second == std::int64_t(node);
    });
  }

  Options options_;
  support::Random random_;
  std::map<Pair, double> graph_;
  std::vector<bool> removed_;
  std::size_t living_ = 0;
  std::int64_t now_ = 1000;
  std::vector<Made> made_;
};

}  // namespace history
