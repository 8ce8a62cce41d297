// Dynamic weighted graphs: adjacency lists that take insertions, deletions and look-ups in
// amortised O(1) at any degree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "archive.hpp"
#include "kernels.hpp"

namespace tidegraph {

// Blocks of 32-bit words for the rows of an adjacency. Freed blocks are kept by size class and
// handed out again; what accumulates unused is squeezed out by Adjacency::tidy.
class Arena {
 public:
  std::uint32_t* take(std::size_t words, std::size_t size_class);
  void give(std::uint32_t* block, std::size_t words, std::size_t size_class);
  std::size_t live_words() const { return live_; }
  std::size_t idle_words() const { return idle_; }
  // Counts blocks of their own that were taken from another arena.
  void adopt(std::size_t words) { live_ += words; }

 private:
  std::vector<std::unique_ptr<std::uint32_t[]>> pages_;
  std::uint32_t* next_ = nullptr;
  std::size_t left_ = 0;
  std::vector<std::vector<std::uint32_t*>> free_;
  std::size_t live_ = 0, idle_ = 0;
};

// Lists of (neighbour, one weight per layer), one list per node. A list is a dense array, so that a
// push walks it without gaps; lists longer than `kScan` carry a hash index of positions behind it.
class Adjacency {
 public:
  static constexpr std::uint32_t kScan = 32;
  static constexpr std::uint32_t kAbsent = 0xffffffff;

  explicit Adjacency(int layers) : layers_(layers) {}
  Adjacency(const Adjacency& other);  // in memory of its own
  Adjacency& operator=(const Adjacency&) = delete;
  ~Adjacency();

  void resize(std::size_t nodes) { lists_.resize(nodes); }
  std::size_t nodes() const { return lists_.size(); }
  const List* lists() const { return lists_.data(); }
  std::uint32_t size(Node node) const { return lists_[node].size; }
  std::span<const Node> neighbours(Node node) const {
    return {lists_[node].block, lists_[node].size};
  }
  std::span<float> weights(Node node, int layer) const {
    const List& list = lists_[node];
    return {
        reinterpret_cast<float*>(list.block + std::size_t(list.capacity) * std::size_t(1 + layer)),
        list.size};
  }

  // Position of `neighbour` in the list of `node`, or kAbsent.
  std::uint32_t find(Node node, Node neighbour) const;
  // Position of a new entry with all weights zero; `neighbour` must be absent.
  std::uint32_t insert(Node node, Node neighbour);
  void erase(Node node, std::uint32_t position);
  // Fills an empty list at once, in one layer.
  void assign(Node node, std::span<const Node> neighbours, std::span<const float> weights);
  // Moves everything into fresh memory when more than a quarter of it lies idle. Invalidates what
  // lists() returned.
  void tidy();
  std::size_t bytes() const;
  void archive(Archive& archive, const std::string& name);

 private:
  std::size_t words(std::uint32_t capacity) const;
  void reallocate(Node node, std::uint32_t size_class);
  void move_into(Arena& arena, List& list, std::uint32_t size_class);

  int layers_;
  std::vector<List> lists_;
  Arena arena_;
};

// A graph whose edges carry one weight per layer. Undirected edges stand in the lists of both ends;
// a directed graph keeps the sources and the targets of every node. Self-edges stand apart: a push
// solves them in place.
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
  float self_edge(Node node, int layer) const {
    return self_[std::size_t(node) * std::size_t(layers_) + std::size_t(layer)];
  }

  void resize(std::size_t nodes);
  // Copies the weights of an edge, zeros where there is none; says whether it exists.
  bool read(Node src, Node dst, std::span<float> weights) const;
  // Creates the edge where it is absent.
  void write(Node src, Node dst, std::span<const float> weights);
  void erase(Node src, Node dst);
  // Fills an empty graph of one layer, adding up repeated edges in their order. Says which row was
  // lost in float32, if any was; the graph is then of no further use.
  struct Lost {
    std::size_t row;
    float before;
  };
  std::optional<Lost> build(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                            std::span<const double> weight);
  // Sets one layer of an edge that exists.
  void set_layer(Node src, Node dst, int layer, float weight);
  void scale_layer(int layer, float factor);
  void tidy();

  // Calls visit(src, dst, weight) for every edge once; undirected edges with src <= dst.
  template <class Visit>
  void for_each_edge(int layer, Visit visit) const {
    for (std::size_t node = 0; node < nodes_; ++node) {
      const Node dst = Node(node);
      if (present_self_[node]) visit(dst, dst, self_edge(dst, layer));
      const std::span<const Node> sources = sources_.neighbours(dst);
      const std::span<const float> weights = sources_.weights(dst, layer);
      for (std::size_t e = 0; e < sources.size(); ++e)
        if (directed_ || sources[e] < dst) visit(sources[e], dst, weights[e]);
    }
  }

  // Lists are kept in order: a graph read back behaves to the bit like the one written.
  void archive(Archive& archive, const std::string& name);

 private:
  std::size_t nodes_ = 0;
  bool directed_;
  int layers_;
  std::size_t edges_ = 0;
  Adjacency sources_, targets_;
  std::vector<float> self_;  // [nodes, layers]
  std::vector<std::uint8_t> present_self_;
};

}  // namespace tidegraph
