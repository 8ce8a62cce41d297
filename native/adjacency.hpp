// Adjacency lists that take insertions, deletions and look-ups in amortised O(1) at any degree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "archive.hpp"
#include "arena.hpp"
#include "kernels.hpp"

namespace tidegraph {

// One list of (neighbour, one weight per layer) per node. A list is a dense array, so that a push
// walks it without gaps; a long list has a hash index of positions behind it. Fractions of weights
// take room only once there is a weight that is not a float32.
class Adjacency {
 public:
  static constexpr std::uint32_t kAbsent = 0xffffffff;

  explicit Adjacency(int layers) : layers_(layers) {}
  // Copies the lists, but shares the base.
  Adjacency(const Adjacency& other);
  Adjacency& operator=(const Adjacency&) = delete;
  ~Adjacency();

  // Starts from these lists, which must outlive this object, instead of from empty ones. A list is
  // copied when it first changes. One layer only.
  void attach_base(const CompactLists& base);
  // What it takes to write a new base with all changes in it.
  struct Extent {
    std::size_t entries = 0;
    bool plain = true;  // whether every entry weighs one
    bool fine = false;  // whether there are fractions
  };
  Extent extent() const;
  // Writes all lists, in their order, into memory that outlives this object and makes that the
  // base; frees the copies of changed lists. Changes no bit of any result. `weights` may be null if
  // the extent is plain, `fractions` if it has none.
  void merge_into(std::uint64_t* offsets, Node* neighbours, float* weights,
                  std::int32_t* fractions);

  void resize(std::size_t nodes);
  std::size_t nodes() const { return nodes_; }
  // Where the lists are: one of the two is null. Valid until the next change.
  const List* lists() const { return compact() ? nullptr : lists_.data(); }
  const CompactLists* compact() const { return base_.offsets ? &base_ : nullptr; }
  std::uint32_t size(Node node) const { return entries(node, 0).size; }
  std::span<const Node> neighbours(Node node) const {
    const Entries found = entries(node, 0);
    return {found.neighbours, found.size};
  }
  Entries entries(Node node, int layer) const {
    const List* const list = own_list(node);
    return list ? entries_of(*list, layer) : base_entries(node);
  }
  int layers() const { return layers_; }
  // Whether lists have room for fractions.
  bool fine() const { return fine_; }

  // Return the position of `neighbour` in the list of `node`, or kAbsent.
  std::uint32_t find(Node node, Node neighbour) const;
  std::uint32_t find_to_change(Node node, Node neighbour) {
    own(node);
    return find(node, neighbour);
  }
  // Return the weight at a position from find().
  double weight(Node node, std::uint32_t position, int layer) const;
  // Set the weight at a position from find_to_change().
  void set_weight(Node node, std::uint32_t position, int layer, double weight);
  struct Scaled {
    bool left = false;     // whether any entry is above the floor
    bool dropped = false;  // whether any fell below it
    Scaled& operator|=(const Scaled& other) {
      left |= other.left;
      dropped |= other.dropped;
      return *this;
    }
  };
  // Multiplies the weights of a node in one layer by a power of two; those that fall below `floor`
  // become zero.
  Scaled scale(Node node, int layer, double factor, double floor);
  // Adds an entry with all weights zero and returns its position; `neighbour` must be absent.
  std::uint32_t insert(Node node, Node neighbour);
  void erase(Node node, std::uint32_t position);
  // Fills an empty list at once, in one layer.
  void assign(Node node, std::span<const Node> neighbours, std::span<const double> weights);
  // Moves everything into fresh memory if more than a quarter of it is idle. Invalidates what
  // lists() returned.
  void tidy();
  std::size_t bytes() const;
  void archive(Archive& archive, const std::string& name);

 private:
  std::size_t words(std::uint32_t capacity) const;
  void copy_lists(const Adjacency& other);
  void reallocate(Node node, std::uint32_t size_class);
  void move_into(Arena& arena, List& list, std::uint32_t size_class);
  void begin_fractions();
  // Where the index of a list begins, in words.
  std::size_t index_place(std::uint32_t capacity) const {
    return std::size_t(capacity) * std::size_t(1 + layers_ * (fine_ ? 2 : 1));
  }
  template <class Work>
  void with_index(const List& list, Work work) const;
  void fill_index(const List& list) const;
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
  // The changeable list of a node; null if its list is still the base's.
  const List* own_list(Node node) const {
    if (!compact()) return &lists_[node];
    const List* const page = pages_[node / kPageLists];
    return page && page[node % kPageLists].size != kUntouched ? &page[node % kPageLists] : nullptr;
  }
  Entries base_entries(Node node) const;
  // Where the changeable list of a node is, or will be, if there is a base.
  List& place(Node node);
  // The changeable list of a node, copied from the base if need be.
  List& own(Node node);
  template <class Self, class Visit>
  static void for_own_lists(Self& self, Visit visit);  // visit(node, list)
  // Whether the list differs from that of the base attached first.
  bool changed(Node node) const {
    return own_list(node) || (node < merged_.size() && merged_[node]);
  }
  void free_own_lists();

  int layers_;
  bool fine_ = false;
  std::size_t nodes_ = 0;
  std::vector<List> lists_;  // of all nodes, without a base
  Arena arena_;
  CompactLists base_;
  std::vector<List*> pages_;  // of kPageLists lists each, over the base
  std::vector<std::unique_ptr<List[]>> page_memory_;
  // Nodes whose list in the base was written by merge_into; empty before the first merge. The lists
  // of such a base are not sorted.
  std::vector<bool> merged_;
};

}  // namespace tidegraph
