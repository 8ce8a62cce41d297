// What a step changes beside estimates and residuals: the graph, and what the channels read off it.
// A copy goes through the same steps to the same bits, so that threads need not wait for each
// other.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "versions.hpp"

namespace tidegraph {

struct ChannelSpec {
  std::size_t view;
  double gamma0, gamma, beta;
};

// 0 where there is no degree.
inline double power(double degree, double exponent) {
  if (degree <= 0) return 0;
  if (exponent == 0.5) return std::sqrt(degree);
  if (exponent == 0) return 1;
  if (exponent == 1) return degree;
  return std::pow(degree, exponent);
}

// What the precision can do. Let Y be the largest |feature| / (threshold * degree^(1-beta)), and L
// the largest limit per unit of degree, at most one threshold; no estimate is then larger than
// (Y + L) / (1 - |gamma|) in stored units. A push that has to
// stop at a residual of one threshold must be felt by an estimate of that size, and what is rounded
// outside of the residuals (features, weights, results) must be a part of one threshold. Where the
// matrix is not symmetric, rounding is amplified once more by 1 / (1 - |gamma|).
template <class Real>
struct Precision {
  static constexpr double kUlp = sizeof(Real) == 4 ? 0x1p-24 : 0x1p-53;
  // Y may be this times 1 - |gamma|, or its square.
  static constexpr double kReach = sizeof(Real) == 4 ? 0x1p22 : 0x1p44;
  // What edges that a row forgets as they decay may weigh together, as a share of its self-loop.
  static constexpr double kForgotten = sizeof(Real) == 4 ? 0x1p-32 : 0x1p-54;
  // Limits are kept in units of the first threshold and must not vanish.
  static constexpr double kLeastTolerance = sizeof(Real) == 4 ? 0x1p-60 : 0x1p-500;
  // Times a degree a feature must not overflow.
  static constexpr double kLargestPeak = sizeof(Real) == 4 ? 0x1p40 : 0x1p900;
  // What reading an estimate out rounds away, as a share of it.
  static constexpr double kReading = (sizeof(Real) == 4 ? 1.01 : 4) * kUlp;
};

template <class Real>
struct Ground {
  struct Channel {
    ChannelSpec spec;
    double omega = 1;
    // Derived from the largest feature and the lightest degree, see set_precision().
    double ratio = 0;     // Y
    double estimate = 0;  // no stored estimate is larger, in thresholds
    double keep = 1;      // the part of a threshold that pushing may use up
    double reach = 0;     // the smallest residual per degree that pushing can come down to
    double noise = 0;     // how far a residual computed in float64 may be off, per unit of degree
    double rounds = 0;    // how often a node may be pushed in one step, on average over all nodes
    std::vector<Real> pivot;
    std::vector<Moved> moved;  // of this step
  };

  Versions versions;
  bool scale_by_degree;
  std::vector<Channel> channels = {};
  double tolerance = 1;  // in parts of what was promised at the start
  double peak = 0;       // the largest |feature| so far, in units of its threshold
  std::uint64_t events = 0, correction_rows = 0;

  void add_channel(const ChannelSpec& spec);
  const View& view(std::size_t channel) const {
    return versions.views()[channels[channel].spec.view];
  }
  double pivot(std::size_t channel, Node node) const {
    const View& of = view(channel);
    return of.degree(node) - channels[channel].spec.gamma * versions.self_weight(of, node);
  }
  Matrix matrix(std::size_t channel) const;
  std::size_t bytes() const;

  // Room for the pivots of as many nodes as the graph has.
  void resize();
  // The smallest tolerance that the precision can hold with features as large as `peak`.
  double finest(double peak) const;
  // The lightest edge that the precision can hold at the present tolerance, without self-loops.
  double lightest_accepted(double peak) const;
  // Settles what depends on peak, tolerance and the lightest edge. Says whether limits change.
  bool set_precision();
  // Where the rule to stop stands for a node.
  Real limit(std::size_t channel, Node node) const;
  void set_pivots(std::size_t channel);
  // Pivots of the nodes from `first` on, of all that moved and of those swept, and the coefficients
  // of the corrections.
  void prepare(std::size_t channel, std::size_t first);

  // What set_precision() has last seen.
  struct Seen {
    double peak = -1, lightest = -1, tolerance = -1;
    bool operator==(const Seen&) const = default;
  };
  Seen seen = {};
  double lightest_degree(std::size_t channel) const;
  double ratio(std::size_t channel, double peak) const;
  double reachable(std::size_t channel) const;
};

}  // namespace tidegraph
