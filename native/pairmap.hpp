// A hash map from pairs of nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidegraph {

// Maps pairs of nodes to small integers, by open addressing. Allocates only to grow.
class PairMap {
 public:
  static constexpr std::uint32_t kAbsent = 0xffffffff;
  std::uint32_t find(std::uint64_t key) const;
  // The key must be absent.
  void insert(std::uint64_t key, std::uint32_t value);
  // The key must be present.
  void erase(std::uint64_t key);
  std::size_t size() const { return size_; }
  std::size_t bytes() const {
    return keys_.size() * (sizeof(std::uint64_t) + sizeof(std::uint32_t));
  }

 private:
  std::size_t home(std::uint64_t key) const;
  std::size_t locate(std::uint64_t key) const;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> values_;
  std::size_t size_ = 0;
};

}  // namespace tidegraph
