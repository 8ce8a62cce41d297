// What several test files share: repeats under a sanitizer, random numbers, archives in memory, and
// child processes.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "archive.hpp"

namespace support {

#if defined(__SANITIZE_THREAD__)
#define TIDEGRAPH_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define TIDEGRAPH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TIDEGRAPH_TSAN 1
#elif __has_feature(address_sanitizer)
#define TIDEGRAPH_ASAN 1
#endif
#endif

#if defined(TIDEGRAPH_TSAN) || defined(TIDEGRAPH_ASAN)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
// The thread sanitizer does not let a forked process start threads.
#if defined(TIDEGRAPH_TSAN)
inline constexpr bool kForks = false;
#else
inline constexpr bool kForks = true;
#endif
// How often to repeat something.
constexpr std::size_t repeats(std::size_t plain, std::size_t sanitized) {
  return kSanitized ? sanitized : plain;
}

// Random numbers that are the same with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}
  std::uint64_t next() { return bits_(); }
  std::uint64_t below(std::uint64_t bound) { return bits_() % bound; }
  double uniform() { return double(bits_() >> 11) * 0x1p-53; }
  double between(double low, double high) { return low + (high - low) * uniform(); }
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::mt19937_64 bits_;
};

// A hash of bytes (FNV-1a).
class Digest {
 public:
  template <class T>
  void put(std::span<const T> values) {
    for (const std::byte byte : std::as_bytes(values))
      value_ = (value_ ^ std::uint64_t(byte)) * 0x100000001b3;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

// An archive in memory: write into it, then begin_reading().
class MemoryArchive final : public tidegraph::Archive {
 public:
  struct Array {
    Kind kind;
    std::size_t size;
    std::vector<unsigned char> bytes;
    bool operator==(const Array&) const = default;
  };
  void begin_reading() { reading_ = true; }
  bool reading() const override { return reading_; }
  std::map<std::string, Array> arrays;

 protected:
  std::size_t count(const std::string& name) const override { return find(name).size; }
  void move(const std::string& name, Kind kind, void* data, std::size_t size, bool) override {
    const std::size_t bytes = size * bytes_each(kind);
    if (reading_) {
      const Array& array = find(name);
      if (array.kind != kind || array.size != size)
        throw tidegraph::ArchiveError(name + " does not fit");
      if (bytes) std::memcpy(data, array.bytes.data(), bytes);
    } else {
      const auto* const first = static_cast<const unsigned char*>(data);
      arrays[name] = {kind, size,
                      size ? std::vector(first, first + bytes) : std::vector<unsigned char>()};
    }
  }

 private:
  static std::size_t bytes_each(Kind kind) {
    return kind == Kind::u8 ? 1 : kind == Kind::u32 || kind == Kind::f32 ? 4 : 8;
  }
  const Array& find(const std::string& name) const {
    const auto found = arrays.find(name);
    if (found == arrays.end()) throw tidegraph::ArchiveError(name + " is missing");
    return found->second;
  }
  bool reading_ = false;
};

template <class State>
std::map<std::string, MemoryArchive::Array> contents(State& state) {
  MemoryArchive archive;
  state.archive(archive);
  return std::move(archive.arrays);
}

// A forked child that computes one number. An alarm ends a child that hangs, which then counts as
// failed.
class Child {
 public:
  template <class Work>
  explicit Child(Work work, unsigned patience_s = 30) {
    if (pipe(ends_) != 0) std::abort();
    process_ = fork();
    if (process_ < 0) std::perror("fork");
    if (process_ != 0) return;
    alarm(patience_s);
    int status = 1;
    try {
      const std::uint64_t value = work();
      status = write(ends_[1], &value, sizeof value) == ssize_t(sizeof value) ? 0 : 1;
    } catch (...) {}
    _exit(status);  // without the parent's clean-up
  }
  // Returns whether it succeeded, and the number.
  bool finish(std::uint64_t& value) {
    close(ends_[1]);
    const bool complete = read(ends_[0], &value, sizeof value) == ssize_t(sizeof value);
    close(ends_[0]);
    int status = 0;
    const bool ended = waitpid(process_, &status, 0) == process_;
    return complete && ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  int ends_[2];
  pid_t process_;
};

}  // namespace support
