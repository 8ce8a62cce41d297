#include "graph.hpp"

#include <algorithm>
#include <utility>

namespace tidegraph {

Graph::Graph(std::size_t nodes, bool directed, int layers)
    : directed_(directed), layers_(layers), sources_(layers), targets_(layers) {
  resize(nodes);
}

void Graph::resize(std::size_t nodes) {
  nodes_ = nodes;
  sources_.resize(nodes);
  if (directed_) targets_.resize(nodes);
  if (!self_.empty()) self_.resize(nodes * std::size_t(layers_), 0.0);
}

void Graph::attach_base(const CompactLists& sources, const CompactLists& targets,
                        std::size_t edges) {
  sources_.attach_base(sources);
  if (directed_) targets_.attach_base(targets);
  edges_ = edges;
}

std::size_t Graph::bytes() const {
  return sources_.bytes() + (directed_ ? targets_.bytes() : 0) + self_.size() * sizeof(double);
}

bool Graph::read(Node src, Node dst, std::span<double> weights) const {
  if (src == dst) {
    for (int layer = 0; layer < layers_; ++layer)
      weights[std::size_t(layer)] = self_edge(src, layer);
    return self_edge(src, 0) > 0;
  }
  const std::uint32_t position = sources_.find(dst, src);
  for (int layer = 0; layer < layers_; ++layer)
    weights[std::size_t(layer)] =
        position == Adjacency::kAbsent ? 0.0 : sources_.weight(dst, position, layer);
  return position != Adjacency::kAbsent;
}

namespace {
// Writes an entry; returns whether it is new.
bool put(Adjacency& lists, Node node, Node neighbour, std::span<const double> weights) {
  std::uint32_t position = lists.find_to_change(node, neighbour);
  const bool fresh = position == Adjacency::kAbsent;
  if (fresh) position = lists.insert(node, neighbour);
  for (std::size_t layer = 0; layer < weights.size(); ++layer)
    lists.set_weight(node, position, int(layer), weights[layer]);
  return fresh;
}
}  // namespace

void Graph::write(Node src, Node dst, std::span<const double> weights) {
  if (src == dst) {
    edges_ += self_edge(src, 0) == 0;
    std::copy(weights.begin(), weights.end(), own_self(src));
    return;
  }
  edges_ += put(sources_, dst, src, weights);
  put(directed_ ? targets_ : sources_, src, dst, weights);
}

std::optional<std::size_t> Graph::build(std::span<const std::int64_t> src,
                                        std::span<const std::int64_t> dst,
                                        std::span<const double> weight) {
  const auto weight_of = [&](std::size_t row) { return weight.empty() ? 1.0 : weight[row]; };
  const auto accepted = [](double sum) { return sum >= kLightest && sum <= kHeaviest; };
  struct Entry {
    Node neighbour;
    std::uint32_t row;
  };
  // Counting sort of the rows by the node whose list they enter, then by neighbour, then by row.
  const auto fill = [&](Adjacency& lists, bool at_dst, bool at_src) -> std::optional<std::size_t> {
    std::vector<std::size_t> ends(nodes_ + 1, 0);
    for (std::size_t row = 0; row < src.size(); ++row) {
      if (src[row] == dst[row]) continue;
      ends[std::size_t(dst[row])] += at_dst;
      ends[std::size_t(src[row])] += at_src;
    }
    std::size_t total = 0;
    for (std::size_t& end : ends) total += std::exchange(end, total);
    std::vector<Entry> entries(total);
    for (std::size_t row = 0; row < src.size(); ++row) {
      if (src[row] == dst[row]) continue;
      const std::uint32_t row32 = std::uint32_t(row);
      if (at_dst) entries[ends[std::size_t(dst[row])]++] = {Node(src[row]), row32};
      if (at_src) entries[ends[std::size_t(src[row])]++] = {Node(dst[row]), row32};
    }
    std::vector<Node> neighbours;
    std::vector<double> weights;
    for (std::size_t node = 0, first = 0; node < nodes_; first = ends[node++]) {
      const std::span<Entry> list(entries.data() + first, ends[node] - first);
      std::sort(list.begin(), list.end(), [](const Entry& a, const Entry& b) {
        return a.neighbour != b.neighbour ? a.neighbour < b.neighbour : a.row < b.row;
      });
      neighbours.clear();
      weights.clear();
      for (const Entry& entry : list) {
        const bool again = !neighbours.empty() && neighbours.back() == entry.neighbour;
        const double after = (again ? weights.back() : 0.0) + weight_of(entry.row);
        if (!accepted(after)) return entry.row;
        if (again) {
          weights.back() = after;
        } else {
          neighbours.push_back(entry.neighbour);
          weights.push_back(after);
        }
      }
      lists.assign(Node(node), neighbours, weights);
      edges_ += neighbours.size();
    }
    return std::nullopt;
  };
  std::optional<std::size_t> rejected = fill(sources_, true, !directed_);
  edges_ = directed_ ? edges_ : edges_ / 2;
  if (directed_ && !rejected) {
    const std::size_t edges = edges_;
    rejected = fill(targets_, false, true);
    edges_ = edges;
  }
  for (std::size_t row = 0; row < src.size() && !rejected; ++row) {
    if (src[row] != dst[row]) continue;
    double& self = *own_self(Node(src[row]));
    edges_ += self == 0;
    self += weight_of(row);
    if (!accepted(self)) rejected = row;
  }
  return rejected;
}

void Graph::erase(Node src, Node dst) {
  --edges_;
  if (src == dst) {
    std::fill_n(own_self(src), layers_, 0.0);
    return;
  }
  sources_.erase(dst, sources_.find_to_change(dst, src));
  Adjacency& other = directed_ ? targets_ : sources_;
  other.erase(src, other.find_to_change(src, dst));
}

double* Graph::own_self(Node node) {
  if (self_.empty()) self_.resize(nodes_ * std::size_t(layers_), 0.0);
  return self_.data() + self_place(node);
}

Adjacency::Scaled Graph::scale_edges_of(Node node, int layer, double factor, double floor) {
  Adjacency::Scaled scaled = sources_.scale(node, layer, factor, floor);
  if (directed_) scaled |= targets_.scale(node, layer, factor, floor);
  if (self_edge(node, layer) > 0) {
    double& self = own_self(node)[layer];
    self = self * factor < floor ? 0 : self * factor;
    scaled |= {self > 0, self == 0};
  }
  return scaled;
}

void Graph::tidy() {
  sources_.tidy();
  if (directed_) targets_.tidy();
}

void Graph::archive(Archive& archive, const std::string& name) {
  sources_.archive(archive, name + ".sources");
  if (directed_) targets_.archive(archive, name + ".targets");
  archive.vector(name + ".self_edges", self_);
  if (!archive.reading()) return;
  if (!self_.empty() && self_.size() != nodes_ * std::size_t(layers_))
    throw ArchiveError(name + ": the self-edges do not match the nodes");
  // Count edges rather than entries: a base may repeat an edge.
  edges_ = 0;
  for_each_edge(0, [&](Node, Node, double) { ++edges_; });
}

}  // namespace tidegraph
