// Runs every test, or those whose name contains the argument.
#include <cstring>

#include "check.hpp"

int main(int count, char** arguments) {
  int passed = 0, failed = 0;
  for (const check::Test& test : check::tests()) {
    if (count > 1 && !std::strstr(test.name, arguments[1])) continue;
    check::failures = 0;
    try {
      test.run();
    } catch (const std::exception& error) {
      check::fail(test.name, 0, std::string("threw ") + error.what());
    }
    if (check::failures) std::fprintf(stderr, "FAILED %s\n", test.name);
    ++(check::failures ? failed : passed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
