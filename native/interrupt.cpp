#include "interrupt.hpp"

#include <utility>

namespace tidegraph {
namespace {

constexpr std::chrono::milliseconds kPollInterval{20};

}  // namespace

void Interrupt::begin(std::function<bool()> poll) {
  poll_ = std::move(poll);
  caller_ = std::this_thread::get_id();
  next_ = std::chrono::steady_clock::now() + kPollInterval;
  stop_.store(false, std::memory_order_relaxed);
}

bool Interrupt::check() {
  if (happened()) return true;
  if (!poll_ || std::this_thread::get_id() != caller_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  next_ = now + kPollInterval;
  if (poll_()) stop_.store(true, std::memory_order_relaxed);
  return happened();
}

}  // namespace tidegraph
