// The Python module. Only the files in this directory see Python: they turn arrays into spans and
// release the interpreter's lock around every call that computes. The Python classes serialise
// calls.
#include <nanobind/nanobind.h>

#include "archive.hpp"
#include "bind.hpp"
#include "events.hpp"

namespace tidegraph {

NB_MODULE(_native, module) {
  module.doc() = "The compiled core of tidegraph: use tidegraph.Propagator.";
  nanobind::exception<EventError>(module, "EventError", PyExc_ValueError);
  nanobind::exception<PrecisionError>(module, "PrecisionError", PyExc_ValueError);
  nanobind::exception<ArchiveError>(module, "ArchiveError", PyExc_ValueError);
  bind_propagators(module);
  bind_compact(module);
  bind_history(module);
  bind_trajectories(module);
}

}  // namespace tidegraph
