#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "parallel.hpp"
#include "support.hpp"

using support::repeats;
using tidegraph::parallel_for;

namespace {

// How many items were not done exactly once. Plain memory, since the caller must see what items
// wrote.
std::size_t missed(std::size_t items, int threads) {
  std::vector<int> done(items, 0);
  parallel_for(items, threads, [&](std::size_t item) { ++done[item]; });
  std::size_t wrong = 0;
  for (const int times : done) wrong += times != 1;
  return wrong;
}

// Serial work that no compiler removes, longer than waiting threads spin: the next round has to
// wake them.
void keep_busy() {
  volatile std::uint64_t value = 1;
  for (int i = 0; i < 100'000; ++i) value = value * 3 + 1;
}

}  // namespace

TEST(every_item_is_done_exactly_once) {
  std::size_t wrong = 0;
  for (const std::size_t items : {0, 1, 2, 3, 4, 7, 64, 1000, 50'000})
    for (const int threads : {1, 2, 3, 4, 8, 2}) wrong += missed(items, threads);
  CHECK_EQUAL(wrong, 0);
}

// In a child, so that a loop that never ends is a failure.
TEST(there_may_be_more_items_than_24_bits_count) {
  if (support::kSanitized) return;
  support::Child child(
      [] {
        std::vector<unsigned char> done((std::size_t(1) << 24) + 3, 0);
        parallel_for(done.size(), 2, [&](std::size_t item) { ++done[item]; });
        return std::uint64_t(std::count(done.begin(), done.end(), 1)) - done.size();
      },
      15);
  std::uint64_t wrong = 1;
  CHECK(child.finish(wrong));
  CHECK_EQUAL(wrong, 0);
}

// More rounds than the counter of rounds has values, with a changing number of items and threads.
TEST(many_tiny_rounds_lose_no_item) {
  std::size_t wrong = 0;
  const std::size_t rounds = repeats(200'000, 70'000);
  for (std::size_t round = 0; round < rounds; ++round)
    wrong += missed(2 + round % 5, 2 + int(round / 7 % 3));
  CHECK_EQUAL(wrong, 0);
}

TEST(sleeping_threads_are_woken) {
  std::size_t wrong = 0;
  for (std::size_t round = 0; round < repeats(2000, 200); ++round) {
    keep_busy();
    wrong += missed(8, 4);
  }
  CHECK_EQUAL(wrong, 0);
}

TEST(an_exception_of_an_item_reaches_the_caller_and_the_pool_still_works) {
  for (std::size_t round = 0; round < repeats(2000, 500); ++round) {
    const std::size_t bad = round % 16;
    std::string caught;
    try {
      parallel_for(16, 1 + int(round % 4), [&](std::size_t item) {
        if (item == bad) throw std::out_of_range("item " + std::to_string(item));
      });
    } catch (const std::out_of_range& error) { caught = error.what(); }
    CHECK_EQUAL(caught, "item " + std::to_string(bad));
    CHECK_EQUAL(missed(16, 3), 0);
  }
}

TEST(if_several_items_throw_one_exception_arrives) {
  int caught = 0;
  for (std::size_t round = 0; round < 200; ++round) {
    try {
      parallel_for(32, 4, [](std::size_t item) { throw std::runtime_error(std::to_string(item)); });
    } catch (const std::runtime_error&) { ++caught; }
  }
  CHECK_EQUAL(caught, 200);
}

TEST(items_can_start_their_own_loops) {
  std::atomic<std::size_t> wrong{0}, inner{0};
  for (std::size_t round = 0; round < repeats(300, 50); ++round)
    parallel_for(8, 4, [&](std::size_t) {
      wrong += missed(20, 4);
      parallel_for(3, 2, [&](std::size_t) { parallel_for(2, 2, [&](std::size_t) { ++inner; }); });
    });
  CHECK_EQUAL(wrong.load(), 0);
  CHECK_EQUAL(inner.load(), repeats(300, 50) * 8 * 3 * 2);
}

TEST(several_threads_can_call_at_once) {
  std::atomic<std::size_t> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (std::size_t round = 0; round < repeats(5000, 1500); ++round)
        wrong += missed(1 + (round + std::size_t(caller)) % 6, 1 + int(round % 4));
    });
  for (std::thread& caller : callers) caller.join();
  CHECK_EQUAL(wrong.load(), 0);
}

TEST(a_forked_child_starts_its_own_threads) {
  if (!support::kForks) return;
  CHECK_EQUAL(missed(16, 4), 0);
  for (int generation = 0; generation < 5; ++generation) {
    support::Child child([] {
      std::uint64_t wrong = missed(1000, 4);
      support::Child grandchild([] { return std::uint64_t(missed(1000, 3)); });
      std::uint64_t value = 0;
      wrong += grandchild.finish(value) ? value : 1;
      return wrong + missed(1000, 2);
    });
    std::size_t wrong = 0;
    for (int round = 0; round < 100; ++round) wrong += missed(16, 4);
    CHECK_EQUAL(wrong, 0);
    std::uint64_t value = 1;
    const bool good = child.finish(value);
    CHECK(good);
    CHECK_EQUAL(value, 0);
    if (!good) break;  // a hanging child takes long
  }
}

TEST(a_child_forked_while_another_thread_uses_the_pool_finds_it_free) {
  if (!support::kForks) return;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    std::atomic<std::size_t> sum{0};
    const std::function<void(std::size_t)> work = [&](std::size_t item) { sum += item; };
    while (!stop) parallel_for(64, 3, work);
  });
  for (std::size_t round = 0; round < repeats(50, 10); ++round) {
    support::Child child([] {
      // Each item waits for the other, so the pool must use more than one thread.
      std::atomic<int> arrived{0};
      parallel_for(2, 2, [&](std::size_t) {
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
      });
      return std::uint64_t(missed(100, 3));
    });
    std::uint64_t value = 1;
    const bool good = child.finish(value);
    CHECK(good);
    CHECK_EQUAL(value, 0);
    if (!good) break;  // a hanging child takes long
  }
  stop = true;
  other.join();
}
