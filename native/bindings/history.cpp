#include "history.hpp"

#include <thread>

#include "arrays.hpp"
#include "bind.hpp"

namespace tidegraph {

void bind_history(nb::module_& module) {
  const auto threads = [] { return int(std::thread::hardware_concurrency()); };
  nb::class_<History>(module, "History")
      .def(nb::init<std::size_t, std::vector<double>>(), "nodes"_a, "half_lives"_a)
      .def(
          "append",
          [](History& history, const In<std::int64_t>& src, const In<std::int64_t>& dst,
             const In<std::int64_t>& t) { history.append(view(src), view(dst), view(t)); },
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(), release())
      .def(
          "node_rows",
          [threads](const History& history, const In<std::int64_t>& nodes,
                    const In<std::int64_t>& t, const Out<float, 2>& out) {
            history.node_rows(view(nodes), view(t), threads(), {out.data(), out.size()});
          },
          "nodes"_a.noconvert(), "t"_a.noconvert(), "out"_a.noconvert(), release())
      .def(
          "link_rows",
          [threads](const History& history, const In<std::int64_t>& src,
                    const In<std::int64_t>& dst, const In<std::int64_t>& t,
                    const Out<float, 2>& out) {
            history.link_rows(view(src), view(dst), view(t), threads(), {out.data(), out.size()});
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(), "out"_a.noconvert(),
          release())
      .def_prop_ro("nodes", &History::nodes)
      .def_prop_ro("events", &History::events)
      .def_prop_ro("node_columns", &History::node_columns)
      .def_prop_ro("link_columns", &History::link_columns);
}

}  // namespace tidegraph
