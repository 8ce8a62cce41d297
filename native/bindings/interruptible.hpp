// Long calls that Ctrl-C can end.
#pragma once

#include <nanobind/nanobind.h>

namespace tidegraph {

// Runs a long call without the interpreter's lock. Ctrl-C ends it early if this is the thread that
// receives Python's signals; the next call completes what it began.
template <class P, class Work>
void interruptibly(P& p, Work work) {
  {
    nanobind::gil_scoped_release unlocked;
    p.begin([] {
      nanobind::gil_scoped_acquire locked;
      return PyErr_CheckSignals() != 0;
    });
    p.complete();
    if (!p.interrupted()) work();
  }
  if (p.interrupted()) throw nanobind::python_error();
}

}  // namespace tidegraph
