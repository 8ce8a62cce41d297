// Random features as a function of (seed, node, column): nothing is stored, and every order,
// machine and later node gets the same bits. Integer arithmetic throughout;
// tidegraph/engine/channels.py does the same in NumPy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tidegraph {

enum class Distribution : std::uint8_t { gaussian = 0, uniform = 1, sign = 2 };

double sketch(std::uint64_t seed, std::uint64_t node, std::uint64_t column,
              Distribution distribution);

// Writes the columns of a node from `first` on, each divided by its unit and rounded once.
template <class Real>
void sketch_row(std::uint64_t seed, std::uint64_t node, std::uint64_t first,
                Distribution distribution, std::span<const double> units, Real* out);

}  // namespace tidegraph
