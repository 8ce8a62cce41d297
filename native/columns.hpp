// Columns are processed in blocks: one random access then moves whole cache lines of useful
// numbers.
#pragma once

#include <cstddef>
#include <vector>

namespace tidegraph {

// Columns [first, first + count), padded with zeros to `width`.
struct ColumnBlock {
  std::size_t first, count, width;
};

// Divides columns of numbers of `bytes` bytes into blocks of nearly equal width and at most
// `widest` columns, in whole vectors; an even number of blocks if possible. Depends on nothing
// else: results must not depend on the number of threads.
std::vector<ColumnBlock> divide_columns(std::size_t columns, std::size_t bytes, std::size_t widest);

}  // namespace tidegraph
