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

double weight_at(const Entries& entries, std::uint32_t position);

// Weights of edges and self-loops lie between these.
inline constexpr double kLightest = 0x1p-64, kHeaviest = 0x1p64;

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
// Fractions of weights take room only from the first weight on that is not a float32.
class Adjacency {
 public:
  static constexpr std::uint32_t kScan = 32;
  static constexpr std::uint32_t kAbsent = 0xffffffff;

  explicit Adjacency(int layers) : layers_(layers) {}
  Adjacency(const Adjacency& other);  // in memory of its own
  Adjacency& operator=(const Adjacency&) = delete;
  ~Adjacency();

  // Starts from lists that outlive this object instead of empty ones. Nothing is copied until it
  // changes. One layer only.
  void stand_on(const CompactLists& base);
  // Over a base: how much there is to write it anew with all changes in it, and whether every entry
  // would count one.
  struct Extent {
    std::size_t entries = 0;
    bool plain = true;
    bool fine = false;  // whether there are fractions
  };
  Extent extent() const;
  // Writes all lists as they are, in their order, into memory that outlives this object, which then
  // is the base; what was copied out of the former one is given back. Results stay what they were
  // to the bit. `weights` may be null where the extent is plain, `fractions` where it has none.
  void merge_into(std::uint64_t* offsets, Node* neighbours, float* weights,
                  std::int32_t* fractions);

  void resize(std::size_t nodes);
  std::size_t nodes() const { return nodes_; }
  // Where the lists lie: one of the two is null. Valid until the next change.
  const List* lists() const { return compact() ? nullptr : lists_.data(); }
  const CompactLists* compact() const { return base_.offsets ? &base_ : nullptr; }
  std::uint32_t size(Node node) const { return entries(node, 0).size; }
  std::span<const Node> neighbours(Node node) const {
    const Entries found = entries(node, 0);
    return {found.neighbours, found.size};
  }
  Entries entries(Node node, int layer) const {
    const List* const list = changeable(node);
    return list ? entries_of(*list, layer) : untouched(node);
  }
  int layers() const { return layers_; }
  bool fine() const { return fine_; }

  // Position of `neighbour` in the list of `node`, or kAbsent.
  std::uint32_t find(Node node, Node neighbour) const;
  std::uint32_t find_to_change(Node node, Node neighbour) {
    own(node);
    return find(node, neighbour);
  }
  // Weight of the entry at a position that find() told.
  double weight(Node node, std::uint32_t position, int layer) const;
  // Sets it, at a position that find_to_change() told.
  void set_weight(Node node, std::uint32_t position, int layer, double weight);
  // Multiplies the weights of a node in one layer by a power of two; those that fall below `floor`
  // become zero. Says whether any is left.
  struct Scaled {
    bool left = false;     // whether any entry is
    bool dropped = false;  // whether any fell below the floor
    Scaled& operator|=(const Scaled& other) {
      left |= other.left;
      dropped |= other.dropped;
      return *this;
    }
  };
  Scaled scale(Node node, int layer, double factor, double floor);
  // Position of a new entry with all weights zero; `neighbour` must be absent.
  std::uint32_t insert(Node node, Node neighbour);
  void erase(Node node, std::uint32_t position);
  // Fills an empty list at once, in one layer.
  void assign(Node node, std::span<const Node> neighbours, std::span<const double> weights);
  // Moves everything into fresh memory when more than a quarter of it lies idle. Invalidates what
  // lists() returned.
  void tidy();
  std::size_t bytes() const;
  void archive(Archive& archive, const std::string& name);

 private:
  std::size_t words(std::uint32_t capacity) const;
  void reallocate(Node node, std::uint32_t size_class);
  void move_into(Arena& arena, List& list, std::uint32_t size_class);
  void begin_fractions();
  // Where the index of a list begins, in words.
  std::size_t index_place(std::uint32_t capacity) const {
    return std::size_t(capacity) * std::size_t(1 + layers_ * (fine_ ? 2 : 1));
  }
  template <class Work>
  void with_index(const List& list, Work work) const;
  void put_weight(List& list, std::uint32_t position, int layer, double weight);
  static float* weights_of(const List& list, int layer) {
    return reinterpret_cast<float*>(list.block +
                                    std::size_t(list.capacity) * std::size_t(1 + layer));
  }
  std::int32_t* fractions_of(const List& list, int layer) const {
    return reinterpret_cast<std::int32_t*>(list.block + std::size_t(list.capacity) *
                                                            std::size_t(1 + layers_ + layer));
  }
  Entries entries_of(const List& list, int layer) const {
    return {list.block, weights_of(list, layer), fine_ ? fractions_of(list, layer) : nullptr,
            list.size};
  }
  // The list of a node; null where it lies in the base.
  const List* changeable(Node node) const {
    if (!compact()) return &lists_[node];
    const List* const page = pages_[node / kPageLists];
    return page && page[node % kPageLists].size != kUntouched ? &page[node % kPageLists] : nullptr;
  }
  Entries untouched(Node node) const;
  List& place(Node node);  // of its list over the base
  // The list of a node, copied out of the base where it lay there.
  List& own(Node node);
  template <class Visit>
  void for_own_lists(Visit visit);  // visit(node, list)
  // Whether a list is another one than that of the base which was given at first.
  bool changed(Node node) const {
    return changeable(node) || (node < merged_.size() && merged_[node]);
  }
  void forget_own_lists();

  int layers_;
  bool fine_ = false;  // whether lists have room for fractions
  std::size_t nodes_ = 0;
  std::vector<List> lists_;  // of all nodes, where there is no base
  Arena arena_;
  CompactLists base_;
  std::vector<List*> pages_;  // over the base, of kPageLists each
  std::vector<std::unique_ptr<List[]>> page_memory_;
  // Nodes whose list in the base is the work of merge_into; empty before the first. Lists of such a
  // base are in the order in which they came about.
  std::vector<bool> merged_;
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
  double self_edge(Node node, int layer) const {
    return self_.empty() ? 0.0 : self_[self_place(node) + std::size_t(layer)];
  }

  void resize(std::size_t nodes);
  // Copies the weights of an edge, zeros where there is none; says whether it exists.
  bool read(Node src, Node dst, std::span<double> weights) const;
  // Creates the edge where it is absent.
  void write(Node src, Node dst, std::span<const double> weights);
  void erase(Node src, Node dst);
  // Starts from lists that outlive this object; `targets` where it is directed. `edges` are those
  // between different nodes. For an empty graph of one layer.
  void stand_on(const CompactLists& sources, const CompactLists& targets, std::size_t edges);
  Adjacency& sources_to_merge() { return sources_; }
  Adjacency& targets_to_merge() { return targets_; }
  // Fills an empty graph of one layer, adding up repeated edges in their order. Returns the row
  // with which a weight left the accepted range, if any did; the graph is then of no further use.
  std::optional<std::size_t> build(std::span<const std::int64_t> src,
                                   std::span<const std::int64_t> dst,
                                   std::span<const double> weight);
  // Multiplies one layer of the edges of a node by a power of two and forgets those that fall below
  // `floor`. To be called for both ends of every edge.
  Adjacency::Scaled scale_edges_of(Node node, int layer, double factor, double floor);
  void tidy();

  // Calls visit(src, dst, weight) for every edge once; undirected edges with src <= dst.
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

  // Lists are kept in order: a graph read back behaves to the bit like the one written.
  void archive(Archive& archive, const std::string& name);

 private:
  std::size_t nodes_ = 0;
  bool directed_;
  int layers_;
  std::size_t edges_ = 0;
  Adjacency sources_, targets_;
  double* own_self(Node node);  // its self-edge, [layers], to be written to
  std::size_t self_place(Node node) const { return std::size_t(node) * std::size_t(layers_); }
  std::vector<double> self_;  // [nodes, layers]; empty before the first self-edge
};

}  // namespace tidegraph
