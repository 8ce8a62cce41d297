// Decay: weights in units of the last boundary, and what happens at a boundary.
#include <algorithm>
#include <cmath>
#include <utility>

#include "versions.hpp"

namespace tidegraph {

// Half-lives since the first event.
double Versions::half_lives(const Version& version, std::int64_t t) const {
  return double(t - planned_start_) / version.spec.half_life;
}

// Half-lives since a boundary, to the last digit however late the boundary is.
double Versions::half_lives(const Version& version, std::int64_t t, std::int64_t boundary) const {
  const std::int64_t elapsed = t - planned_start_;
  const double high = std::min(double(elapsed), 0x1.fffffffffffffp62);  // fits into int64
  const double low = double(elapsed - std::int64_t(high));
  const double half_life = version.spec.half_life;
  return (std::fma(-double(boundary), half_life, high) + low) / half_life;
}

void Versions::Decay::activate(Node node) {
  if (is_active[node]) return;
  is_active[node] = 1;
  active.push_back(node);
}

double Versions::stored_loop(const Version& version, Node node) const {
  const Decay& decay = version.decay;
  if (!version.decays() || !decay.is_active[node]) return self_loop_;
  const std::int64_t t = decay.renewed[node];
  if (half_lives(version, t) < double(decay.boundary)) return self_loop_;  // renewed there
  return self_loop_ * std::exp2(half_lives(version, t, decay.boundary));
}

double Versions::present(std::size_t version) const {
  const Version& v = version_[version];
  if (!v.decays() || !timed_) return 1;
  return std::exp2(half_lives(v, now_, v.decay.boundary));
}

double Versions::horizon(std::size_t version) const { return version_[version].decays() ? 2 : 1; }

// The weight, in stored units, below which a decaying version drops an edge. With self-loops, it is
// so small that a row as long as `longest` loses at most `forgotten_share_` of its self-loop: half
// of that now, half of the rest after a half-life, and so on. Without them an edge lasts at least
// `forget` half-lives, until it is lighter than the lightest edge after as many; a little less, so
// that rounding decides nothing there.
double Versions::floor_of(const Version& version, double lightest, double longest) const {
  if (self_loop_ > 0) return self_loop_ * forgotten_share_ / (2 * longest);
  return std::ldexp(lightest * (1 - 0x1p-20), -version.spec.forget);
}

double Versions::loop(std::size_t version, Node node) const {
  return stored_loop(version_[version], node) / present(version);
}

// Brings a decaying version to the last boundary before the end of the step: halves weights once
// per half-life and renews self-loops.
void Versions::pass_boundaries(std::size_t v) {
  Version& version = version_[v];
  Decay& decay = version.decay;
  const std::int64_t halvings = version.planned_boundary - decay.boundary;
  const double factor = std::ldexp(1.0, -int(std::min<std::int64_t>(halvings, 1000)));
  std::vector<Node> nodes = std::exchange(decay.active, {});
  std::sort(nodes.begin(), nodes.end());
  std::size_t longest = 1;
  for (const Node node : nodes)
    longest = std::max(longest, std::size_t(1) + user_.sources().size(node) +
                                    (directed() ? user_.targets().size(node) : 0));
  const double floor = floor_of(version, lightest_, double(longest));
  version.rescale_factor = factor;
  for (const Node node : nodes)
    version.rescaled.push_back({node, true, stored_loop(version, node), 0});
  decay.boundary = version.planned_boundary;
  for (RescaledRow& row : version.rescaled) {
    const auto [left, dropped] = user_.scale_edges_of(row.node, decay.layer, factor, floor);
    row.whole = !dropped;
    decay.is_active[row.node] = left;
    if (left) decay.active.push_back(row.node);
    row.loop_after = stored_loop(version, row.node);
  }
  for_views(v, [&](View& view) {
    view.clear_rescaled();
    for (const Node node : nodes) view.rescale_degree(node, sum_row(view, node));
  });
}

void Versions::renew(std::size_t v, Node node, std::int64_t t) {
  Decay& decay = version_[v].decay;
  const double before = stored_loop(version_[v], node);
  decay.renewed[node] = decay.is_active[node] ? std::max(decay.renewed[node], t) : t;
  decay.activate(node);
  const double after = stored_loop(version_[v], node);
  if (after != before)
    for_views(v, [&](View& view) { view.change_row(node, node, before, after); });
}

}  // namespace tidegraph
