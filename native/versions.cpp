#include "versions.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

namespace tidegraph {
namespace {

// Removing the weight of an edge up to so small a share, or more by so little, removes the edge:
// sums are rounded, here and where the caller has made them.
constexpr double kWholeFrom = 1 - 0x1p-32, kWholeTo = 1 + 1e-6;
constexpr double kLongest = 0x1p33;       // entries that a row can have
constexpr double kMaxHalfLives = 0x1p52;  // beyond it, boundaries cannot be told apart

std::string describe(std::size_t row, std::int64_t src, std::int64_t dst) {
  return "row " + std::to_string(row) + " (" + std::to_string(src) + ", " + std::to_string(dst) +
         "): ";
}

}  // namespace

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

Rows Rows::slice(std::size_t first, std::size_t last) const {
  const auto part = [&](auto whole) {
    return whole.empty() ? whole : whole.subspan(first, last - first);
  };
  return {part(src), part(dst), part(weight), part(op), part(t)};
}

void View::begin() {
  for (const Degree& degree : moved_) slot_[degree.node] = 0;
  moved_.clear();
  entries_.clear();
  terms_.clear();
}

void View::append(std::size_t count) {
  if (degree_.empty()) degree_.reserve(count);
  degree_.resize(degree_.size() + count);
  if (!carry_.empty()) carry_.resize(degree_.size());
  if (!slot_.empty()) slot_.resize(degree_.size());
}

void View::touch(Node node) {
  if (slot_.empty()) slot_.resize(degree_.size());
  if (slot_[node]) return;
  moved_.push_back({node, 0, 0, degree_[node], degree_[node]});
  slot_[node] = std::uint32_t(moved_.size());
}

void View::change_row(Node row, Node other, double before, double after) {
  touch(row);
  Degree& degree = moved_[slot_[row] - 1];
  // What rounding takes from the degree is carried, so that a deletion takes out what its insertion
  // put in.
  const Carry carry = carry_.empty() ? Carry{} : carry_[row];
  Sum sum{degree_[row], carry.rest, carry.lost};
  sum.add(after);
  sum.add(-before);
  put(row, sum);
  degree.after = sum.value;
  ++degree.last;
  entries_.push_back({slot_[row] - 1, {other, after - before}});
}

void View::change_edge(Node src, Node dst, double before, double after) {
  if (before == after) return;
  if (src == dst) {
    before *= self_edges_;
    after *= self_edges_;
  }
  if (symmetric_) {
    change_row(src, dst, before, after);
    if (src != dst) change_row(dst, src, before, after);
  } else if (direction_ == Direction::out) {
    change_row(src, dst, before, after);
  } else {
    change_row(dst, src, before, after);
  }
}

void View::put(Node node, const Sum& degree) {
  degree_[node] = degree.value;
  if ((degree.rest != 0 || degree.lost != 0) && carry_.empty()) carry_.resize(degree_.size());
  if (!carry_.empty()) carry_[node] = {degree.rest, degree.lost};
}

void View::reset(Node node, const Sum& degree) {
  put(node, degree);
  if (!slot_.empty() && slot_[node]) moved_[slot_[node] - 1].after = degree.value;
}

void View::finish() {
  std::uint32_t total = 0;
  for (Degree& degree : moved_) {
    degree.first = total;
    total += degree.last;
    degree.last = degree.first;
  }
  terms_.resize(total);
  for (const Entry& entry : entries_) terms_[moved_[entry.slot].last++] = entry.term;
}

namespace {
int count_decays(const std::vector<VersionSpec>& specs) {
  return int(std::count_if(specs.begin(), specs.end(), [](const VersionSpec& spec) {
    return spec.kind == VersionSpec::Kind::decay;
  }));
}
}  // namespace

Versions::Versions(std::size_t nodes, bool directed, double self_loop, double forgotten_share,
                   std::vector<VersionSpec> specs,
                   std::vector<std::pair<std::size_t, Direction>> views)
    : self_loop_(self_loop),
      forgotten_share_(forgotten_share),
      user_(0, directed, 1 + count_decays(specs)) {
  if (user_.layers() > kMaxLayers) throw std::invalid_argument("too many half-lives");
  if (nodes > kMaxNodes) throw std::invalid_argument("too many nodes");
  int layer = 0;
  for (const VersionSpec& spec : specs) {
    Version version;
    version.spec = spec;
    if (spec.kind == VersionSpec::Kind::decay) version.decay.layer = ++layer;
    if (spec.kind == VersionSpec::Kind::window || spec.kind == VersionSpec::Kind::last)
      version.window.emplace(directed);
    version_.push_back(std::move(version));
  }
  for (const auto& [version, direction] : views) views_.emplace_back(version, direction, directed);
  grow(nodes);
}

void Versions::grow(std::size_t count) {
  const std::size_t nodes = user_.nodes() + count;
  user_.resize(nodes);
  removed_.resize(nodes, 0);
  for (Version& version : version_) {
    if (version.window) version.window->resize(nodes);
    if (version.spec.kind != VersionSpec::Kind::decay) continue;
    Decay& decay = version.decay;
    decay.renewed.resize(nodes, timed_ ? now_ : 0);
    decay.is_active.resize(nodes, 0);
    for (std::size_t node = nodes - count; node < nodes; ++node)
      if (timed_ && half_lives(version, now_, decay.boundary) != 0) decay.activate(Node(node));
  }
  for (View& view : views_) {
    const std::size_t first = view.degrees().size();
    view.append(nodes - first);
    for (std::size_t node = first; node < nodes; ++node)
      view.reset(Node(node), {stored_loop(version_[view.version()], Node(node))});
  }
}

std::size_t Versions::bytes() const {
  std::size_t total = user_.bytes() + removed_.size();
  for (const Version& version : version_) {
    total += version.decay.renewed.size() * (sizeof(std::int64_t) + 1) +
             version.decay.active.capacity() * sizeof(Node);
    if (version.window) total += version.window->bytes();
  }
  for (const View& view : views_) total += view.bytes();
  return total;
}

bool Versions::reads_time() const {
  return std::any_of(version_.begin(), version_.end(), [](const Version& version) {
    return version.spec.kind == VersionSpec::Kind::decay ||
           version.spec.kind == VersionSpec::Kind::window;
  });
}

std::uint64_t Versions::key(Node src, Node dst) const {
  if (!directed() && src > dst) std::swap(src, dst);
  return std::uint64_t(src) << 32 | dst;
}

double Versions::half_lives(const Version& version, std::int64_t t) const {
  return double(t - planned_start_) / version.spec.half_life;
}

// Those since a boundary, to the last digit however many there were before it.
double Versions::half_lives(const Version& version, std::int64_t t, std::int64_t boundary) const {
  const std::int64_t elapsed = t - planned_start_;
  const double high = std::min(double(elapsed), 0x1.fffffffffffffp62);  // which int64 can hold
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
  if (version.spec.kind != VersionSpec::Kind::decay || !decay.is_active[node]) return self_loop_;
  const std::int64_t t = decay.renewed[node];
  if (half_lives(version, t) < double(decay.boundary)) return self_loop_;  // renewed there
  return self_loop_ * std::exp2(half_lives(version, t, decay.boundary));
}

double Versions::present(std::size_t version) const {
  const Version& v = version_[version];
  if (v.spec.kind != VersionSpec::Kind::decay || !timed_) return 1;
  return std::exp2(half_lives(v, now_, v.decay.boundary));
}

double Versions::horizon(std::size_t version) const {
  return version_[version].spec.kind == VersionSpec::Kind::decay ? 2 : 1;
}

// What is lighter, in stored units, is forgotten by a decayed version. With self-loops, so little
// that a row as long as `longest` loses no more than `forgotten_share_` of its self-loop: half of
// it now, a quarter of what this is after a half-life, and so on. Without them an edge lasts
// `forget` half-lives or more, until it is lighter than the lightest edge was after as many; a
// little less, so that rounding decides nothing there.
double Versions::floor_of(const Version& version, double lightest, double longest) const {
  if (self_loop_ > 0) return self_loop_ * forgotten_share_ / (2 * longest);
  return std::ldexp(lightest * (1 - 0x1p-20), -version.spec.forget);
}

double Versions::loop(std::size_t version, Node node) const {
  return stored_loop(version_[version], node) / present(version);
}

const Graph& Versions::graph_of(const Version& version) const {
  return version.window ? version.window->graph() : user_;
}

double Versions::self_weight(const View& view, Node node) const {
  const Version& version = version_[view.version()];
  return stored_loop(version, node) +
         view.self_edges() * graph_of(version).self_edge(node, version.decay.layer);
}

namespace {
void set(Lists& lists, int which, const Adjacency& adjacency) {
  lists.lists[which] = adjacency.lists();
  lists.compact[which] = adjacency.compact();
  lists.layers = adjacency.layers();
  lists.fine[which] = adjacency.fine();
}
}  // namespace

Lists Versions::columns(const View& view) const {
  const Version& version = version_[view.version()];
  const Graph& graph = graph_of(version);
  Lists lists;
  lists.layer = version.decay.layer;
  set(lists, 0, view.direction() == Direction::in ? graph.targets() : graph.sources());
  if (view.direction() == Direction::both) set(lists, 1, graph.targets());
  return lists;
}

Lists Versions::rows(const View& view) const {
  Lists lists = columns(view);
  const Graph& graph = graph_of(version_[view.version()]);
  if (view.direction() == Direction::out) set(lists, 0, graph.targets());
  if (view.direction() == Direction::in) set(lists, 0, graph.sources());
  return lists;
}

// ---- checking
// -------------------------------------------------------------------------------------------------------

void Versions::check(const Rows& rows, std::size_t new_nodes,
                     std::span<const std::int64_t> removed_nodes, std::optional<std::int64_t> end) {
  for (const Staged& staged : staged_) staged_index_.erase(key(staged.src, staged.dst));
  staged_.clear();
  staged_weights_.clear();
  user_after_.clear();
  const std::size_t nodes = user_.nodes() + new_nodes;
  if (new_nodes > kMaxNodes || nodes > kMaxNodes)
    throw EventError("there are " + std::to_string(user_.nodes()) + " nodes and " +
                     std::to_string(new_nodes) + " new ones; at most " + std::to_string(kMaxNodes) +
                     " are possible");
  if (!end && rows.size() && reads_time())
    throw EventError(
        "the rows carry no times, but a channel has a half-life or a window of time: give t");
  if (end && timed_) {
    const std::int64_t begin = rows.t.empty() ? *end : rows.t.front();
    if (begin < now_)
      throw EventError(
          "time " + std::to_string(begin) + " lies before " + std::to_string(now_) +
          ", which was applied already: times must not run backwards; sort the events by time");
  }
  planned_lightest_ = lightest_;
  planned_start_ = timed_ || !end ? start_ : rows.t.empty() ? *end : rows.t.front();
  if (end) {
    for (Version& version : version_) {
      if (version.spec.kind != VersionSpec::Kind::decay) continue;
      const double half_lives_on = half_lives(version, *end);
      if (half_lives_on > kMaxHalfLives)
        throw EventError("time " + std::to_string(*end) + " lies " + number(half_lives_on) +
                         " half-lives after the first event; at most 2**52 are possible: use a "
                         "longer half_life");
      version.planned_boundary =
          std::max(version.decay.boundary, std::int64_t(std::floor(half_lives_on)));
    }
  }
  for (const std::int64_t node : removed_nodes) {
    if (node < 0 || std::size_t(node) >= nodes)
      throw EventError("removed_nodes names node " + std::to_string(node) +
                       ", but there are nodes 0 to " + std::to_string(std::int64_t(nodes) - 1));
    if (std::size_t(node) < removed_.size() && removed_[std::size_t(node)])
      throw EventError("removed_nodes names node " + std::to_string(node) +
                       ", which was removed before");
  }
  for (std::size_t row = 0; row < rows.size(); ++row) check_row(rows, row, nodes);
}

std::size_t Versions::stage_edge(Node src, Node dst) {
  const std::uint64_t pair = key(src, dst);
  if (const std::uint32_t found = staged_index_.find(pair); found != PairMap::kAbsent) return found;
  const std::size_t layers = std::size_t(user_.layers()), slot = staged_.size();
  staged_weights_.resize((slot + 1) * layers, 0.0);
  const std::span<double> weights = std::span(staged_weights_).subspan(slot * layers, layers);
  if (src < user_.nodes() && dst < user_.nodes()) user_.read(src, dst, weights);
  for (const Version& version : version_) {
    if (version.spec.kind != VersionSpec::Kind::decay) continue;
    double& weight = weights[std::size_t(version.decay.layer)];
    weight *= std::exp2(double(version.decay.boundary - version.planned_boundary));
    if (weight < floor_of(version, lightest_, kLongest)) weight = 0;
  }
  staged_index_.insert(pair, std::uint32_t(slot));
  staged_.push_back({src, dst, std::numeric_limits<std::int64_t>::min()});
  return slot;
}

void Versions::check_nodes(const Rows& rows, std::size_t row, std::size_t nodes) const {
  const std::int64_t src = rows.src[row], dst = rows.dst[row];
  for (const std::int64_t node : {src, dst}) {
    if (node < 0 || std::uint64_t(node) >= nodes)
      throw EventError(describe(first_row_ + row, src, dst) + "node " + std::to_string(node) +
                       " is not among the " + std::to_string(nodes) +
                       " nodes; ids run from 0, and new_nodes adds more");
    if (std::size_t(node) < removed_.size() && removed_[std::size_t(node)])
      throw EventError(describe(first_row_ + row, src, dst) + "node " + std::to_string(node) +
                       " was removed; its id is not used again: add a new node");
  }
}

// A weight that a row gives or leaves.
void Versions::check_weight(const Rows& rows, std::size_t row, double weight) {
  const auto where = [&] { return describe(first_row_ + row, rows.src[row], rows.dst[row]); };
  if (!(weight >= kLightest && weight <= kHeaviest))
    throw EventError(where() + "a weight of " + number(weight) +
                     " was given or would be left; weights lie between 2**-64 and 2**64: use "
                     "another unit");
  if (self_loop_ > 0) return;
  if (weight < lightest_accepted_)
    throw PrecisionError(where() + "without self-loops, edges of weight " + number(weight) +
                         " ask for more than the precision can hold; the lightest that it can is " +
                         number(lightest_accepted_));
  planned_lightest_ = std::min(planned_lightest_, weight);
}

void Versions::check_row(const Rows& rows, std::size_t row, std::size_t nodes) {
  check_nodes(rows, row, nodes);
  const std::int64_t src = rows.src[row], dst = rows.dst[row];
  const std::size_t layers = std::size_t(user_.layers());
  const std::size_t slot = stage_edge(Node(src), Node(dst));
  Staged& staged = staged_[slot];
  double* const weights = staged_weights_.data() + slot * layers;
  const Op op = rows.op.empty() ? Op::add : Op(rows.op[row]);
  const double whole = op == Op::remove ? std::numeric_limits<double>::infinity() : 1.0;
  const double weight = rows.weight.empty() ? whole : rows.weight[row];
  const double before = weights[0];
  double after = 0;
  switch (op) {
    case Op::add:
      check_weight(rows, row, weight);
      after = before + weight;
      break;
    case Op::remove:
      if (before == 0)
        throw EventError(describe(first_row_ + row, src, dst) + "there is no such edge to remove");
      if (weight > before * kWholeTo && !std::isinf(weight))
        throw EventError(describe(first_row_ + row, src, dst) + "cannot remove " + number(weight) +
                         " from an edge of weight " + number(before) +
                         "; leave weight out, or give inf, to remove the whole edge");
      if (weight < before * kWholeFrom) after = before - weight;
      if (after < kLightest) after = 0;
      break;
    case Op::set:
      after = weight;
      break;
  }
  if (after > 0) check_weight(rows, row, after);
  const std::int64_t t = rows.t.empty() ? 0 : rows.t[row];
  for (const Version& version : version_) {
    if (version.spec.kind != VersionSpec::Kind::decay) continue;
    double& decayed = weights[version.decay.layer];
    const double fresh = weight * std::exp2(half_lives(version, t, version.planned_boundary));
    if (op == Op::add) decayed += fresh;
    if (op == Op::set) decayed = fresh;
    if (op == Op::remove) decayed *= after / before;
    decayed = decayed < floor_of(version, planned_lightest_, kLongest) ? 0 : decayed;
  }
  weights[0] = after;
  staged.t = t;
  user_after_.push_back(after);
}

// ---- changing
// -------------------------------------------------------------------------------------------------------

bool Versions::plain() const {
  return std::all_of(version_.begin(), version_.end(), [](const Version& version) {
    return version.spec.kind == VersionSpec::Kind::all;
  });
}

void Versions::stand_on(const CompactLists& sources, const CompactLists& targets, std::size_t edges,
                        const Entries& selves) {
  const auto check = [](const float* weights, std::size_t size) {
    for (std::size_t e = 0; weights && e < size; ++e)
      if (!(weights[e] >= kLightest && weights[e] <= kHeaviest))
        throw EventError("an edge has a weight of " + number(weights[e]) +
                         "; weights lie between 2**-64 and 2**64");
  };
  check(sources.weights, sources.offsets[sources.nodes]);
  if (directed()) check(targets.weights, targets.offsets[targets.nodes]);
  check(selves.weights, selves.size);
  user_.stand_on(sources, targets, edges);
  for (std::uint32_t i = 0; i < selves.size; ++i) {
    const double weight = weight_at(selves, i);
    user_.write(selves.neighbours[i], selves.neighbours[i], {&weight, 1});
  }
  sum_degrees();
  if (self_loop_ > 0) return;
  user_.for_each_edge(0,
                      [&](Node, Node, double weight) { lightest_ = std::min(lightest_, weight); });
  planned_lightest_ = lightest_;
}

void Versions::sum_degrees() {
  for (View& view : views_)
    for (std::size_t node = 0; node < nodes(); ++node)
      view.reset(Node(node), sum_row(view, Node(node)));
}

bool Versions::load(const Rows& rows, std::optional<std::int64_t> end) {
  if (!plain() || edges() > 0 || !rows.op.empty() ||
      rows.size() > std::numeric_limits<std::uint32_t>::max())
    return false;
  for (std::size_t row = 0; row < rows.size(); ++row) check_nodes(rows, row, nodes());
  planned_lightest_ = lightest_;
  for (std::size_t row = 0; row < rows.weight.size(); ++row)
    check_weight(rows, row, rows.weight[row]);
  if (const auto row = user_.build(rows.src, rows.dst, rows.weight))
    throw EventError(describe(*row, rows.src[*row], rows.dst[*row]) +
                     "the weights of this edge add up to more than 2**64: use another unit");
  lightest_ = planned_lightest_;
  if (end) {
    planned_start_ = rows.t.empty() ? *end : rows.t.front();
    pass_time(end);
  }
  sum_degrees();
  return true;
}

void Versions::pass_time(std::optional<std::int64_t> end) {
  for (Version& version : version_) version.swept.clear();
  if (!end) return;
  start_ = planned_start_;
  now_ = *end;
  timed_ = true;
  for (std::size_t v = 0; v < version_.size(); ++v)
    if (version_[v].planned_boundary > version_[v].decay.boundary) pass_boundaries(v);
}

void Versions::change(const Rows& rows, std::size_t new_nodes,
                      std::span<const std::int64_t> removed_nodes) {
  for (View& view : views_) view.begin();
  grow(new_nodes);
  lightest_ = planned_lightest_;
  for (std::size_t v = 0; v < version_.size(); ++v) {
    if (version_[v].spec.kind != VersionSpec::Kind::decay) continue;
    for (const Staged& staged : staged_)
      for (const Node node : {staged.src, staged.dst}) renew(v, node, staged.t);
  }
  const std::size_t layers = std::size_t(user_.layers());
  double old[kMaxLayers];
  for (std::size_t s = 0; s < staged_.size(); ++s) {
    const auto [src, dst, t] = staged_[s];
    const std::span<const double> weights(staged_weights_.data() + s * layers, layers);
    const bool existed = user_.read(src, dst, {old, layers});
    if (weights[0] > 0)
      user_.write(src, dst, weights);
    else if (existed)
      user_.erase(src, dst);
    for (View& view : views_) {
      const Version& version = version_[view.version()];
      if (version.window) continue;
      const std::size_t layer = std::size_t(version.decay.layer);
      view.change_edge(src, dst, old[layer], weights[layer]);
    }
  }
  for (Version& version : version_)
    if (version.window) enter_window(version, rows);
  for (const std::int64_t node : removed_nodes) remove_node(Node(node));
  for (std::size_t v = 0; v < version_.size(); ++v) {
    if (!version_[v].window) continue;
    version_[v].window->settle([&](Node src, Node dst, double before, double after) {
      for_views(v, [&](View& view) { view.change_edge(src, dst, before, after); });
    });
  }
  resum_cancelled();
  user_.tidy();
  for (View& view : views_) view.finish();
}

// Brings a decayed version to the boundary before the end of the step: weights are halved for every
// half-life, and self-loops count in full again.
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
  version.factor = factor;
  for (const Node node : nodes)
    version.swept.push_back({node, true, stored_loop(version, node), 0});
  decay.boundary = version.planned_boundary;
  for (Swept& swept : version.swept) {
    const auto [left, dropped] = user_.scale_edges_of(swept.node, decay.layer, factor, floor);
    swept.whole = !dropped;
    decay.is_active[swept.node] = left;
    if (left) decay.active.push_back(swept.node);
    swept.loop_after = stored_loop(version, swept.node);
  }
  for_views(v, [&](View& view) {
    view.swept_degrees_.clear();
    for (const Node node : nodes) {
      const double before = view.degree(node);
      view.reset(node, sum_row(view, node));
      view.swept_degrees_.push_back({before, view.degree(node)});
    }
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

void Versions::enter_window(Version& version, const Rows& rows) {
  EdgeWindow& window = *version.window;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const Op op = rows.op.empty() ? Op::add : Op(rows.op[row]);
    const std::uint64_t pair = key(Node(rows.src[row]), Node(rows.dst[row]));
    if (op == Op::remove) {
      // Those that the window let go already go before all others.
      window.lower(pair, user_after_[row]);
      continue;
    }
    if (op == Op::set) window.lower(pair, 0);
    window.add(rows.t.empty() ? now_ : rows.t[row], pair,
               rows.weight.empty() ? 1.0 : rows.weight[row]);
  }
  if (version.spec.kind == VersionSpec::Kind::last)
    window.leave_beyond(std::size_t(version.spec.span));
  else if (timed_)
    window.leave_until(now_ - version.spec.span);
}

void Versions::remove_node(Node node) {
  removed_[node] = 1;
  std::vector<std::pair<Node, Node>> edges;
  for (const Node source : user_.sources().neighbours(node)) edges.emplace_back(source, node);
  if (directed())
    for (const Node target : user_.targets().neighbours(node)) edges.emplace_back(node, target);
  if (user_.self_edge(node, 0) > 0) edges.emplace_back(node, node);
  // Compact lists name a neighbour as often as the edge is repeated, one after the other.
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  double weights[kMaxLayers];
  for (const auto& [src, dst] : edges) {
    user_.read(src, dst, {weights, std::size_t(user_.layers())});
    user_.erase(src, dst);
    for (std::size_t v = 0; v < version_.size(); ++v) {
      if (std::optional<EdgeWindow>& window = version_[v].window) {
        window->lower(key(src, dst), 0);
        continue;
      }
      const double weight = weights[version_[v].decay.layer];
      for_views(v, [&](View& view) { view.change_edge(src, dst, weight, 0); });
    }
  }
  for (View& view : views_) view.touch(node);
}

// A degree of which so much was taken away that rounding shows is summed anew.
void Versions::resum_cancelled() {
  for (View& view : views_)
    for (const View::Degree& degree : view.moved())
      if (!view.exact(degree.node)) view.reset(degree.node, sum_row(view, degree.node));
}

Sum Versions::sum_row(const View& view, Node node) const {
  const Version& version = version_[view.version()];
  const Graph& graph = graph_of(version);
  Sum sum{stored_loop(version, node)};
  sum.add(view.self_edges() * graph.self_edge(node, version.decay.layer));
  const auto add = [&](const Adjacency& lists) {
    const Entries row = lists.entries(node, version.decay.layer);
    if (!row.weights) sum.add(double(row.size));
    for (std::uint32_t e = 0; row.weights && e < row.size; ++e) sum.add(weight_at(row, e));
  };
  if (view.direction() != Direction::out) add(graph.sources());
  if (view.direction() != Direction::in) add(graph.targets());
  return sum;
}

// ---- reading
// --------------------------------------------------------------------------------------------------------

Versions::Edges Versions::edges_of(std::optional<std::size_t> v) const {
  const Graph& graph = v ? graph_of(version_[*v]) : user_;
  const int layer = v ? version_[*v].decay.layer : 0;
  const double unit = v ? present(*v) : 1;
  Edges edges;
  graph.for_each_edge(layer, [&](Node src, Node dst, double weight) {
    if (weight == 0) return;
    edges.src.push_back(src);
    edges.dst.push_back(dst);
    edges.weight.push_back(weight / unit);
  });
  return edges;
}

Versions::Difference Versions::difference(const Rows& snapshot) const {
  PairMap wanted;
  std::vector<double> sums;
  std::vector<std::uint64_t> keys;
  for (std::size_t row = 0; row < snapshot.size(); ++row) {
    const std::int64_t src = snapshot.src[row], dst = snapshot.dst[row];
    check_nodes(snapshot, row, nodes());
    const std::uint64_t pair = key(Node(src), Node(dst));
    std::uint32_t slot = wanted.find(pair);
    if (slot == PairMap::kAbsent) {
      slot = std::uint32_t(keys.size());
      wanted.insert(pair, slot);
      keys.push_back(pair);
      sums.push_back(0);
    }
    sums[slot] += snapshot.weight.empty() ? 1.0 : snapshot.weight[row];
    if (sums[slot] > kHeaviest)
      throw EventError(describe(row, src, dst) + "the weights of this edge add up to " +
                       number(sums[slot]) + "; they lie between 2**-64 and 2**64");
  }
  Difference difference;
  const auto emit = [&](std::uint64_t pair, double weight, Op op) {
    difference.src.push_back(std::int64_t(pair >> 32));
    difference.dst.push_back(std::int64_t(pair & 0xffffffff));
    difference.weight.push_back(weight);
    difference.op.push_back(std::uint8_t(op));
  };
  user_.for_each_edge(0, [&](Node src, Node dst, double) {
    if (wanted.find(key(src, dst)) == PairMap::kAbsent)
      emit(key(src, dst), std::numeric_limits<double>::infinity(), Op::remove);
  });
  double weights[kMaxLayers];
  for (std::size_t slot = 0; slot < keys.size(); ++slot) {
    user_.read(Node(keys[slot] >> 32), Node(keys[slot]), {weights, std::size_t(user_.layers())});
    if (weights[0] != sums[slot]) emit(keys[slot], sums[slot], Op::set);
  }
  return difference;
}

void Versions::archive(Archive& archive) {
  std::uint8_t timed = timed_;
  archive.scalar("timed", timed);
  timed_ = timed != 0;
  archive.scalar("start", start_);
  planned_start_ = start_;
  archive.scalar("now", now_);
  archive.scalar("lightest", lightest_);
  planned_lightest_ = lightest_;
  archive.block("removed", removed_.data(), removed_.size());
  user_.archive(archive, "graph");
  for (std::size_t v = 0; v < version_.size(); ++v) {
    const std::string name = "version" + std::to_string(v);
    Decay& decay = version_[v].decay;
    if (version_[v].spec.kind == VersionSpec::Kind::decay) {
      archive.scalar(name + ".boundary", decay.boundary);
      archive.block(name + ".renewed", decay.renewed.data(), decay.renewed.size());
      archive.block(name + ".active", decay.is_active.data(), decay.is_active.size());
      decay.active.clear();
      for (std::size_t node = 0; node < decay.is_active.size(); ++node)
        if (decay.is_active[node]) decay.active.push_back(Node(node));
    }
    if (version_[v].window) version_[v].window->archive(archive, name);
  }
  for (std::size_t v = 0; v < views_.size(); ++v) {
    const std::string name = "view" + std::to_string(v);
    archive.block(name + ".degree", views_[v].degree_.data(), views_[v].degree_.size());
    std::vector<View::Carry>& carry = views_[v].carry_;
    std::vector<double> parts;
    for (const View::Carry& each : carry) parts.insert(parts.end(), {each.rest, each.lost});
    archive.vector(name + ".carry", parts);
    if (!parts.empty() && parts.size() != 2 * nodes())
      throw ArchiveError(name + ".carry does not fit the nodes");
    carry.resize(parts.size() / 2);
    for (std::size_t node = 0; node < carry.size(); ++node)
      carry[node] = {parts[2 * node], parts[2 * node + 1]};
  }
}

}  // namespace tidegraph
