// A standing pool of threads, shared by the process.
#pragma once

#include <cstddef>
#include <functional>

namespace tidegraph {

// Calls work(item) for every item in [0, items) on at most `threads` threads, including the caller,
// and returns when all are done. Any thread may take any item: items must not depend on each other.
// Rethrows an exception that an item throws. If another thread is using the pool, works alone.
// Threads start on first use, spin for a short while until the next call, and then sleep; after
// fork() the child starts its own. While the caller waits for the others, it calls `waiting`
// repeatedly.
void parallel_for(std::size_t items, int threads, const std::function<void(std::size_t)>& work,
                  const std::function<void()>& waiting = {});

}  // namespace tidegraph
