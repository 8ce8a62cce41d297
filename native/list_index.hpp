// The hash index of a long adjacency list, which finds the position of a neighbour.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels.hpp"

namespace tidegraph {

// Lists with a capacity up to this have no index: scanning them is as fast.
inline constexpr std::uint32_t kScannedCapacity = 32;

// The number of slots, which are at most 80 % full.
inline std::size_t index_slots(std::uint32_t capacity) {
  return capacity > kScannedCapacity ? std::size_t(capacity) + capacity / 4 + 1 : 0;
}
// Whether positions fit into 16 bits.
inline bool index_is_narrow(std::uint32_t capacity) { return capacity < 0xffff; }

// Open addressing with linear probing over positions.
template <class Slot>
class ListIndex {
 public:
  static constexpr Slot kEmpty = Slot(-1);
  static constexpr std::uint32_t kAbsent = 0xffffffff;

  ListIndex(std::uint32_t* memory, const Node* ids, std::uint32_t capacity)
      : slots_(reinterpret_cast<Slot*>(memory)), ids_(ids), count_(index_slots(capacity)) {}

  void clear() { std::fill_n(slots_, count_, kEmpty); }
  std::uint32_t find(Node id) const {
    const std::size_t at = locate(id);
    return slots_[at] == kEmpty ? kAbsent : std::uint32_t(slots_[at]);
  }
  void insert(std::uint32_t position) {
    std::size_t at = home(ids_[position]);
    while (slots_[at] != kEmpty) at = next(at);
    slots_[at] = Slot(position);
  }
  // Removes `id` and closes the gap, so that probing never meets a tombstone.
  void erase(Node id) {
    std::size_t hole = locate(id);
    for (std::size_t at = next(hole); slots_[at] != kEmpty; at = next(at)) {
      if (distance(home(ids_[slots_[at]]), at) >= distance(hole, at)) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = kEmpty;
  }
  void relabel(Node id, std::uint32_t position) { slots_[locate(id)] = Slot(position); }

 private:
  std::size_t home(Node id) const {
    std::uint32_t hash = id * 0x9e3779b1u;
    hash = (hash ^ (hash >> 15)) * 0x85ebca77u;
    return std::size_t((std::uint64_t(hash ^ (hash >> 13)) * count_) >> 32);
  }
  std::size_t next(std::size_t at) const { return at + 1 == count_ ? 0 : at + 1; }
  std::size_t distance(std::size_t from, std::size_t to) const {
    return to >= from ? to - from : to + count_ - from;
  }
  std::size_t locate(Node id) const {
    std::size_t at = home(id);
    while (slots_[at] != kEmpty && ids_[slots_[at]] != id) at = next(at);
    return at;
  }

  Slot* slots_;
  const Node* ids_;
  std::size_t count_;
};

}  // namespace tidegraph
