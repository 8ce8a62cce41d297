#include "versions.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

namespace tidegraph {
namespace {

// Removing within this share of an edge's weight removes the edge: sums of float32 are not exact.
constexpr double kWhole = 1e-6;
// A decayed version moves its units when the present outgrows them by this many half-lives …
constexpr double kUnitSpan = 16;
// … and starts afresh after a silence of this many, if whatever it held has become negligible.
constexpr double kSilence = 32;
// Renewing a self-loop multiplies it by two for every half-life it was idle. Corrections of that
// size cancel, and leave behind their rounding: after so many half-lives it begins to count.
constexpr double kLeap = 8;
constexpr double kMaxHalfLives = 0x1p52;  // beyond it, boundaries cannot be told apart

std::string describe(std::size_t row, std::int64_t src, std::int64_t dst) {
  return "row " + std::to_string(row) + " (" + std::to_string(src) + ", " + std::to_string(dst) +
         "): ";
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

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

void View::change_row(Node row, Node other, double change) {
  touch(row);
  Degree& degree = moved_[slot_[row] - 1];
  // Two-sum: what rounding takes from the degree is carried, so a deletion takes out what its
  // insertion put in.
  const double old = degree_[row], sum = old + change, added = sum - old;
  double carry = (carry_.empty() ? 0 : carry_[row]) + ((old - (sum - added)) + (change - added));
  degree_[row] = sum + carry;
  carry -= degree_[row] - sum;
  if (carry != 0 && carry_.empty()) carry_.resize(degree_.size());
  if (!carry_.empty()) carry_[row] = carry;
  degree.after = degree_[row];
  ++degree.last;
  entries_.push_back({slot_[row] - 1, {other, change}});
}

void View::change_edge(Node src, Node dst, double change) {
  if (change == 0) return;
  if (symmetric_) {
    change_row(src, dst, change);
    if (src != dst) change_row(dst, src, change);
  } else if (direction_ == Direction::out) {
    change_row(src, dst, change);
  } else {
    change_row(dst, src, change);
  }
}

void View::scale(double factor) {
  for (double& degree : degree_) degree *= factor;
  for (double& carry : carry_) carry *= factor;
  for (Degree& degree : moved_) {
    degree.before *= factor;
    degree.after *= factor;
  }
  for (Entry& entry : entries_) entry.term.change *= factor;
}

void View::reset(Node node, double degree) {
  degree_[node] = degree;
  if (!carry_.empty()) carry_[node] = 0;
  if (!slot_.empty() && slot_[node]) moved_[slot_[node] - 1].after = degree;
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
constexpr std::uint64_t kNoKey = ~std::uint64_t(0);
}

std::size_t PairMap::home(std::uint64_t key) const {
  key = (key ^ (key >> 31)) * 0x9e3779b97f4a7c15;
  return std::size_t((key ^ (key >> 29)) & (keys_.size() - 1));
}

std::size_t PairMap::locate(std::uint64_t key) const {
  std::size_t at = home(key);
  while (keys_[at] != key && keys_[at] != kNoKey) at = (at + 1) & (keys_.size() - 1);
  return at;
}

std::uint32_t PairMap::find(std::uint64_t key) const {
  if (keys_.empty()) return kAbsent;
  const std::size_t at = locate(key);
  return keys_[at] == key ? values_[at] : kAbsent;
}

void PairMap::insert(std::uint64_t key, std::uint32_t value) {
  if (keys_.size() < 2 * (size_ + 1)) {
    const auto old_keys =
        std::exchange(keys_, std::vector(std::max<std::size_t>(16, keys_.size() * 2), kNoKey));
    const auto old_values = std::exchange(values_, std::vector<std::uint32_t>(keys_.size()));
    for (std::size_t at = 0; at < old_keys.size(); ++at) {
      if (old_keys[at] == kNoKey) continue;
      const std::size_t to = locate(old_keys[at]);
      keys_[to] = old_keys[at];
      values_[to] = old_values[at];
    }
  }
  const std::size_t at = locate(key);
  keys_[at] = key;
  values_[at] = value;
  ++size_;
}

void PairMap::erase(std::uint64_t key) {
  const std::size_t mask = keys_.size() - 1;
  std::size_t hole = locate(key);
  for (std::size_t at = (hole + 1) & mask; keys_[at] != kNoKey; at = (at + 1) & mask) {
    if (((at - home(keys_[at])) & mask) < ((at - hole) & mask)) continue;
    keys_[hole] = keys_[at];
    values_[hole] = values_[at];
    hole = at;
  }
  keys_[hole] = kNoKey;
  --size_;
}

namespace {
int count_decays(const std::vector<VersionSpec>& specs) {
  return int(std::count_if(specs.begin(), specs.end(), [](const VersionSpec& spec) {
    return spec.kind == VersionSpec::Kind::decay;
  }));
}
}  // namespace

Versions::Versions(std::size_t nodes, bool directed, double self_loop,
                   std::vector<VersionSpec> specs,
                   std::vector<std::pair<std::size_t, Direction>> views)
    : self_loop_(self_loop), user_(0, directed, 1 + count_decays(specs)) {
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
    if (version.window) version.window->graph.resize(nodes);
    if (version.spec.kind == VersionSpec::Kind::decay)
      version.decay.renewed.resize(nodes, timed_ ? half_lives(version, now_) : 0.0);
  }
  for (View& view : views_) {
    const std::size_t first = view.degrees().size();
    view.append(nodes - first);
    for (std::size_t node = first; node < nodes; ++node)
      view.reset(Node(node), stored_loop(version_[view.version()], Node(node)));
  }
}

std::size_t Versions::bytes() const {
  std::size_t total = user_.bytes() + removed_.size();
  for (const Version& version : version_) {
    total += version.decay.renewed.size() * sizeof(double);
    if (!version.window) continue;
    const Window& window = *version.window;
    total += window.graph.bytes() + window.queue.size() * sizeof(Window::Entry) +
             window.index.bytes() +
             window.pairs.size() * (sizeof(Window::Pair) + sizeof(std::uint64_t) + 1);
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

double Versions::stored_loop(const Version& version, Node node) const {
  if (version.spec.kind != VersionSpec::Kind::decay) return self_loop_;
  return self_loop_ * std::exp2(version.decay.renewed[node] - double(version.decay.unit));
}

double Versions::present(std::size_t version) const {
  const Version& v = version_[version];
  if (v.spec.kind != VersionSpec::Kind::decay || !timed_) return 1;
  return std::exp2(half_lives(v, now_) - double(v.decay.unit));
}

double Versions::horizon(std::size_t version) const {
  const Version& v = version_[version];
  if (v.spec.kind != VersionSpec::Kind::decay) return 1;
  return std::exp2(double(v.decay.boundary + 1 - v.decay.unit));
}

double Versions::loop(std::size_t version, Node node) const {
  return stored_loop(version_[version], node) / present(version);
}

const Graph& Versions::graph_of(const Version& version) const {
  return version.window ? version.window->graph : user_;
}

double Versions::self_weight(const View& view, Node node) const {
  const Version& version = version_[view.version()];
  return stored_loop(version, node) +
         double(graph_of(version).self_edge(node, version.decay.layer));
}

namespace {
void set(Lists& lists, int which, const Adjacency& adjacency) {
  lists.lists[which] = adjacency.lists();
  lists.compact[which] = adjacency.compact();
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
  planned_start_ = timed_ || !end ? start_ : rows.t.empty() ? *end : rows.t.front();
  if (end) {
    for (Version& version : version_) {
      if (version.spec.kind != VersionSpec::Kind::decay) continue;
      const double half_lives_on = half_lives(version, *end);
      if (half_lives_on > kMaxHalfLives)
        throw EventError("time " + std::to_string(*end) + " lies " + number(half_lives_on) +
                         " half-lives after the first event; at most 2**52 are possible: use a "
                         "longer half_life");
      // Only together with a boundary, where everything is looked at anyway. Even, so that units
      // move by whole powers of two also under the square root of beta = 1/2.
      const double boundary = std::floor(half_lives_on);
      version.planned_unit = boundary - double(version.decay.unit) > kUnitSpan
                                 ? std::int64_t(std::floor(boundary / 2)) * 2
                                 : version.decay.unit;
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
  if (!end) return;
  // What falls below the floor at the step's last boundary, after its own last row.
  for (const Version& version : version_) {
    if (version.spec.kind != VersionSpec::Kind::decay) continue;
    const double boundary = std::floor(half_lives(version, *end));
    for (std::size_t s = 0; s < staged_.size(); ++s) {
      float& weight =
          staged_weights_[s * std::size_t(user_.layers()) + std::size_t(version.decay.layer)];
      if (std::floor(half_lives(version, staged_[s].t)) < boundary &&
          negligible(version, double(weight), boundary, version.planned_unit))
        weight = 0;
    }
  }
}

bool Versions::negligible(const Version& version, double weight, double boundary,
                          std::int64_t unit) const {
  const double floor = std::ldexp(self_loop_ > 0 ? self_loop_ : 1.0, -version.spec.forget);
  return weight * std::exp2(double(unit) - boundary) < floor;
}

std::size_t Versions::stage_edge(Node src, Node dst) {
  const std::uint64_t pair = key(src, dst);
  if (const std::uint32_t found = staged_index_.find(pair); found != PairMap::kAbsent) return found;
  const std::size_t layers = std::size_t(user_.layers()), slot = staged_.size();
  staged_weights_.resize((slot + 1) * layers, 0.0f);
  const std::span<float> weights = std::span(staged_weights_).subspan(slot * layers, layers);
  if (src < user_.nodes() && dst < user_.nodes()) user_.read(src, dst, weights);
  for (const Version& version : version_) {
    if (version.spec.kind != VersionSpec::Kind::decay) continue;
    float& weight = weights[std::size_t(version.decay.layer)];
    weight = float(double(weight) * std::exp2(double(version.decay.unit - version.planned_unit)));
  }
  staged_.push_back({src, dst, std::numeric_limits<std::int64_t>::min()});
  staged_index_.insert(pair, std::uint32_t(slot));
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

void Versions::refuse_lost(const Rows& rows, std::size_t row, double before) const {
  throw EventError(describe(first_row_ + row, rows.src[row], rows.dst[row]) + "adding " +
                   number(rows.weight.empty() ? 1.0 : rows.weight[row]) + " to a weight of " +
                   number(before) + " is lost in float32; rescale the weights, or let edges decay");
}

void Versions::check_row(const Rows& rows, std::size_t row, std::size_t nodes) {
  check_nodes(rows, row, nodes);
  const std::int64_t src = rows.src[row], dst = rows.dst[row];
  const std::size_t layers = std::size_t(user_.layers());
  const std::size_t slot = stage_edge(Node(src), Node(dst));
  Staged& staged = staged_[slot];
  float* const weights = staged_weights_.data() + slot * layers;
  const Op op = rows.op.empty() ? Op::add : Op(rows.op[row]);
  const double whole = op == Op::remove ? std::numeric_limits<double>::infinity() : 1.0;
  const double weight = rows.weight.empty() ? whole : rows.weight[row];
  const double before = double(weights[0]);
  double after = 0;
  switch (op) {
    case Op::add:
      after = double(float(before + weight));
      if (after == before || std::isinf(after)) refuse_lost(rows, row, before);
      break;
    case Op::remove:
      if (before == 0)
        throw EventError(describe(first_row_ + row, src, dst) + "there is no such edge to remove");
      if (weight <= before * (1 + kWhole) || std::isinf(weight))
        after = weight >= before * (1 - kWhole) ? 0.0 : double(float(before - weight));
      else
        throw EventError(describe(first_row_ + row, src, dst) + "cannot remove " + number(weight) +
                         " from an edge of weight " + number(before) +
                         "; leave weight out, or give inf, to remove the whole edge");
      if (after == before)
        throw EventError(describe(first_row_ + row, src, dst) + "removing " + number(weight) +
                         " from a weight of " + number(before) + " is lost in float32");
      break;
    case Op::set:
      after = double(float(weight));
      if (after == 0 || std::isinf(after))
        throw EventError(describe(first_row_ + row, src, dst) + "the weight " + number(weight) +
                         " is outside the range of float32");
      break;
  }
  const std::int64_t t = rows.t.empty() ? 0 : rows.t[row];
  for (const Version& version : version_) {
    if (version.spec.kind != VersionSpec::Kind::decay) continue;
    float& decayed = weights[version.decay.layer];
    const double when = half_lives(version, t), boundary = std::floor(when);
    const double seen = staged.t == std::numeric_limits<std::int64_t>::min()
                            ? double(version.decay.boundary)
                            : std::floor(half_lives(version, staged.t));
    if (boundary > seen && negligible(version, double(decayed), boundary, version.planned_unit))
      decayed = 0;
    const double fresh = weight * std::exp2(when - double(version.planned_unit));
    if (op == Op::add) decayed = float(double(decayed) + fresh);
    if (op == Op::set) decayed = float(fresh);
    if (op == Op::remove) decayed = float(double(decayed) * (after / before));
    if (std::isinf(decayed)) refuse_lost(rows, row, before);
  }
  weights[0] = float(after);
  staged.t = t;
  user_after_.push_back(weights[0]);
}

// ---- changing
// -------------------------------------------------------------------------------------------------------

bool Versions::plain() const {
  return std::all_of(version_.begin(), version_.end(), [](const Version& version) {
    return version.spec.kind == VersionSpec::Kind::all;
  });
}

void Versions::stand_on(const CompactLists& sources, const CompactLists& targets, std::size_t edges,
                        std::span<const Node> self_nodes, std::span<const float> self_weights) {
  user_.stand_on(sources, targets, edges);
  for (std::size_t i = 0; i < self_nodes.size(); ++i)
    user_.write(self_nodes[i], self_nodes[i], self_weights.subspan(i, 1));
  sum_degrees();
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
  if (const auto lost = user_.build(rows.src, rows.dst, rows.weight))
    refuse_lost(rows, lost->row, double(lost->before));
  if (end) {
    planned_start_ = rows.t.empty() ? *end : rows.t.front();
    pass_time(end);
  }
  sum_degrees();
  return true;
}

void Versions::pass_time(std::optional<std::int64_t> end) {
  for (View& view : views_) view.begin();
  for (Version& version : version_) version.swept = version.leapt = version.restarted = false;
  if (!end) return;
  start_ = planned_start_;
  now_ = *end;
  timed_ = true;
  for (std::size_t v = 0; v < version_.size(); ++v) {
    if (version_[v].spec.kind != VersionSpec::Kind::decay) continue;
    advance(v);
    for (const Staged& staged : staged_) {
      const double when = half_lives(version_[v], staged.t);
      for (const Node node : {staged.src, staged.dst})
        if (node < nodes()) renew(v, node, when);
    }
    if (version_[v].swept) renew_idle(v);
  }
  resum_cancelled();
  for (View& view : views_) view.finish();
}

void Versions::change(const Rows& rows, std::size_t new_nodes,
                      std::span<const std::int64_t> removed_nodes) {
  for (View& view : views_) view.begin();
  grow(new_nodes);
  const std::size_t layers = std::size_t(user_.layers());
  float old[kMaxLayers];
  for (std::size_t s = 0; s < staged_.size(); ++s) {
    const auto [src, dst, t] = staged_[s];
    const std::span<const float> weights(staged_weights_.data() + s * layers, layers);
    const bool existed = user_.read(src, dst, {old, layers});
    if (weights[0] > 0)
      user_.write(src, dst, weights);
    else if (existed)
      user_.erase(src, dst);
    for (View& view : views_) {
      const Version& version = version_[view.version()];
      if (version.window) continue;
      const std::size_t layer = std::size_t(version.decay.layer);
      view.change_edge(src, dst, double(weights[layer]) - double(old[layer]));
    }
  }
  for (std::size_t v = 0; v < version_.size(); ++v) {
    if (!version_[v].window) continue;
    enter_window(v, rows);
    leave_window(v);
  }
  for (const std::int64_t node : removed_nodes) remove_node(Node(node));
  for (std::size_t v = 0; v < version_.size(); ++v)
    if (version_[v].window) write_window(v);
  resum_cancelled();
  user_.tidy();
  for (Version& version : version_)
    if (version.window) version.window->graph.tidy();
  for (View& view : views_) view.finish();
}

// Brings a decayed version to the present before the rows of a step: forgets what became negligible
// at the last boundary passed, and moves the units. Rows staged by check() are in the planned
// units.
void Versions::advance(std::size_t v) {
  Version& version = version_[v];
  Decay& decay = version.decay;
  const std::int64_t boundary = std::int64_t(std::floor(half_lives(version, now_)));
  if (boundary > decay.boundary) {
    version.swept = true;
    version.leapt = double(boundary - decay.boundary) > kLeap;
    const auto forgotten = [&](float weight) {
      return negligible(version, double(weight), double(boundary), decay.unit);
    };
    // After a long silence nothing may be left; then it is simpler, and safer, to start afresh.
    version.restarted = double(boundary - decay.boundary) > kSilence;
    if (version.restarted)
      user_.for_each_edge(
          decay.layer, [&](Node, Node, float weight) { version.restarted &= forgotten(weight); });
    user_.for_each_edge(decay.layer, [&](Node src, Node dst, float weight) {
      if (weight == 0 || !forgotten(weight)) return;
      user_.set_layer(src, dst, decay.layer, 0.0f);
      for_views(v, [&](View& view) { view.change_edge(src, dst, -double(weight)); });
    });
    decay.boundary = boundary;
  }
  if (decay.unit != version.planned_unit) {
    const double factor = std::exp2(double(decay.unit - version.planned_unit));
    user_.scale_layer(decay.layer, float(factor));
    for_views(v, [&](View& view) { view.scale(factor); });
    decay.unit = version.planned_unit;
  }
  if (!version.restarted) return;
  // Nothing but self-loops is left, and those may have shrunk past what scaling can carry.
  for_views(v, [&](View& view) {
    view.begin();
    for (std::size_t node = 0; node < nodes(); ++node)
      view.reset(Node(node), stored_loop(version, Node(node)));
  });
}

void Versions::renew(std::size_t v, Node node, double when) {
  Version& version = version_[v];
  const double before = stored_loop(version, node);
  version.decay.renewed[node] = std::max(version.decay.renewed[node], when);
  const double after = stored_loop(version, node);
  if (after != before)
    for_views(v, [&](View& view) { view.change_row(node, node, after - before); });
}

// Self-loops that fell below the floor at some boundary up to the last one: renewed there, again
// and again.
void Versions::renew_idle(std::size_t v) {
  const Decay& decay = version_[v].decay;
  const double forget = double(version_[v].spec.forget), last = double(decay.boundary);
  for (std::size_t node = 0; node < decay.renewed.size() && self_loop_ > 0; ++node) {
    const double first = std::floor(decay.renewed[node] + forget) + 1;
    if (first <= last)
      renew(v, Node(node), first + std::floor((last - first) / (forget + 1)) * (forget + 1));
  }
}

std::uint32_t Versions::Window::pair(std::uint64_t key) {
  std::uint32_t slot = index.find(key);
  if (slot == PairMap::kAbsent) {
    if (vacant.empty()) {
      slot = std::uint32_t(pairs.size());
      pairs.emplace_back();
      keys.push_back(key);
      marked.push_back(0);
    } else {
      slot = vacant.back();
      vacant.pop_back();
      pairs[slot] = {};
      keys[slot] = key;
    }
    index.insert(key, slot);
  }
  mark(slot);
  return slot;
}

void Versions::Window::mark(std::uint32_t slot) {
  if (marked[slot]) return;
  marked[slot] = 1;
  touched.push_back(slot);
}

void Versions::Window::lower(Pair& pair, double weight) {
  if (pair.weight <= weight) return;
  pair.debt += pair.weight - weight;
  pair.weight = weight;
}

void Versions::enter_window(std::size_t v, const Rows& rows) {
  Window& window = *version_[v].window;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const Op op = rows.op.empty() ? Op::add : Op(rows.op[row]);
    const std::uint64_t pair = key(Node(rows.src[row]), Node(rows.dst[row]));
    if (op == Op::remove) {
      // The oldest contributions go first, those that the window let go already before all others.
      if (window.index.find(pair) != PairMap::kAbsent)
        window.lower(window.pairs[window.pair(pair)], double(user_after_[row]));
      continue;
    }
    const double weight = rows.weight.empty() ? 1.0 : rows.weight[row];
    Window::Pair& state = window.pairs[window.pair(pair)];
    if (op == Op::set) window.lower(state, 0);
    state.weight += weight;
    ++state.entries;
    window.queue.push_back({rows.t.empty() ? now_ : rows.t[row], pair, weight});
  }
}

void Versions::leave_window(std::size_t v) {
  Window& window = *version_[v].window;
  const VersionSpec& spec = version_[v].spec;
  const auto over = [&] {
    if (window.queue.empty()) return false;
    if (spec.kind == VersionSpec::Kind::last) return window.queue.size() > std::size_t(spec.span);
    return now_ - window.queue.front().t >= spec.span;
  };
  for (; over(); window.queue.pop_front()) {
    const Window::Entry& entry = window.queue.front();
    Window::Pair& pair = window.pairs[window.pair(entry.key)];
    const double paid = std::min(pair.debt, entry.weight);
    pair.debt -= paid;
    pair.weight = std::max(0.0, pair.weight - (entry.weight - paid));
    if (--pair.entries == 0) pair = {};
  }
}

void Versions::write_window(std::size_t v) {
  Window& window = *version_[v].window;
  for (const std::uint32_t slot : window.touched) {
    window.marked[slot] = 0;
    const Node src = Node(window.keys[slot] >> 32), dst = Node(window.keys[slot]);
    const float weight = float(window.pairs[slot].weight);
    float old = 0;
    const bool existed = window.graph.read(src, dst, {&old, 1});
    if (weight > 0)
      window.graph.write(src, dst, {&weight, 1});
    else if (existed)
      window.graph.erase(src, dst);
    for_views(v, [&](View& view) { view.change_edge(src, dst, double(weight) - double(old)); });
    if (window.pairs[slot].entries == 0) {
      window.index.erase(window.keys[slot]);
      window.vacant.push_back(slot);
    }
  }
  window.touched.clear();
}

void Versions::remove_node(Node node) {
  removed_[node] = 1;
  std::vector<std::pair<Node, Node>> edges;
  for (const Node source : user_.sources().neighbours(node)) edges.emplace_back(source, node);
  if (directed())
    for (const Node target : user_.targets().neighbours(node)) edges.emplace_back(node, target);
  if (user_.self_edge(node, 0) > 0) edges.emplace_back(node, node);
  float weights[kMaxLayers];
  for (const auto& [src, dst] : edges) {
    user_.read(src, dst, {weights, std::size_t(user_.layers())});
    user_.erase(src, dst);
    for (std::size_t v = 0; v < version_.size(); ++v) {
      if (std::optional<Window>& window = version_[v].window) {
        if (window->index.find(key(src, dst)) != PairMap::kAbsent)
          window->lower(window->pairs[window->pair(key(src, dst))], 0);
        continue;
      }
      const double weight = double(weights[version_[v].decay.layer]);
      for_views(v, [&](View& view) { view.change_edge(src, dst, -weight); });
    }
  }
  for (View& view : views_) view.touch(node);
}

// A degree of which most was taken away is summed anew, so that a node without edges has exactly
// its self-loop, however much has gone through the sum.
void Versions::resum_cancelled() {
  for (View& view : views_) {
    for (const View::Degree& degree : view.moved()) {
      if (degree.after > degree.before * 0x1p-16) continue;
      view.reset(degree.node, sum_row(view, degree.node));
    }
  }
}

double Versions::sum_row(const View& view, Node node) const {
  const Version& version = version_[view.version()];
  const Graph& graph = graph_of(version);
  double sum = self_weight(view, node);
  const auto add = [&](const Adjacency& lists) {
    const Entries row = lists.entries(node, version.decay.layer);
    if (!row.weights) sum += double(row.size);
    for (std::uint32_t e = 0; row.weights && e < row.size; ++e) sum += double(row.weights[e]);
  };
  if (view.direction() != Direction::out) add(graph.sources());
  if (view.direction() != Direction::in) add(graph.targets());
  return sum;
}

bool Versions::rescale() {
  bool moved = false;
  for (View& view : views_) view.begin();
  for (std::size_t v = 0; v < version_.size(); ++v) {
    Version& version = version_[v];
    version.swept = version.leapt = version.restarted = false;
    if (version.spec.kind != VersionSpec::Kind::decay || !timed_) continue;
    version.planned_unit = std::int64_t(std::floor(half_lives(version, now_) / 2)) * 2;
    moved |= version.planned_unit != version.decay.unit;
    advance(v);
  }
  return moved;
}

// ---- reading
// --------------------------------------------------------------------------------------------------------

Versions::Edges Versions::edges_of(std::optional<std::size_t> v) const {
  const Graph& graph = v ? graph_of(version_[*v]) : user_;
  const int layer = v ? version_[*v].decay.layer : 0;
  const double unit = v ? present(*v) : 1;
  Edges edges;
  graph.for_each_edge(layer, [&](Node src, Node dst, float weight) {
    if (weight == 0) return;
    edges.src.push_back(src);
    edges.dst.push_back(dst);
    edges.weight.push_back(double(weight) / unit);
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
  }
  Difference difference;
  const auto emit = [&](std::uint64_t pair, double weight, Op op) {
    difference.src.push_back(std::int64_t(pair >> 32));
    difference.dst.push_back(std::int64_t(pair & 0xffffffff));
    difference.weight.push_back(weight);
    difference.op.push_back(std::uint8_t(op));
  };
  user_.for_each_edge(0, [&](Node src, Node dst, float) {
    if (wanted.find(key(src, dst)) == PairMap::kAbsent)
      emit(key(src, dst), std::numeric_limits<double>::infinity(), Op::remove);
  });
  float weights[kMaxLayers];
  for (std::size_t slot = 0; slot < keys.size(); ++slot) {
    user_.read(Node(keys[slot] >> 32), Node(keys[slot]), {weights, std::size_t(user_.layers())});
    if (weights[0] != float(sums[slot])) emit(keys[slot], sums[slot], Op::set);
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
  archive.block("removed", removed_.data(), removed_.size());
  user_.archive(archive, "graph");
  for (std::size_t v = 0; v < version_.size(); ++v) {
    const std::string name = "version" + std::to_string(v);
    Decay& decay = version_[v].decay;
    if (version_[v].spec.kind == VersionSpec::Kind::decay) {
      archive.scalar(name + ".unit", decay.unit);
      archive.scalar(name + ".boundary", decay.boundary);
      archive.block(name + ".renewed", decay.renewed.data(), decay.renewed.size());
    }
    if (version_[v].window) version_[v].window->archive(archive, name);
  }
  for (std::size_t v = 0; v < views_.size(); ++v) {
    const std::string name = "view" + std::to_string(v);
    archive.block(name + ".degree", views_[v].degree_.data(), views_[v].degree_.size());
    archive.vector(name + ".carry", views_[v].carry_);
    if (!views_[v].carry_.empty() && views_[v].carry_.size() != nodes())
      throw ArchiveError(name + ".carry does not fit the nodes");
  }
}

void Versions::Window::archive(Archive& archive, const std::string& name) {
  graph.archive(archive, name + ".graph");
  std::vector<std::int64_t> times;
  std::vector<std::uint64_t> entry_keys, pair_keys, entries;
  std::vector<double> entry_weights, weights, debts;
  if (!archive.reading()) {
    for (const Entry& entry : queue) {
      times.push_back(entry.t);
      entry_keys.push_back(entry.key);
      entry_weights.push_back(entry.weight);
    }
    for (std::size_t slot = 0; slot < pairs.size(); ++slot)
      if (pairs[slot].entries) pair_keys.push_back(keys[slot]);
    std::sort(pair_keys.begin(), pair_keys.end());  // slots depend on what was there before
    for (const std::uint64_t key : pair_keys) {
      const Pair& pair = pairs[index.find(key)];
      entries.push_back(pair.entries);
      weights.push_back(pair.weight);
      debts.push_back(pair.debt);
    }
  }
  archive.vector(name + ".queue.t", times);
  archive.vector(name + ".queue.pair", entry_keys);
  archive.vector(name + ".queue.weight", entry_weights);
  archive.vector(name + ".pairs", pair_keys);
  archive.vector(name + ".pairs.entries", entries);
  archive.vector(name + ".pairs.weight", weights);
  archive.vector(name + ".pairs.debt", debts);
  if (!archive.reading()) return;
  if (times.size() != entry_keys.size() || times.size() != entry_weights.size() ||
      pair_keys.size() != entries.size() || pair_keys.size() != weights.size() ||
      pair_keys.size() != debts.size())
    throw ArchiveError(name + ": the queue does not fit together");
  for (std::size_t i = 0; i < pair_keys.size(); ++i)
    pairs[pair(pair_keys[i])] = {weights[i], debts[i], std::uint32_t(entries[i])};
  for (const std::uint32_t slot : touched) marked[slot] = 0;
  touched.clear();
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (index.find(entry_keys[i]) == PairMap::kAbsent)
      throw ArchiveError(name + ": a queued pair is unknown");
    queue.push_back({times[i], entry_keys[i], entry_weights[i]});
  }
}

}  // namespace tidegraph
