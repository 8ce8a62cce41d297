// A standing pool of threads, shared by the process.
#pragma once

#include <cstddef>
#include <functional>

namespace tidegraph {

// Calls work(item) for every item in [0, items) on at most `threads` threads, the caller's among
// them, and returns when all are done. Which thread takes which item is left open: items must not
// depend on each other. An exception thrown by an item is thrown again here. Called while the pool
// is busy, from another thread, it works alone. Threads are started on first use, wait a short
// while spinning for the next call and then sleep; after fork() the child starts its own. While the
// caller has nothing left to do but to wait for the others it calls `waiting` again and again.
void parallel_for(std::size_t items, int threads, const std::function<void(std::size_t)>& work,
                  const std::function<void()>& waiting = {});

}  // namespace tidegraph
