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

template <class Real>
struct Ground {
  struct Channel {
    ChannelSpec spec;
    double omega = 1;
    double estimate_unit = 1,
           residual_unit = 1;  // stored = unit * natural; other than 1 only under decay
    std::vector<Real> limit, pivot;
    std::vector<Moved> moved;  // of this step
  };

  Versions versions;
  bool scale_by_degree;
  std::vector<Channel> channels = {};
  double tolerance = 1;  // in parts of what was promised at the start
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

  // Room for the limits and pivots of as many nodes as the graph has.
  void resize();
  // The units of a channel, which time moves.
  void set_units(std::size_t channel);
  // Powers of two by which stored numbers change when the unit of their version was `from`.
  struct Shift {
    int estimate, residual;
  };
  Shift shift(std::size_t channel, std::int64_t from) const;
  // Where the rule to stop stands for a node, and for all.
  void set_limit(std::size_t channel, Node node);
  void set_limits(std::size_t channel);
  // Limits and pivots of the nodes from `first` on and of all that moved, and the coefficients of
  // the corrections. `renewed`: self-loops may have been.
  void prepare(std::size_t channel, std::size_t first, bool renewed);
};

}  // namespace tidegraph
