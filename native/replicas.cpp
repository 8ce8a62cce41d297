#include "replicas.hpp"

#include <algorithm>

#include "parallel.hpp"

namespace tidegraph {
namespace {

// Roughly the bytes copied in the time that a replica saves per step.
constexpr std::size_t kCopiedPerStep = 1 << 11;
// What copies may take in any case.
constexpr std::size_t kSmallCopies = std::size_t(1) << 26;

}  // namespace

template <class Real>
Replicas<Real>::Replicas(ChannelState<Real>& original, std::span<BlockState<Real>* const> blocks,
                         std::size_t count, int threads)
    : original_(original), blocks_(blocks), threads_(threads), copies_(count - 1), shares_(count) {
  for (std::size_t i = 0; i < blocks.size(); ++i) shares_[i % count].push_back(blocks[i]);
  parallel_for(copies_.size(), threads,
               [&](std::size_t i) { copies_[i] = std::make_unique<ChannelState<Real>>(original); });
  // Nothing can fail from here on: no block is left attached to a copy that is gone.
  for (std::size_t replica = 0; replica < count; ++replica)
    for (BlockState<Real>* const block : shares_[replica]) block->attach(state(replica));
}

template <class Real>
Replicas<Real>::~Replicas() {
  for (BlockState<Real>* const block : blocks_) block->attach(original_);
}

template <class Real>
std::size_t Replicas<Real>::worthwhile(const ChannelState<Real>& original, std::size_t blocks,
                                       std::size_t steps, int threads, std::size_t state_bytes) {
  const std::size_t most = std::min(blocks, std::size_t(std::max(threads, 1)));
  const std::size_t bytes = original.bytes();
  if (most < 2 || bytes == 0 || bytes > steps * kCopiedPerStep) return 1;
  const std::size_t room = std::max(kSmallCopies, state_bytes / 8);
  return std::min(most, 1 + room / bytes);
}

template class Replicas<float>;
template class Replicas<double>;

}  // namespace tidegraph
