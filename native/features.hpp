// The features being propagated, wherever they come from, in units of their column's threshold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "archive.hpp"
#include "kernels.hpp"
#include "rowstore.hpp"
#include "sketch.hpp"

namespace tidegraph {

// Columns [first, first + count), padded with zeros to `width`.
struct ColumnBlock {
  std::size_t first, count, width;
};

// Rows kept here; rows computed when they are read; rows of a matrix that someone else keeps.
struct FeatureSource {
  enum class Kind : std::uint8_t { kept = 0, sketched = 1, borrowed = 2 };
  Kind kind = Kind::kept;
  std::uint64_t seed = 0;  // of a sketch
  Distribution distribution = Distribution::gaussian;
  std::uint64_t first_column = 0;
};

// A sketch and a borrowed matrix stay as they are: rows that events change lie over them.
template <class Real>
class Features {
 public:
  Features(const FeatureSource& source, std::vector<ColumnBlock> blocks,
           std::span<const double> thresholds);

  // New nodes have the sketch's rows, or zeros.
  void resize(std::size_t nodes);
  // Rows of the nodes from 0 on, [count, columns], that outlive this object.
  void borrow(const float* rows, std::size_t count) { lent_ = {rows, count}; }
  void borrow(const double* rows, std::size_t count) { lent_ = {rows, count}; }
  void write(Node node, const double* row);  // [columns], in natural units
  void clear(Node node);                     // zeros, for good

  // The row of a node in one block, [width].
  void read(std::size_t block, Node node, Real* out) const;
  // All rows of a block, [nodes, width], where they are kept; null elsewhere.
  const Real* kept(std::size_t block) const {
    return source_.kind == FeatureSource::Kind::kept ? kept_[block].data() : nullptr;
  }
  std::size_t bytes() const;
  // Kept and borrowed rows in full, which come back as kept ones; of a sketch the changed rows.
  void archive(Archive& archive);

  // One block read row by row, on one thread at a time. What had to be computed is remembered for
  // a while: events come back to the nodes they have just changed.
  class Reader {
   public:
    void open(const Features& features, std::size_t block);
    const Real* row(Node node);  // valid until the next call
    std::size_t bytes() const { return recent_.bytes() + nodes_.size() * sizeof(Node); }

   private:
    const Features* features_ = nullptr;
    std::size_t block_ = 0;
    std::uint64_t version_ = 0;  // of the features, when the first of the remembered rows was read
    std::vector<Node> nodes_;    // which one a slot remembers
    RowStore<Real> recent_;
  };

 private:
  struct Lent {
    std::variant<const float*, const double*> rows;
    std::size_t count = 0;
  };
  static constexpr std::size_t kZero = ~std::size_t(0);  // the place of a row of zeros

  Real* changed_row(Node node);

  FeatureSource source_;
  std::vector<ColumnBlock> blocks_;
  std::vector<double> thresholds_;
  std::size_t nodes_ = 0;
  std::vector<RowStore<Real>> kept_;  // per block
  Lent lent_;
  std::unordered_map<Node, std::size_t> changed_;  // place among changed_rows_, or kZero
  std::vector<Real> changed_rows_;                 // [changed, all blocks]
  std::vector<std::size_t> vacant_;                // places of nodes that were cleared
  std::uint64_t version_ = 1;                      // counts the changes of rows that were there
};

}  // namespace tidegraph
