// Builds adjacency lists from pairs that do not fit into memory: counts, fills and sorts them for
// one window of nodes at a time. The result depends neither on the windows nor on the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels.hpp"

namespace tidegraph {

// Edges between different nodes.
struct Pairs {
  std::span<const Node> src, dst;
  std::span<const double> weight;  // empty: all one
};

// Which ends of a pair list the other end: its source, its destination, or both.
enum class Ends : std::uint8_t { src = 0, dst = 1, both = 2 };

// Adds to `lengths`, per node, the number of entries of its list.
void count_entries(const Pairs& pairs, Ends ends, int threads, std::span<std::uint32_t> lengths);

// The lists of the nodes from `first` on, one after the other; list i is [begin[i], begin[i+1]).
struct Window {
  Node first;
  std::span<const std::uint64_t> begin;  // [nodes + 1]
  std::span<Node> neighbours;
  std::span<double> weights;  // empty: all one
  std::size_t nodes() const { return begin.size() - 1; }
};

// Writes pairs into the lists of a window, in order and in any number of calls. `filled` counts,
// per node, the entries written so far.
void fill_lists(const Pairs& pairs, Ends ends, int threads, const Window& window,
                std::span<std::uint32_t> filled);

// Sorts every list by neighbour; equal neighbours keep their order. Returns the number of distinct
// entries. With weights, each thread needs 16 bytes for every entry of the list that it sorts.
std::size_t sort_lists(const Window& window, int threads);

// Merges the entries of each neighbour in a sorted window, adding up weights in the order of the
// list, and closes the gaps between lists. `given` are the weights so far, or empty for ones; it
// may be window.weights. Writes the new lengths and returns their sum.
std::size_t merge_lists(const Window& window, std::span<const double> given,
                        std::span<std::uint32_t> lengths);

}  // namespace tidegraph
