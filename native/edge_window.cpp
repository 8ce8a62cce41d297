#include "edge_window.hpp"

#include <algorithm>

namespace tidegraph {

std::size_t EdgeWindow::bytes() const {
  return graph_.bytes() + queue_.size() * sizeof(Entry) + index_.bytes() +
         pairs_.size() * (sizeof(Pair) + sizeof(std::uint64_t) + 1);
}

EdgeWindow::Pair& EdgeWindow::pair(std::uint64_t key) {
  std::uint32_t slot = index_.find(key);
  if (slot == PairMap::kAbsent) {
    if (vacant_.empty()) {
      slot = std::uint32_t(pairs_.size());
      pairs_.emplace_back();
      keys_.push_back(key);
      marked_.push_back(0);
    } else {
      slot = vacant_.back();
      vacant_.pop_back();
      pairs_[slot] = {};
      keys_[slot] = key;
    }
    index_.insert(key, slot);
  }
  if (!marked_[slot]) {
    marked_[slot] = 1;
    touched_.push_back(slot);
  }
  return pairs_[slot];
}

void EdgeWindow::link(Pair& pair, std::uint64_t number) {
  (pair.first == kNone ? pair.first : entry(pair.last).next) = number;
  pair.last = number;
}

void EdgeWindow::add(std::int64_t t, std::uint64_t key, double weight) {
  const std::uint64_t number = popped_ + queue_.size();
  queue_.push_back({t, key, weight, kNone});
  Pair& of = pair(key);
  link(of, number);
  of.weight.add(weight);
}

// Reduces the oldest contribution of an edge to `left`.
void EdgeWindow::reduce_first(Pair& pair, double left) {
  Entry& oldest = entry(pair.first);
  pair.weight.add(left);
  pair.weight.add(-oldest.weight);
  oldest.weight = left;
  if (left == 0) pair.first = oldest.next;
  if (pair.first == kNone || !pair.weight.exact()) sum(pair);
}

// Recomputes the sum, for when rounding shows in it.
void EdgeWindow::sum(Pair& pair) {
  pair.weight = {};
  for (std::uint64_t number = pair.first; number != kNone; number = entry(number).next)
    pair.weight.add(entry(number).weight);
}

void EdgeWindow::lower(std::uint64_t key, double weight) {
  if (index_.find(key) == PairMap::kAbsent) return;
  Pair& of = pair(key);
  if (of.weight.value <= weight) return;
  if (of.weight.lost > 0x1p-54 * weight) sum(of);
  Sum spare = of.weight;
  spare.add(-weight);
  while (of.first != kNone && (weight == 0 || spare.value > 0)) {
    spare.add(-entry(of.first).weight);
    reduce_first(of, weight == 0 ? 0 : std::max(0.0, -spare.value));
  }
}

void EdgeWindow::drop_first() {
  const Entry oldest = queue_.front();
  if (oldest.weight > 0) reduce_first(pair(oldest.key), 0);
  queue_.pop_front();
  ++popped_;
}

void EdgeWindow::drop_beyond(std::size_t most) {
  while (queue_.size() > most) drop_first();
}

void EdgeWindow::drop_until(std::int64_t until) {
  while (!queue_.empty() && queue_.front().t <= until) drop_first();
}

void EdgeWindow::archive(Archive& archive, const std::string& name) {
  graph_.archive(archive, name + ".graph");
  std::vector<std::int64_t> times;
  std::vector<std::uint64_t> entry_keys, pair_keys;
  std::vector<double> entry_weights, sums;  // value, rest, lost of each
  if (!archive.reading()) {
    for (const Entry& entry : queue_) {
      times.push_back(entry.t);
      entry_keys.push_back(entry.key);
      entry_weights.push_back(entry.weight);
    }
    for (std::size_t slot = 0; slot < pairs_.size(); ++slot)
      if (pairs_[slot].first != kNone) pair_keys.push_back(keys_[slot]);
    std::sort(pair_keys.begin(), pair_keys.end());  // slots depend on what was there before
    for (const std::uint64_t key : pair_keys) {
      const Sum& weight = pairs_[index_.find(key)].weight;
      sums.insert(sums.end(), {weight.value, weight.rest, weight.lost});
    }
  }
  archive.vector(name + ".queue.t", times);
  archive.vector(name + ".queue.pair", entry_keys);
  archive.vector(name + ".queue.weight", entry_weights);
  archive.vector(name + ".pairs", pair_keys);
  archive.vector(name + ".pairs.weight", sums);
  if (!archive.reading()) return;
  if (times.size() != entry_keys.size() || times.size() != entry_weights.size() ||
      3 * pair_keys.size() != sums.size())
    throw ArchiveError(name + ": the arrays of the queue do not match each other");
  for (std::size_t i = 0; i < times.size(); ++i) {
    queue_.push_back({times[i], entry_keys[i], entry_weights[i], kNone});
    if (entry_weights[i] > 0) link(pair(entry_keys[i]), i);
  }
  if (index_.size() != pair_keys.size())
    throw ArchiveError(name + ": the pairs do not match the queue");
  for (std::size_t i = 0; i < pair_keys.size(); ++i) {
    if (index_.find(pair_keys[i]) == PairMap::kAbsent)
      throw ArchiveError(name + ": a pair is not in the queue");
    pair(pair_keys[i]).weight = {sums[3 * i], sums[3 * i + 1], sums[3 * i + 2]};
  }
  for (const std::uint32_t slot : touched_) marked_[slot] = 0;
  touched_.clear();
}

}  // namespace tidegraph
