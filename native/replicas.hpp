// A small step takes ten microseconds, a third of which would go into waiting for other threads. In
// a long call each thread therefore takes its blocks through many steps alone, on its own copy of
// the channel state.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "block_state.hpp"
#include "channel_state.hpp"

namespace tidegraph {

// Blocks that go through steps together, and the channel state they read.
template <class Real>
struct Replica {
  ChannelState<Real>& state;
  std::span<BlockState<Real>* const> blocks;
  int threads;
};

// All blocks, shared out among replicas for as long as this lives. The first replica uses the
// original state: once all have gone through the same steps, the copies are no longer needed.
template <class Real>
class Replicas {
 public:
  // If memory runs out, throws and leaves the blocks as they were.
  Replicas(ChannelState<Real>& original, std::span<BlockState<Real>* const> blocks,
           std::size_t count, int threads);
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;
  ~Replicas();

  std::size_t size() const { return shares_.size(); }
  Replica<Real> operator[](std::size_t replica) const {
    return {state(replica), shares_[replica], size() > 1 ? 1 : threads_};
  }

  // How many replicas are worth their copies in a call of so many steps: copying must neither take
  // much memory, compared with `state_bytes`, nor longer than not waiting for each other saves.
  static std::size_t worthwhile(const ChannelState<Real>& original, std::size_t blocks,
                                std::size_t steps, int threads, std::size_t state_bytes);

 private:
  ChannelState<Real>& state(std::size_t replica) const {
    return replica ? *copies_[replica - 1] : original_;
  }

  ChannelState<Real>& original_;
  std::span<BlockState<Real>* const> blocks_;
  int threads_;
  std::vector<std::unique_ptr<ChannelState<Real>>> copies_;
  std::vector<std::vector<BlockState<Real>*>> shares_;  // per replica
};

}  // namespace tidegraph
