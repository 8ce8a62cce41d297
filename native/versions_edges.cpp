// The graph as rows: the edges of a version, and the difference to a snapshot.
#include <limits>

#include "versions.hpp"

namespace tidegraph {

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

Versions::Edges Versions::edges_at(Node node) const {
  Edges edges;
  const auto add = [&](Node src, Node dst) {
    double weights[kMaxLayers];
    if (!user_.read(src, dst, {weights, std::size_t(user_.layers())})) return;
    edges.src.push_back(src);
    edges.dst.push_back(dst);
    edges.weight.push_back(weights[0]);
  };
  if (user_.self_edge(node, 0) > 0) add(node, node);
  const auto distinct = [](std::span<const Node> nodes, auto visit) {  // a compact list may repeat
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (i == 0 || nodes[i] != nodes[i - 1]) visit(nodes[i]);
  };
  distinct(user_.sources().neighbours(node), [&](Node source) { add(source, node); });
  if (directed())
    distinct(user_.targets().neighbours(node), [&](Node target) { add(node, target); });
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

}  // namespace tidegraph
