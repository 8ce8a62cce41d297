// Makes one allocation fail, to test what a call leaves behind when memory runs out.
#pragma once

#include <cstddef>

namespace support {

// While it lives, allocation number `number` from now on, on any thread, throws std::bad_alloc.
class FailingMemory {
 public:
  explicit FailingMemory(long number);
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;
  ~FailingMemory();
  // Whether that many allocations have been made.
  bool failed() const;
};

}  // namespace support
