#include "pairmap.hpp"

#include <algorithm>
#include <utility>

namespace tidegraph {
namespace {
constexpr std::uint64_t kNoKey = ~std::uint64_t(0);
}

std::size_t PairMap::home(std::uint64_t key) const {
  key = (key ^ (key >> 31)) * 0x9e3779b97f4a7c15;
  return std::size_t((key ^ (key >> 29)) & (keys_.size() - 1));
}

std::size_t PairMap::locate(std::uint64_t key) const {
  std::size_t at = home(key);
  while (keys_[at] != key && keys_[at] != kNoKey) at = (at + 1) & (keys_.size() - 1);
  return at;
}

std::uint32_t PairMap::find(std::uint64_t key) const {
  if (keys_.empty()) return kAbsent;
  const std::size_t at = locate(key);
  return keys_[at] == key ? values_[at] : kAbsent;
}

void PairMap::insert(std::uint64_t key, std::uint32_t value) {
  if (keys_.size() < 2 * (size_ + 1)) {
    std::vector<std::uint64_t> old_keys(std::max<std::size_t>(16, keys_.size() * 2), kNoKey);
    std::vector<std::uint32_t> old_values(old_keys.size());
    keys_.swap(old_keys);
    values_.swap(old_values);
    for (std::size_t at = 0; at < old_keys.size(); ++at) {
      if (old_keys[at] == kNoKey) continue;
      const std::size_t to = locate(old_keys[at]);
      keys_[to] = old_keys[at];
      values_[to] = old_values[at];
    }
  }
  const std::size_t at = locate(key);
  keys_[at] = key;
  values_[at] = value;
  ++size_;
}

void PairMap::erase(std::uint64_t key) {
  const std::size_t mask = keys_.size() - 1;
  std::size_t hole = locate(key);
  for (std::size_t at = (hole + 1) & mask; keys_[at] != kNoKey; at = (at + 1) & mask) {
    if (((at - home(keys_[at])) & mask) < ((at - hole) & mask)) continue;
    keys_[hole] = keys_[at];
    values_[hole] = values_[at];
    hole = at;
  }
  keys_[hole] = kNoKey;
  --size_;
}

}  // namespace tidegraph
