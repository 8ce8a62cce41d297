#include "rowstore.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstring>

namespace tidegraph {
namespace {

constexpr std::size_t kLargePage = std::size_t(1) << 21;

// Rows are read at random: with pages of 4 KiB, a large state suffers from TLB misses.
void use_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  if (bytes >= kLargePage)
    madvise(memory, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);  // only a hint
#endif
}

}  // namespace

template <class Real>
void RowStore<Real>::resize(std::size_t rows, std::size_t width) {
  const std::size_t size = rows * width;
  if (size > capacity_) {
    const std::size_t capacity = capacity_ == 0 ? size : std::max(size, capacity_ + capacity_ / 2);
    const std::size_t bytes = capacity * sizeof(Real);
    const std::align_val_t alignment{bytes < kLargePage ? 64 : kLargePage};
    Real* const memory = static_cast<Real*>(::operator new[](bytes, alignment));
    use_large_pages(memory, bytes);
    if (size_) std::memcpy(memory, data_.get(), size_ * sizeof(Real));
    data_ = {memory, Free{alignment}};
    capacity_ = capacity;
  }
  if (size > size_)
    std::memset(static_cast<void*>(data_.get() + size_), 0, (size - size_) * sizeof(Real));
  size_ = size;
}

template class RowStore<float>;
template class RowStore<double>;

}  // namespace tidegraph
