// Sums of many numbers in a fixed order that vectorises.
#pragma once

#include <cstddef>

namespace tidegraph {

// Sums in parallel lanes, which a compiler can keep in vectors, in an order that is always the
// same. In double, since the square of a small float would underflow.
inline constexpr std::size_t kSums = 8;

inline double total(const double (&sums)[kSums]) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

}  // namespace tidegraph
