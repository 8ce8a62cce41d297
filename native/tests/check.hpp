// A minimal test framework: TEST(sentence) { CHECK(...); }. Prints a failed check and continues.
#pragma once

#include <atomic>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*run)();
};
inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}
struct Register {
  Register(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

inline std::atomic<int> failures{0};  // of the test that runs; checks may be made on any thread
inline void fail(const char* file, int line, const std::string& what) {
  ++failures;
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}
inline void holds(bool truth, const char* text, const char* file, int line) {
  if (!truth) fail(file, line, text);
}
template <class Compare, class A, class B>
void compare(Compare truth, const A& a, const B& b, const char* text, const char* file, int line) {
  bool good;
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>)
    good = truth(static_cast<long long>(a), static_cast<long long>(b));
  else
    good = truth(a, b);
  if (good) return;
  std::ostringstream message;
  message.precision(17);
  message << text << ", but they are " << a << " and " << b;
  fail(file, line, message.str());
}

}  // namespace check

#define TEST(name)                                           \
  static void name();                                        \
  static const check::Register register_##name(#name, name); \
  static void name()
#define CHECK(condition) check::holds(bool(condition), #condition, __FILE__, __LINE__)
#define CHECK_EQUAL(a, b) check::compare(std::equal_to<>(), a, b, #a " == " #b, __FILE__, __LINE__)
#define CHECK_AT_MOST(a, b) \
  check::compare(std::less_equal<>(), a, b, #a " <= " #b, __FILE__, __LINE__)
