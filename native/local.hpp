// Local propagation: how a walk from one node spreads over the events before a time.
//
// The graph of a time t is undirected. An event of time τ < t between a and b adds a weight to
// their edge: 1, or 2^-((t - τ) / half-life) in a channel that forgets. With d(a) the sum of the
// weights at a, P(b, a) = w(a, b) / d(a), and the indicator of a node u as h_0, the walk is h_k = P
// h_{k-1}: the paper's propagation of an indicator, hop by hop, with β = 0. Its π is the sum of all
// hops, weighted by γ0 γ^k, and h_k(v) (d(u) / d(v))^β is the walk for any other β.
//
// A node is pushed over its newest events only, and not at all if it would give each neighbour less
// than `r_max`. So estimates are too small, by at most the mass that a hop misses, 1 - Σ_v h_k(v).
//
// Besides, what followed: from each of the newest events of u, with a, on to other events of a,
// with b, and from there to what b did next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "history.hpp"

namespace tidegraph {

class LocalPropagation {
 public:
  static constexpr std::size_t kMostChannels = 4;
  static constexpr std::size_t kHops = 2;

  struct Settings {
    // Of the channels after the first, which does not forget: numbers of half-lives of the history,
    // fewer than kMostChannels.
    std::vector<std::size_t> half_lives;
    // How many of the newest events of a node are read: of the one that is asked about, and of its
    // neighbours. At most History::Latest::kMost.
    std::size_t own = 64, neighbours = 128;
    std::size_t followed = 16, following = 8;  // own events, and what happened after theirs
    float r_max = 1e-5f;
  };

  // history: must outlive the object. Throws std::invalid_argument for settings out of range.
  LocalPropagation(const History& history, Settings settings);

  std::size_t channels() const { return 1 + settings_.half_lives.size(); }
  // Per channel: h_1(v); h_2(v); the last step of h_2 and of h_3 taken over the events of v, each
  // as Σ_b h_k(b) P(v, b) and as Σ_b h_k(b) P(b, v); what followed at once, and soon. Each as
  // log(1 + 10^5 x).
  static constexpr std::size_t kMeasures = 8;
  std::size_t link_columns() const { return kMeasures * channels(); }
  // [src.size(), link_columns()]. Questions about one source and time are cheap in adjacent rows.
  void link_rows(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                 std::span<const std::int64_t> t, int threads, std::span<float> out) const;

  // The first two hops of a walk, and what followed: nodes in no order, and numbers about each,
  // [nodes, kHops + 2, channels].
  struct Spread {
    std::vector<std::uint32_t> nodes;
    std::vector<float> values;
  };
  Spread spread(std::int64_t node, std::int64_t t) const;
  // The partners of the newest events of a node, the latest first, and then those that a walk of
  // two or three hops reaches most likely, or that followed, best first; at most so many in all.
  // The third hop leaves from the likeliest nodes of the second only.
  std::vector<std::uint32_t> likeliest(std::int64_t node, std::int64_t t, std::size_t most) const;

 private:
  class Walk;

  const History* history_;
  Settings settings_;
};

}  // namespace tidegraph
