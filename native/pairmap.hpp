#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidegraph {

// From pairs of nodes to small integers, by open addressing; nothing is allocated once it has
// grown.
class PairMap {
 public:
  static constexpr std::uint32_t kAbsent = 0xffffffff;
  std::uint32_t find(std::uint64_t key) const;
  void insert(std::uint64_t key, std::uint32_t value);  // key must be absent
  void erase(std::uint64_t key);                        // key must be present
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
