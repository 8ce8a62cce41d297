#include "arena.hpp"

namespace tidegraph {

std::uint32_t* Arena::take(std::size_t words, std::size_t size_class) {
  live_ += words;
  if (words >= kOwnPageWords) return new std::uint32_t[words];
  if (size_class < free_.size() && !free_[size_class].empty()) {
    std::uint32_t* const block = free_[size_class].back();
    free_[size_class].pop_back();
    idle_ -= words;
    return block;
  }
  if (left_ < words) {
    idle_ += left_;
    pages_.push_back(std::make_unique_for_overwrite<std::uint32_t[]>(kPageWords));
    next_ = pages_.back().get();
    left_ = kPageWords;
  }
  std::uint32_t* const block = next_;
  next_ += words;
  left_ -= words;
  return block;
}

void Arena::give(std::uint32_t* block, std::size_t words, std::size_t size_class) {
  live_ -= words;
  if (words >= kOwnPageWords) {
    delete[] block;
    return;
  }
  if (free_.size() <= size_class) free_.resize(size_class + 1);
  free_[size_class].push_back(block);
  idle_ += words;
}

}  // namespace tidegraph
