// Memory for rows of numbers, one row per node.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace tidegraph {

// Zeroed memory for rows, in large pages if it is large. Each block of columns has its own store,
// so that growing keeps only one block twice.
template <class Real>
class RowStore {
 public:
  void resize(std::size_t rows, std::size_t width);
  Real* data() { return data_.get(); }
  const Real* data() const { return data_.get(); }
  std::size_t bytes() const { return capacity_ * sizeof(Real); }

 private:
  struct Free {
    std::align_val_t alignment{64};
    void operator()(Real* memory) const { ::operator delete[](memory, alignment); }
  };
  std::unique_ptr<Real[], Free> data_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace tidegraph
