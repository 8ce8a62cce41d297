#include "events.hpp"

#include <cstdio>

namespace tidegraph {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string describe(std::size_t row, std::int64_t src, std::int64_t dst) {
  return "row " + std::to_string(row) + " (" + std::to_string(src) + ", " + std::to_string(dst) +
         "): ";
}

Rows Rows::slice(std::size_t first, std::size_t last) const {
  const auto part = [&](auto whole) {
    return whole.empty() ? whole : whole.subspan(first, last - first);
  };
  return {part(src), part(dst), part(weight), part(op), part(t)};
}

}  // namespace tidegraph
