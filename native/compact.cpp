#include "compact.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "parallel.hpp"

namespace tidegraph {
namespace {

constexpr std::size_t kNodesAtOnce = 1 << 12;

// Calls visit(row, node, neighbour) for every entry in the lists of the nodes [first, last).
template <class Visit>
void for_ends(const Pairs& pairs, Ends ends, std::size_t first, std::size_t last, Visit visit) {
  const bool at_src = ends != Ends::dst, at_dst = ends != Ends::src;
  const std::size_t count = last - first;
  for (std::size_t row = 0; row < pairs.src.size(); ++row) {
    const Node src = pairs.src[row], dst = pairs.dst[row];
    if (at_src && std::size_t(src) - first < count) visit(row, src, dst);
    if (at_dst && std::size_t(dst) - first < count) visit(row, dst, src);
  }
}

}  // namespace

// Every thread reads all pairs and takes the entries of its own nodes: reading in order costs
// little compared with writing at random.
void count_entries(const Pairs& pairs, Ends ends, int threads, std::span<std::uint32_t> lengths) {
  const std::size_t shares = std::size_t(threads);
  parallel_for(shares, threads, [&](std::size_t share) {
    const std::size_t first = lengths.size() * share / shares,
                      last = lengths.size() * (share + 1) / shares;
    for_ends(pairs, ends, first, last, [&](std::size_t, Node node, Node) { ++lengths[node]; });
  });
}

void fill_lists(const Pairs& pairs, Ends ends, int threads, const Window& window,
                std::span<std::uint32_t> filled) {
  const std::size_t shares = std::size_t(threads);
  // Shares with equal numbers of entries: degrees of old and new nodes differ a lot.
  const auto border = [&](std::size_t share) {
    const std::uint64_t entries = window.begin.back() * share / shares;
    return std::size_t(std::lower_bound(window.begin.begin(), window.begin.end() - 1, entries) -
                       window.begin.begin());
  };
  parallel_for(shares, threads, [&](std::size_t share) {
    const std::size_t first = share == 0 ? 0 : border(share),
                      last = share + 1 == shares ? window.nodes() : border(share + 1);
    for_ends(pairs, ends, window.first + first, window.first + last,
             [&](std::size_t row, Node node, Node neighbour) {
               const std::size_t i = node - window.first;
               const std::uint64_t place = window.begin[i] + filled[i]++;
               window.neighbours[place] = neighbour;
               if (!window.weights.empty())
                 window.weights[place] = pairs.weight.empty() ? 1.0 : pairs.weight[row];
             });
  });
}

std::size_t sort_lists(const Window& window, int threads) {
  std::atomic<std::size_t> distinct{0};
  parallel_for((window.nodes() + kNodesAtOnce - 1) / kNodesAtOnce, threads, [&](std::size_t item) {
    std::vector<std::uint64_t> order;  // neighbour and place of an entry
    std::vector<double> weights;
    std::size_t found = 0;
    for (std::size_t i = item * kNodesAtOnce;
         i < std::min(window.nodes(), (item + 1) * kNodesAtOnce); ++i) {
      const std::size_t first = window.begin[i], last = window.begin[i + 1];
      Node* const neighbours = window.neighbours.data();
      if (window.weights.empty()) {
        std::sort(neighbours + first, neighbours + last);
      } else {
        order.clear();
        for (std::size_t e = first; e < last; ++e)
          order.push_back(std::uint64_t(neighbours[e]) << 32 | (e - first));
        std::sort(order.begin(), order.end());
        weights.assign(window.weights.begin() + std::ptrdiff_t(first),
                       window.weights.begin() + std::ptrdiff_t(last));
        for (std::size_t e = first; e < last; ++e) {
          neighbours[e] = Node(order[e - first] >> 32);
          window.weights[e] = weights[order[e - first] & 0xffffffff];
        }
      }
      for (std::size_t e = first; e < last; ++e)
        found += e == first || neighbours[e] != neighbours[e - 1];
    }
    distinct += found;
  });
  return distinct;
}

std::size_t merge_lists(const Window& window, std::span<const double> given,
                        std::span<std::uint32_t> lengths) {
  std::size_t to = 0;
  for (std::size_t i = 0; i < window.nodes(); ++i) {
    const std::size_t begin = to;
    for (std::size_t e = window.begin[i]; e < window.begin[i + 1];) {
      const Node neighbour = window.neighbours[e];
      double sum = 0;
      for (; e < window.begin[i + 1] && window.neighbours[e] == neighbour; ++e)
        sum += given.empty() ? 1.0 : given[e];
      window.neighbours[to] = neighbour;
      window.weights[to++] = sum;
    }
    lengths[i] = std::uint32_t(to - begin);
  }
  return to;
}

}  // namespace tidegraph
