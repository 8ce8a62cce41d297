#include "versions.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace tidegraph {

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
    if (!version.decays()) continue;
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
      view.set_degree(Node(node), {stored_loop(version_[view.version()], Node(node))});
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
    return version.decays() || version.spec.kind == VersionSpec::Kind::window;
  });
}

std::uint64_t Versions::key(Node src, Node dst) const {
  if (!directed() && src > dst) std::swap(src, dst);
  return std::uint64_t(src) << 32 | dst;
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

bool Versions::plain() const {
  return std::all_of(version_.begin(), version_.end(), [](const Version& version) {
    return version.spec.kind == VersionSpec::Kind::all;
  });
}

void Versions::attach_base(const CompactLists& sources, const CompactLists& targets,
                           std::size_t edges, const Entries& selves) {
  const auto check = [](const float* weights, std::size_t size) {
    for (std::size_t e = 0; weights && e < size; ++e)
      if (!(weights[e] >= kLightest && weights[e] <= kHeaviest))
        throw EventError("an edge has a weight of " + number(weights[e]) +
                         "; weights lie between 2**-64 and 2**64");
  };
  check(sources.weights, sources.offsets[sources.nodes]);
  if (directed()) check(targets.weights, targets.offsets[targets.nodes]);
  check(selves.weights, selves.size);
  user_.attach_base(sources, targets, edges);
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
      view.set_degree(Node(node), sum_row(view, Node(node)));
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
  for (Version& version : version_) version.rescaled.clear();
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
    if (!version_[v].decays()) continue;
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
    version_[v].window->apply([&](Node src, Node dst, double before, double after) {
      for_views(v, [&](View& view) { view.change_edge(src, dst, before, after); });
    });
  }
  resum_cancelled();
  user_.tidy();
  for (View& view : views_) view.finish();
}

void Versions::enter_window(Version& version, const Rows& rows) {
  EdgeWindow& window = *version.window;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const Op op = rows.op.empty() ? Op::add : Op(rows.op[row]);
    const std::uint64_t pair = key(Node(rows.src[row]), Node(rows.dst[row]));
    if (op == Op::remove) {
      // Contributions that left the window count as removed first.
      window.lower(pair, user_after_[row]);
      continue;
    }
    if (op == Op::set) window.lower(pair, 0);
    window.add(rows.t.empty() ? now_ : rows.t[row], pair,
               rows.weight.empty() ? 1.0 : rows.weight[row]);
  }
  if (version.spec.kind == VersionSpec::Kind::last)
    window.drop_beyond(std::size_t(version.spec.span));
  else if (timed_)
    window.drop_until(now_ - version.spec.span);
}

void Versions::remove_node(Node node) {
  removed_[node] = 1;
  std::vector<std::pair<Node, Node>> edges;
  for (const Node source : user_.sources().neighbours(node)) edges.emplace_back(source, node);
  if (directed())
    for (const Node target : user_.targets().neighbours(node)) edges.emplace_back(node, target);
  if (user_.self_edge(node, 0) > 0) edges.emplace_back(node, node);
  // A base may repeat a neighbour in consecutive entries.
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

// Recomputes degrees of which so much was taken away that rounding shows.
void Versions::resum_cancelled() {
  for (View& view : views_)
    for (const View::Degree& degree : view.moved())
      if (!view.exact(degree.node)) view.set_degree(degree.node, sum_row(view, degree.node));
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
    if (version_[v].decays()) {
      archive.scalar(name + ".boundary", decay.boundary);
      archive.block(name + ".renewed", decay.renewed.data(), decay.renewed.size());
      archive.block(name + ".active", decay.is_active.data(), decay.is_active.size());
      decay.active.clear();
      for (std::size_t node = 0; node < decay.is_active.size(); ++node)
        if (decay.is_active[node]) decay.active.push_back(Node(node));
    }
    if (version_[v].window) version_[v].window->archive(archive, name);
  }
  for (std::size_t v = 0; v < views_.size(); ++v)
    views_[v].archive(archive, "view" + std::to_string(v));
}

}  // namespace tidegraph
