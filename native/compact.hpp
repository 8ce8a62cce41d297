// Adjacency lists made of pairs that do not fit into memory: counted, filled and sorted for a
// window of nodes at a time. What comes out depends neither on the windows nor on the threads.
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

// In whose lists a pair stands: with its source, so that lists hold targets, with its destination,
// or with both.
enum class Ends : std::uint8_t { src = 0, dst = 1, both = 2 };

// Adds to `lengths`, per node, the pairs that will stand in its list.
void count_entries(const Pairs& pairs, Ends ends, int threads, std::span<std::uint32_t> lengths);

// The lists of the nodes from `first` on, one after the other; list i lies at [begin[i],
// begin[i+1]).
struct Window {
  Node first;
  std::span<const std::uint64_t> begin;  // [nodes + 1]
  std::span<Node> neighbours;
  std::span<double> weights;  // empty where all are one
  std::size_t nodes() const { return begin.size() - 1; }
};

// Writes pairs into the lists of a window, in their order and in any number of calls. `filled`, per
// node, counts the entries written so far.
void fill_lists(const Pairs& pairs, Ends ends, int threads, const Window& window,
                std::span<std::uint32_t> filled);

// Sorts every list by neighbour; equal ones stay in the order in which they were written. Returns
// the number of distinct entries. With weights each thread takes 16 bytes for every entry of the
// list that it sorts.
std::size_t sort_lists(const Window& window, int threads);

// Makes one entry of every neighbour in a sorted window, its weight the sum in the order of the
// list, and moves lists together; `given` are the weights so far, empty for ones, and may be
// window.weights. Writes the new lengths and returns their sum.
std::size_t merge_lists(const Window& window, std::span<const double> given,
                        std::span<std::uint32_t> lengths);

}  // namespace tidegraph
