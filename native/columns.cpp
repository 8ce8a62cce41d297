#include "columns.hpp"

#include <algorithm>

#include "kernels.hpp"

namespace tidegraph {

std::vector<ColumnBlock> divide_columns(std::size_t columns, std::size_t bytes,
                                        std::size_t widest) {
  const std::size_t lanes = (columns * bytes <= kNarrowBytes ? kNarrowBytes : kVectorBytes) / bytes;
  const std::size_t vectors = (columns + lanes - 1) / lanes;
  widest = std::min(widest, kMaxWidth) / lanes;
  std::size_t count = (vectors + widest - 1) / std::max<std::size_t>(widest, 1);
  if (count % 2 && vectors >= 4) ++count;
  std::vector<ColumnBlock> blocks;
  for (std::size_t b = 0, vector = 0; b < count; ++b) {
    const std::size_t take =
        (vectors - vector) / (count - b) + ((vectors - vector) % (count - b) != 0);
    const std::size_t first = vector * lanes;
    blocks.push_back({first, std::min(take * lanes, columns - first), take * lanes});
    vector += take;
  }
  return blocks;
}

}  // namespace tidegraph
