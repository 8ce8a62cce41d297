// Ending a long call early.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace tidegraph {

// Whether the current call is to end early. The thread that made the call polls every 20 ms; the
// others see what it found.
class Interrupt {
 public:
  // Starts a call. `poll` runs on this thread and must not throw; without it nothing interrupts.
  void begin(std::function<bool()> poll);
  // Polls if it is time to; returns whether the call is to end.
  bool check();
  // The same within a step, where interrupts may be off.
  bool check_within_step() { return !steps_are_whole_ && check(); }
  bool happened() const { return stop_.load(std::memory_order_relaxed); }

  // While it lives, and if `wanted`, steps are not interrupted in their middle.
  class WholeSteps {
   public:
    WholeSteps(Interrupt& of, bool wanted) : of_(of) { of_.steps_are_whole_ = wanted; }
    WholeSteps(const WholeSteps&) = delete;
    WholeSteps& operator=(const WholeSteps&) = delete;
    ~WholeSteps() { of_.steps_are_whole_ = false; }

   private:
    Interrupt& of_;
  };

 private:
  std::function<bool()> poll_;
  std::thread::id caller_;
  std::chrono::steady_clock::time_point next_;
  std::atomic<bool> stop_{false};
  bool steps_are_whole_ = false;
};

}  // namespace tidegraph
