// What a step changes apart from estimates and residuals: the graph, and what the channels derive
// from it. A copy taken through the same steps arrives at the same bits, so that threads with a
// copy each need not wait for each other.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "versions.hpp"

namespace tidegraph {

struct ChannelSpec {
  std::size_t view;
  double gamma0, gamma, beta;
};

// degree^exponent; 0 without a degree.
inline double power(double degree, double exponent) {
  if (degree <= 0) return 0;
  if (exponent == 0.5) return std::sqrt(degree);
  if (exponent == 0) return 1;
  if (exponent == 1) return degree;
  return std::pow(degree, exponent);
}

// What the precision can hold. Let Y be the largest |feature| / (threshold * degree^(1-beta)), and
// L the largest limit per unit of degree, at most one threshold. Then no estimate exceeds (Y + L) /
// (1 - |gamma|) in stored units. A push that stops at a residual of one threshold must still change
// an estimate of that size, and what is rounded outside of the residuals (features, weights,
// results) must be a fraction of one threshold. If the matrix is not symmetric, rounding is
// amplified once more by 1 / (1 - |gamma|).
template <class Real>
struct Precision {
  static constexpr double kUlp = sizeof(Real) == 4 ? 0x1p-24 : 0x1p-53;
  // The largest Y is this times 1 - |gamma|, or times its square.
  static constexpr double kReach = sizeof(Real) == 4 ? 0x1p22 : 0x1p44;
  // The most that the edges dropped from a decaying row may weigh, relative to its self-loop.
  static constexpr double kForgotten = sizeof(Real) == 4 ? 0x1p-32 : 0x1p-54;
  // Limits are stored in units of the first threshold and must not underflow.
  static constexpr double kLeastTolerance = sizeof(Real) == 4 ? 0x1p-60 : 0x1p-500;
  // A feature times a degree must not overflow.
  static constexpr double kLargestPeak = sizeof(Real) == 4 ? 0x1p40 : 0x1p900;
  // The relative error of reading an estimate.
  static constexpr double kReading = (sizeof(Real) == 4 ? 1.01 : 4) * kUlp;
};

template <class Real>
struct ChannelState {
  struct Channel {
    ChannelSpec spec;
    double omega = 1;
    // set_precision() derives these from the largest feature and the lightest degree.
    double ratio = 0;     // Y
    double estimate = 0;  // the largest possible stored estimate, in thresholds
    double keep = 1;      // the part of a threshold that pushing may use up
    double reach = 0;     // the smallest residual per degree that pushing can reach
    double noise = 0;     // the error of a residual computed in float64, per unit of degree
    double rounds = 0;    // the most pushes per node in one step, on average
    std::vector<Real> pivot;
    std::vector<Moved> moved;  // in this step
  };

  ChannelState(Versions versions_, bool scale_by_degree_)
      : versions(std::move(versions_)), scale_by_degree(scale_by_degree_) {}

  Versions versions;
  bool scale_by_degree;
  std::vector<Channel> channels = {};
  double tolerance = 1;  // the thresholds, relative to those promised at the start
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

  // Makes room for the pivots of all nodes of the graph.
  void resize();
  // The smallest tolerance that the precision can hold with features as large as `peak`.
  double finest(double peak) const;
  // The lightest edge that the precision can hold at the present tolerance, without self-loops.
  double lightest_accepted(double peak) const;
  // Updates what depends on peak, tolerance and the lightest edge; returns whether limits change.
  bool set_precision();
  // The stopping rule of a node.
  Real limit(std::size_t channel, Node node) const;
  void set_pivots(std::size_t channel);
  // Sets the pivots of the nodes from `first` on and of those with a changed row, and the
  // coefficients of the corrections.
  void prepare(std::size_t channel, std::size_t first);

 private:
  // The inputs of the last set_precision().
  struct Inputs {
    double peak = -1, lightest = -1, tolerance = -1;
    bool operator==(const Inputs&) const = default;
  };
  double lightest_degree(std::size_t channel) const;
  double ratio(std::size_t channel, double peak) const;
  double reachable(std::size_t channel) const;

  Inputs inputs_ = {};
};

}  // namespace tidegraph
