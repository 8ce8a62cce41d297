// What each file adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace tidegraph {

void bind_compact(nanobind::module_& module);
void bind_history(nanobind::module_& module);
void bind_propagators(nanobind::module_& module);
void bind_trajectories(nanobind::module_& module);

}  // namespace tidegraph
