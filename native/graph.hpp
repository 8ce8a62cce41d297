// Dynamic weighted graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adjacency.hpp"
#include "archive.hpp"
#include "kernels.hpp"
#include "weights.hpp"

namespace tidegraph {

// A graph whose edges have one weight per layer. An undirected edge is in the lists of both ends; a
// directed graph keeps the sources and the targets of every node. Self-edges are stored apart,
// since a push solves them in place.
class Graph {
 public:
  Graph(std::size_t nodes, bool directed, int layers);

  std::size_t nodes() const { return nodes_; }
  bool directed() const { return directed_; }
  int layers() const { return layers_; }
  std::size_t edges() const { return edges_; }
  std::size_t bytes() const;

  // Lists of the nodes with an edge into a node, and of those a node has an edge to.
  const Adjacency& sources() const { return sources_; }
  const Adjacency& targets() const { return directed_ ? targets_ : sources_; }
  double self_edge(Node node, int layer) const {
    return self_.empty() ? 0.0 : self_[self_place(node) + std::size_t(layer)];
  }

  void resize(std::size_t nodes);
  // Copies the weights of an edge, or zeros; returns whether the edge exists.
  bool read(Node src, Node dst, std::span<double> weights) const;
  // Sets the weights of an edge, which is created if it is absent.
  void write(Node src, Node dst, std::span<const double> weights);
  void erase(Node src, Node dst);
  // Starts an empty graph of one layer from lists that outlive this object; `targets` counts if the
  // graph is directed. `edges` is the number of edges between different nodes.
  void attach_base(const CompactLists& sources, const CompactLists& targets, std::size_t edges);
  Adjacency& sources_to_merge() { return sources_; }
  Adjacency& targets_to_merge() { return targets_; }
  // Fills an empty graph of one layer, adding up repeated edges in their order. If a weight leaves
  // the accepted range, returns its row; the graph is then unusable.
  std::optional<std::size_t> build(std::span<const std::int64_t> src,
                                   std::span<const std::int64_t> dst,
                                   std::span<const double> weight);
  // Multiplies one layer of the edges of a node by a power of two and drops those that fall below
  // `floor`. Must be called for both ends of every edge.
  Adjacency::Scaled scale_edges_of(Node node, int layer, double factor, double floor);
  void tidy();

  // Calls visit(src, dst, weight) once for every edge; undirected edges have src <= dst.
  template <class Visit>
  void for_each_edge(int layer, Visit visit) const {
    for (std::size_t node = 0; node < nodes_; ++node) {
      const Node dst = Node(node);
      if (self_edge(dst, 0) > 0) visit(dst, dst, self_edge(dst, layer));
      const Entries sources = sources_.entries(dst, layer);
      for (std::uint32_t e = 0; e < sources.size;) {
        const Node src = sources.neighbours[e];
        double weight = 0;
        for (; e < sources.size && sources.neighbours[e] == src; ++e)
          weight += weight_at(sources, e);
        if (directed_ || src < dst) visit(src, dst, weight);
      }
    }
  }

  // Keeps the order of the lists: a graph read back behaves to the bit like the one written.
  void archive(Archive& archive, const std::string& name);

 private:
  // The self-edge of a node, [layers], to be written to.
  double* own_self(Node node);
  std::size_t self_place(Node node) const { return std::size_t(node) * std::size_t(layers_); }

  std::size_t nodes_ = 0;
  bool directed_;
  int layers_;
  std::size_t edges_ = 0;
  Adjacency sources_, targets_;
  std::vector<double> self_;  // [nodes, layers]; empty before the first self-edge
};

}  // namespace tidegraph
