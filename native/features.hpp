// The features being propagated, from any source, in units of their column's threshold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "archive.hpp"
#include "columns.hpp"
#include "kernels.hpp"
#include "rowstore.hpp"
#include "sketch.hpp"

namespace tidegraph {

// Where rows come from: they are stored here, computed when read, or read from the caller's matrix.
struct FeatureSource {
  enum class Kind : std::uint8_t { kept = 0, sketched = 1, borrowed = 2 };
  Kind kind = Kind::kept;
  std::uint64_t seed = 0;  // of a sketch
  Distribution distribution = Distribution::gaussian;
  std::uint64_t first_column = 0;
};

// A sketch and a borrowed matrix never change: rows that events change are stored over them.
template <class Real>
class Features {
 public:
  Features(const FeatureSource& source, std::vector<ColumnBlock> blocks,
           std::span<const double> thresholds);

  // New nodes get the sketch's rows, or zeros.
  void resize(std::size_t nodes);
  // Reads the rows of the first nodes from here, [count, columns]; must outlive this object.
  void borrow(const float* rows, std::size_t count) { lent_ = {rows, count}; }
  void borrow(const double* rows, std::size_t count) { lent_ = {rows, count}; }
  // Sets a row, [columns], given in natural units.
  void write(Node node, const double* row);
  // Sets a row to zero for good.
  void clear(Node node);

  // Copies the row of a node in one block, [width].
  void read(std::size_t block, Node node, Real* out) const;
  // Returns all rows of a block, [nodes, width], if they are stored; otherwise null.
  const Real* kept(std::size_t block) const {
    return source_.kind == FeatureSource::Kind::kept ? kept_[block].data() : nullptr;
  }
  std::size_t bytes() const;
  // Writes stored and borrowed rows in full, which are read back as stored ones; of a sketch, only
  // the changed rows.
  void archive(Archive& archive);

  // Reads one block row by row, on one thread at a time. Caches computed rows: events return to the
  // nodes they have just changed.
  class Reader {
   public:
    void open(const Features& features, std::size_t block);
    const Real* row(Node node);  // valid until the next call
    std::size_t bytes() const { return recent_.bytes() + nodes_.size() * sizeof(Node); }

   private:
    const Features* features_ = nullptr;
    std::size_t block_ = 0;
    std::uint64_t version_ = 0;  // of the features, when the first cached row was read
    std::vector<Node> nodes_;    // per slot
    RowStore<Real> recent_;
  };

 private:
  struct Lent {
    std::variant<const float*, const double*> rows;
    std::size_t count = 0;
  };
  static constexpr std::size_t kZero = ~std::size_t(0);  // stands for a row of zeros

  Real* changed_row(Node node);

  FeatureSource source_;
  std::vector<ColumnBlock> blocks_;
  std::vector<double> thresholds_;
  std::size_t nodes_ = 0;
  std::vector<RowStore<Real>> kept_;  // per block
  Lent lent_;
  std::unordered_map<Node, std::size_t> changed_;  // row of changed_rows_, or kZero
  std::vector<Real> changed_rows_;                 // [changed, all blocks]
  std::vector<std::size_t> vacant_;                // rows of nodes that were cleared
  std::uint64_t version_ = 1;                      // counts changes of existing rows
};

}  // namespace tidegraph
