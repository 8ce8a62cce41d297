#include "history.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <thread>

#include "arrays.hpp"
#include "bind.hpp"
#include "local.hpp"

namespace tidegraph {
namespace {

using Bytes = In<std::uint8_t>;
using Handed = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;
using Arrays = nb::typed<nb::dict, nb::str, Handed>;
using Take = nb::typed<nb::callable, void(nb::str, Handed)>;

// Owns the arrays that the history reads.
struct Held {
  nb::dict arrays;
  History history;
};

HistoryTables tables_in(const nb::dict& arrays) {
  HistoryTables tables;
  if (arrays.size() == 0) return tables;
  tables.each([&]<class T>(const std::string& name, std::span<const T>& column) {
    const auto bytes = nb::cast<Bytes>(arrays[name.c_str()]);
    column = {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  });
  return tables;
}

}  // namespace

void bind_history(nb::module_& module) {
  const auto threads = [] { return int(std::thread::hardware_concurrency()); };
  nb::class_<Held>(module, "History")
      .def(
          "__init__",
          [](Held* self, std::size_t nodes, std::vector<double> half_lives, Arrays arrays) {
            const HistoryTables tables = tables_in(arrays);
            new (self) Held{std::move(arrays), History(nodes, std::move(half_lives), tables)};
          },
          "nodes"_a, "half_lives"_a, "arrays"_a,
          "arrays: bytes by name as `merge` hands them over, aligned; none for no events")
      .def(
          "append",
          [](Held& held, const Ids& src, const Ids& dst, const Ids& t, std::size_t nodes) {
            held.history.append(view(src), view(dst), view(t), nodes);
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(), "nodes"_a, release())
      .def(
          "merge",
          [threads](const Held& held, const Ids& src, const Ids& dst, const Ids& t,
                    std::size_t nodes, const Take& take) {
            const Sink sink = [&](const std::string& name, std::span<const std::uint8_t> bytes) {
              nb::gil_scoped_acquire locked;
              take(name, Handed(bytes.data(), {bytes.size()}, nb::handle()));
            };
            nb::gil_scoped_release unlocked;
            held.history.merge(view(src), view(dst), view(t), nodes, threads(), sink);
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(), "nodes"_a, "take"_a,
          "Call take(name, bytes) with each array of all events and these; bytes are valid only"
          " during the call.")
      .def(
          "holds",
          [](const Held& held, const Ids& src, const Ids& dst, const Ids& t) {
            return held.history.holds(view(src), view(dst), view(t));
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(), release())
      .def(
          "node_rows",
          [threads](const Held& held, const Ids& nodes, const Ids& t, const Out<float, 2>& out) {
            held.history.node_rows(view(nodes), view(t), threads(), {out.data(), out.size()});
          },
          "nodes"_a.noconvert(), "t"_a.noconvert(), "out"_a.noconvert(), release())
      .def(
          "link_rows",
          [threads](const Held& held, const Ids& src, const Ids& dst, const Ids& t,
                    const Ids& as_of, const Out<float, 2>& out) {
            held.history.link_rows(view(src), view(dst), view(t), view(as_of), threads(),
                                   {out.data(), out.size()});
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(), "as_of"_a.noconvert(),
          "out"_a.noconvert(), release())
      .def(
          "age_rows",
          [threads](const Held& held, const Ids& src, const Ids& dst, const Ids& t,
                    const Ids& as_of, const Out<float, 2>& out) {
            held.history.age_rows(view(src), view(dst), view(t), view(as_of), threads(),
                                  {out.data(), out.size()});
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(), "as_of"_a.noconvert(),
          "out"_a.noconvert(), release())
      .def(
          "local_rows",
          [threads](const Held& held, std::vector<std::size_t> half_lives, std::size_t own,
                    std::size_t neighbours, std::size_t followed, std::size_t following,
                    float r_max, const Ids& src, const Ids& dst, const Ids& t,
                    const Out<float, 2>& out) {
            const LocalPropagation local(
                held.history, {std::move(half_lives), own, neighbours, followed, following, r_max});
            local.link_rows(view(src), view(dst), view(t), threads(), {out.data(), out.size()});
          },
          "half_lives"_a, "own"_a, "neighbours"_a, "followed"_a, "following"_a, "r_max"_a,
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(), "out"_a.noconvert(),
          release())
      .def(
          "local_spread",
          [](const Held& held, std::vector<std::size_t> half_lives, std::size_t own,
             std::size_t neighbours, std::size_t followed, std::size_t following, float r_max,
             std::int64_t node, std::int64_t t) {
            const LocalPropagation local(
                held.history, {std::move(half_lives), own, neighbours, followed, following, r_max});
            auto found = local.spread(node, t);
            return std::make_pair(tidegraph::own(std::move(found.nodes)),
                                  tidegraph::own(std::move(found.values)));
          },
          "half_lives"_a, "own"_a, "neighbours"_a, "followed"_a, "following"_a, "r_max"_a, "node"_a,
          "t"_a)
      .def(
          "local_likeliest",
          [](const Held& held, std::vector<std::size_t> half_lives, std::size_t own,
             std::size_t neighbours, std::size_t followed, std::size_t following, float r_max,
             std::int64_t node, std::int64_t t, std::size_t most) {
            const LocalPropagation local(
                held.history, {std::move(half_lives), own, neighbours, followed, following, r_max});
            return tidegraph::own(local.likeliest(node, t, most));
          },
          "half_lives"_a, "own"_a, "neighbours"_a, "followed"_a, "following"_a, "r_max"_a, "node"_a,
          "t"_a, "most"_a)
      .def(
          "latest",
          [](const Held& held, std::int64_t node, std::int64_t t, std::size_t most) {
            History::Latest found;
            const std::size_t bound = held.history.events_before(t, held.history.events());
            held.history.latest(node, bound, std::min(most, History::Latest::kMost), found);
            const std::size_t size = found.size;
            return std::tuple(own(std::vector<std::int64_t>(found.time, found.time + size)),
                              own(std::vector<std::int64_t>(found.partner, found.partner + size)),
                              own(std::vector<std::uint8_t>(found.role, found.role + size)));
          },
          "node"_a, "t"_a, "most"_a)
      .def_prop_ro("nodes", [](const Held& held) { return held.history.nodes(); })
      .def_prop_ro("events", [](const Held& held) { return held.history.events(); })
      .def_prop_ro("later_events", [](const Held& held) { return held.history.later_events(); })
      .def_prop_ro("node_columns", [](const Held& held) { return held.history.node_columns(); })
      .def_prop_ro("link_columns", [](const Held& held) { return held.history.link_columns(); });
}

}  // namespace tidegraph
