// Memory for the lists of an adjacency.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tidegraph {

// Hands out blocks of 32-bit words. Freed blocks are kept by size class and handed out again;
// Adjacency::tidy squeezes out what accumulates unused.
class Arena {
 public:
  // Blocks from this size on are allocations of their own, which the caller deletes.
  static constexpr std::size_t kOwnPageWords = 1 << 12;
  static constexpr std::size_t kPageWords = 1 << 18;  // 1 MiB

  std::uint32_t* take(std::size_t words, std::size_t size_class);
  void give(std::uint32_t* block, std::size_t words, std::size_t size_class);
  std::size_t live_words() const { return live_; }
  std::size_t idle_words() const { return idle_; }
  // Counts own allocations that another arena handed out.
  void adopt(std::size_t words) { live_ += words; }

 private:
  std::vector<std::unique_ptr<std::uint32_t[]>> pages_;
  std::uint32_t* next_ = nullptr;
  std::size_t left_ = 0;
  std::vector<std::vector<std::uint32_t*>> free_;
  std::size_t live_ = 0, idle_ = 0;
};

}  // namespace tidegraph
