// Random features as a function of (seed, node, column): nothing is stored, and other orders, other
// machines and nodes that come later agree to the bit. Integer arithmetic throughout;
// tidegraph/channels.py does the same in NumPy.
#pragma once

#include <cstdint>

namespace tidegraph {

enum class Distribution : std::uint8_t { gaussian = 0, uniform = 1, sign = 2 };

double sketch(std::uint64_t seed, std::uint64_t node, std::uint64_t column,
              Distribution distribution);

}  // namespace tidegraph
