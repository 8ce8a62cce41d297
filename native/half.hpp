// IEEE half precision, each array with its own power of two.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tidegraph {

// A record's exponent scales the largest value of a channel to between 2^14 and 2^15; decoded
// values are multiples of float's smallest number.
inline constexpr int kPeakExponent = 14, kLeastExponent = -120;

// Rounds to the nearest, ties to even; |value| is at most 2^15.
inline std::uint16_t to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size >= 0x38800000)  // at least 2^-14, a normal number: drop 13 bits, shift the exponent
    return std::uint16_t(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
  // Floats near 1/2 are 2^-24 apart, as subnormal halves are: the addition rounds.
  const float shifted = std::bit_cast<float>(size) + 0.5f;
  return std::uint16_t(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
}

// Moves the bits to where float has them and corrects the exponent by a multiplication: exact, for
// subnormal numbers too, and without branches.
inline float from_half(std::uint16_t half) {
  const float size = std::bit_cast<float>(std::uint32_t(half & 0x7fff) << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) | std::uint32_t(half & 0x8000)
                                                                       << 16);
}

inline void decode_half(const std::uint16_t* halves, int exponent, std::size_t count, float* out) {
  const float unit = std::ldexp(1.0f, exponent);
  for (std::size_t i = 0; i < count; ++i) out[i] = from_half(halves[i]) * unit;
}

// The exponent of a record's channel.
inline int peak_exponent(const float* values, std::size_t count) {
  float peak = 0;
  for (std::size_t i = 0; i < count; ++i) peak = std::max(peak, std::abs(values[i]));
  return peak == 0 ? 0 : std::max(std::ilogb(peak) - kPeakExponent, kLeastExponent);
}

}  // namespace tidegraph
