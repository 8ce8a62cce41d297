#include "parallel.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tidegraph {
namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Some tens of microseconds: longer than a step of a stream, and not noticeable.
constexpr int kSpins = 2000;

// The caller publishes a ticket: the round, its number of items, and the next one to take. The
// thread that increments the ticket owns an item. The caller waits for items, never for threads: a
// late thread finds no items left, and one with an old ticket cannot increment it.
struct Ticket {
  static constexpr int kBits = 24;
  static constexpr std::uint64_t kMask = (std::uint64_t(1) << kBits) - 1;
  std::uint64_t value;
  std::uint64_t next() const { return value & kMask; }
  std::uint64_t items() const { return value >> kBits & kMask; }
  std::uint64_t round() const { return value >> (2 * kBits); }
  static Ticket make(std::uint64_t round, std::uint64_t items) {
    return {round << (2 * kBits) | items << kBits};
  }
};

class Pool {
 public:
  void run(std::size_t items, int threads, const std::function<void(std::size_t)>& work,
           const std::function<void()>& waiting) {
    try {
      while (int(workers_.size()) < threads - 1)
        workers_.emplace_back([this, number = int(workers_.size()) + 1] { serve(number); });
    } catch (
        const std::system_error&) {  // no more threads available: continue with those there are
    }
    work_ = &work;
    failure_ = nullptr;
    threads_.store(threads, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    const std::uint64_t round = Ticket{ticket_.load(std::memory_order_relaxed)}.round() + 1;
    ticket_.store(Ticket::make(round, items).value, std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst) > 0) ticket_.notify_all();
    take();
    for (int spins = 0; done_.load(std::memory_order_acquire) < items; ++spins) {
      if (spins < kSpins) {
        relax();
        continue;
      }
      std::this_thread::yield();
      if (waiting) waiting();
    }
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void take() {
    std::uint64_t value = ticket_.load(std::memory_order_acquire);
    for (;;) {
      const Ticket ticket{value};
      if (ticket.next() >= ticket.items()) return;
      if (!ticket_.compare_exchange_weak(value, value + 1, std::memory_order_acq_rel)) continue;
      try {
        (*work_)(ticket.next());
      } catch (...) {
        const std::lock_guard guard(failing_);
        if (!failure_) failure_ = std::current_exception();
      }
      done_.fetch_add(1, std::memory_order_release);
      value = ticket_.load(std::memory_order_acquire);
    }
  }
  void serve(int number) {
    for (std::uint64_t seen = 0;;) {
      std::uint64_t value = ticket_.load(std::memory_order_acquire);
      for (int spins = 0; Ticket{value}.round() == seen && spins < kSpins; ++spins) {
        relax();
        value = ticket_.load(std::memory_order_acquire);
      }
      while (Ticket{value}.round() == seen) {
        sleeping_.fetch_add(1, std::memory_order_seq_cst);
        ticket_.wait(value, std::memory_order_seq_cst);
        sleeping_.fetch_sub(1, std::memory_order_seq_cst);
        value = ticket_.load(std::memory_order_acquire);
      }
      seen = Ticket{value}.round();
      if (number < threads_.load(std::memory_order_relaxed)) take();
    }
  }

  std::vector<std::thread> workers_;
  const std::function<void(std::size_t)>* work_ = nullptr;
  std::exception_ptr failure_;
  std::mutex failing_;
  std::atomic<int> threads_{0};
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<std::uint64_t> done_{0};
  alignas(64) std::atomic<int> sleeping_{0};
};

// Never destroyed: at exit its threads sleep, and joining them in a forked child could hang.
std::atomic<Pool*> pool{nullptr};
std::atomic_flag in_use = ATOMIC_FLAG_INIT;

Pool& shared_pool() {
  static const int once = pthread_atfork(nullptr, nullptr, [] {
    pool.store(nullptr);  // its threads exist in the parent only
    in_use.clear();
  });
  (void)once;
  if (!pool.load()) pool.store(new Pool);
  return *pool.load();
}

}  // namespace

void parallel_for(std::size_t items, int threads, const std::function<void(std::size_t)>& work,
                  const std::function<void()>& waiting) {
  if (items < 2 || threads < 2 || in_use.test_and_set(std::memory_order_acquire)) {
    for (std::size_t item = 0; item < items; ++item) work(item);
    return;
  }
  struct Release {
    ~Release() { in_use.clear(std::memory_order_release); }
  } release;
  // A ticket counts up to kMask items.
  for (std::size_t first = 0; first < items; first += Ticket::kMask) {
    const std::function<void(std::size_t)> part = [&](std::size_t item) { work(first + item); };
    shared_pool().run(std::min<std::size_t>(items - first, Ticket::kMask), threads,
                      first ? part : work, waiting);
  }
}

}  // namespace tidegraph
