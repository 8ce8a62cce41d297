// Edge weights as adjacency lists store them: the nearest float32, which pushes in float32 read,
// and what that rounds away, the fraction, in units of 2^-31 of its last place. Together they are
// the user's float64.
//
// kernels.cpp, which is compiled once per instruction set, shares these functions with the rest of
// the core. They are always inlined, so that no object file contains a copy of them which the
// linker could choose for a machine that lacks its instructions.
#pragma once

#include <cstdint>

#include "kernels.hpp"

namespace tidegraph {

// Edges and self-loops weigh between these.
inline constexpr double kLightest = 0x1p-64, kHeaviest = 0x1p64;

inline constexpr int kFractionBits = 31;

// The value of one unit of a weight's fraction.
[[gnu::always_inline]] inline double fraction_unit(float weight) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &weight, sizeof bits);
  bits &= 0x7f800000u;  // the power of two below the weight
  float power;
  __builtin_memcpy(&power, &bits, sizeof power);
  constexpr double kUnit = 1.0 / (1ull << (23 + kFractionBits));
  return double(power) * kUnit;
}

// The weight of an entry in float64.
[[gnu::always_inline]] inline double weight_at(const Entries& entries, std::uint32_t position) {
  if (!entries.weights) return 1;
  const float weight = entries.weights[position];
  if (!entries.fractions) return double(weight);
  return double(weight) + double(entries.fractions[position]) * fraction_unit(weight);
}

}  // namespace tidegraph
