#include "compact.hpp"

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "check.hpp"
#include "graph.hpp"
#include "support.hpp"
#include "versions.hpp"

using support::Random;
using tidegraph::Adjacency;
using tidegraph::CompactLists;
using tidegraph::Ends;
using tidegraph::Entries;
using tidegraph::Node;
using tidegraph::Pairs;
using tidegraph::Window;

namespace {

constexpr std::size_t kNodes = 50;

struct Table {
  std::vector<Node> src, dst;
  std::vector<double> weight;
  Pairs rows(std::size_t first, std::size_t last) const {
    const std::size_t count = last - first;
    return {std::span(src).subspan(first, count), std::span(dst).subspan(first, count),
            std::span(weight).subspan(weight.empty() ? 0 : first, weight.empty() ? 0 : count)};
  }
};

// Pairs of different nodes, most of them repeated, with weights of every size.
Table some_rows(std::size_t count) {
  Table table;
  Random random(5);
  while (table.src.size() < count) {
    const Node src = Node(random.below(kNodes)),
               dst = Node(random.chance(0.3) ? 3 : random.below(kNodes));
    if (src == dst) continue;
    table.src.push_back(src);
    table.dst.push_back(dst);
    table.weight.push_back(std::exp2(100 * random.uniform() - 50));
  }
  return table;
}

struct Built {
  std::vector<std::uint32_t> lengths;
  std::vector<Node> neighbours;
  std::vector<double> weights;
  std::size_t distinct = 0;
};

// The lists of all nodes, built with the given window of nodes and number of rows per call.
Built build(const Table& table, Ends ends, std::size_t nodes_at_once, std::size_t rows_at_once,
            int threads) {
  const std::size_t rows = table.src.size();
  std::vector<std::uint32_t> lengths(kNodes);
  count_entries(table.rows(0, rows), ends, threads, lengths);
  Built built;
  for (std::size_t first = 0; first < kNodes; first += nodes_at_once) {
    const std::size_t last = std::min(kNodes, first + nodes_at_once);
    std::vector<std::uint64_t> begin{0};
    for (std::size_t node = first; node < last; ++node)
      begin.push_back(begin.back() + lengths[node]);
    std::vector<Node> neighbours(begin.back());
    std::vector<double> weights(begin.back());
    std::vector<std::uint32_t> filled(last - first);
    const Window window{Node(first), begin, neighbours, weights};
    for (std::size_t row = 0; row < rows; row += rows_at_once)
      fill_lists(table.rows(row, std::min(rows, row + rows_at_once)), ends, threads, window,
                 filled);
    for (std::size_t i = 0; i < filled.size(); ++i) CHECK_EQUAL(filled[i], lengths[first + i]);
    built.distinct += sort_lists(window, threads);
    const std::size_t count = merge_lists(window, weights, filled);
    built.lengths.insert(built.lengths.end(), filled.begin(), filled.end());
    built.neighbours.insert(built.neighbours.end(), neighbours.begin(),
                            neighbours.begin() + std::ptrdiff_t(count));
    built.weights.insert(built.weights.end(), weights.begin(),
                         weights.begin() + std::ptrdiff_t(count));
  }
  return built;
}

}  // namespace

TEST(weights_of_repeated_pairs_add_up_in_the_order_of_rows_whatever_the_windows) {
  const Table table = some_rows(4000);
  for (const Ends ends : {Ends::src, Ends::dst, Ends::both}) {
    std::map<std::pair<Node, Node>, double> sums;  // ascending by node, then by neighbour
    for (std::size_t row = 0; row < table.src.size(); ++row) {
      if (ends != Ends::dst) sums[{table.src[row], table.dst[row]}] += table.weight[row];
      if (ends != Ends::src) sums[{table.dst[row], table.src[row]}] += table.weight[row];
    }
    for (const int threads : {1, 3})
      for (const std::size_t nodes_at_once : {std::size_t(7), kNodes})
        for (const std::size_t rows_at_once : {std::size_t(33), std::size_t(5000)}) {
          const Built built = build(table, ends, nodes_at_once, rows_at_once, threads);
          CHECK_EQUAL(built.distinct, sums.size());
          CHECK_EQUAL(built.neighbours.size(), sums.size());
          auto expected = sums.begin();
          std::size_t e = 0;
          for (std::size_t node = 0; node < kNodes; ++node)
            for (std::uint32_t i = 0; i < built.lengths[node]; ++i, ++e, ++expected) {
              CHECK(expected->first == std::pair(Node(node), built.neighbours[e]));
              CHECK_EQUAL(expected->second, built.weights[e]);
            }
        }
  }
}

TEST(repeated_pairs_without_weights_are_counted_beyond_float32) {
  constexpr std::uint64_t kMany = (1 << 24) + 1;
  const std::vector<std::uint64_t> begin{0, kMany + 2};
  std::vector<Node> neighbours(kMany + 2, 7);
  neighbours[0] = 2;
  neighbours.back() = 9;
  // Read from the base, and copied when another entry changes.
  CompactLists base;
  base.nodes = 1;
  base.offsets = begin.data();
  base.neighbours = neighbours.data();
  Adjacency lists(1);
  lists.attach_base(base);
  CHECK_EQUAL(lists.weight(0, lists.find(0, 7), 0), double(kMany));
  lists.set_weight(0, lists.find_to_change(0, 2), 0, 3);
  CHECK_EQUAL(lists.size(0), 3u);
  CHECK_EQUAL(lists.weight(0, lists.find(0, 7), 0), double(kMany));
  // Merged while a graph is built.
  std::vector<double> weights(kMany + 2);
  std::vector<std::uint32_t> lengths(1);
  const Window window{0, begin, neighbours, weights};
  CHECK_EQUAL(merge_lists(window, {}, lengths), 3u);
  CHECK_EQUAL(weights[0], 1.0);
  CHECK_EQUAL(weights[1], double(kMany));
  CHECK_EQUAL(weights[2], 1.0);
}

TEST(lists_with_fractions_keep_them_when_they_are_copied_and_merged) {
  Random random(6);
  Adjacency plain(1);
  plain.resize(kNodes);
  std::vector<std::uint64_t> offsets{0};
  std::vector<Node> neighbours;
  std::vector<float> weights;
  std::vector<std::int32_t> fractions;
  for (Node node = 0; node < kNodes; ++node) {
    for (Node other = 0; other < kNodes; ++other) {
      if (random.chance(0.5)) continue;
      plain.set_weight(node, plain.insert(node, other), 0, std::exp2(100 * random.uniform() - 50));
    }
    const Entries list = plain.entries(node, 0);
    neighbours.insert(neighbours.end(), list.neighbours, list.neighbours + list.size);
    weights.insert(weights.end(), list.weights, list.weights + list.size);
    fractions.insert(fractions.end(), list.fractions, list.fractions + list.size);
    offsets.push_back(neighbours.size());
  }
  CompactLists base;
  base.nodes = kNodes;
  base.offsets = offsets.data();
  base.neighbours = neighbours.data();
  base.weights = weights.data();
  base.fractions = fractions.data();
  Adjacency over(1);
  over.attach_base(base);
  CHECK(over.fine());
  const auto same = [&] {
    for (Node node = 0; node < kNodes; ++node) {
      const Entries expected = plain.entries(node, 0), found = over.entries(node, 0);
      CHECK_EQUAL(expected.size, found.size);
      for (std::uint32_t e = 0; e < expected.size; ++e) {
        CHECK_EQUAL(expected.neighbours[e], found.neighbours[e]);
        CHECK_EQUAL(weight_at(expected, e), weight_at(found, e));
      }
    }
  };
  same();
  for (Node node = 0; node < kNodes; node += 3)
    for (Adjacency* lists : {&plain, &over})
      lists->set_weight(node, lists->find_to_change(node, neighbours[offsets[node]]), 0, 0.1);
  same();
  const Adjacency::Extent extent = over.extent();
  CHECK(!extent.plain && extent.fine);
  std::vector<std::uint64_t> new_offsets(kNodes + 1);
  std::vector<Node> new_neighbours(extent.entries);
  std::vector<float> new_weights(extent.entries);
  std::vector<std::int32_t> new_fractions(extent.entries);
  over.merge_into(new_offsets.data(), new_neighbours.data(), new_weights.data(),
                  new_fractions.data());
  same();
}

TEST(a_weight_that_float32_rounds_to_one_is_not_merged_as_one) {
  const std::vector<std::uint64_t> offsets{0, 1, 2};
  const std::vector<Node> neighbours{1, 0};
  CompactLists base;
  base.nodes = 2;
  base.offsets = offsets.data();
  base.neighbours = neighbours.data();
  Adjacency lists(1);
  lists.attach_base(base);
  CHECK(lists.extent().plain);
  lists.set_weight(0, lists.find_to_change(0, 1), 0, 1 + 0x1p-40);
  CHECK(!lists.extent().plain);
}

TEST(weights_out_of_range_are_rejected_before_anything_changes) {
  const std::vector<std::uint64_t> offsets{0, 1, 2};
  const std::vector<Node> neighbours{1, 0}, selves{1};
  for (const float weight : {0.0f, -1.0f, 0x1p-65f, 0x1p65f, INFINITY, NAN})
    for (const bool at_self : {false, true}) {
      const std::vector<float> weights{1, at_self ? 1 : weight}, own{at_self ? weight : 1};
      CompactLists base;
      base.nodes = 2;
      base.offsets = offsets.data();
      base.neighbours = neighbours.data();
      base.weights = weights.data();
      tidegraph::Versions versions(2, false, 1, 0, {{}}, {{0, tidegraph::Direction::out}});
      bool rejected = false;
      try {
        versions.attach_base(base, base, 1, {selves.data(), own.data(), nullptr, 1});
      } catch (const tidegraph::EventError&) { rejected = true; }
      CHECK(rejected);
      CHECK_EQUAL(versions.edges(), 0u);
    }
}
