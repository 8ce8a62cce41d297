#include "trajectories.hpp"

#include "arrays.hpp"
#include "bind.hpp"
#include "interruptible.hpp"
#include "recorder.hpp"

namespace tidegraph {
namespace {

using Bytes = In<std::uint8_t>;
using Exponents = In<std::int8_t>;

template <class Real>
void bind_recording(nb::class_<Recorder>& recorder) {
  recorder
      .def(
          "begin",
          [](Recorder& r, Propagator<Real>& p, std::size_t first, std::size_t last) {
            interruptibly(p, [&] { r.begin(p, first, last, kBeginning); });
          },
          "propagator"_a, "first"_a, "last"_a)
      .def(
          "run",
          [](Recorder& r, Propagator<Real>& p, const Ids& src, const Ids& dst,
             const MaybeWeights& weight, const MaybeOps& op, const MaybeIds& t, const Ids& offsets,
             const Ids& times, std::size_t limit) {
            const Rows rows = rows_of(src, dst, weight, op, t);
            Rejection rejection;
            std::size_t done = 0;
            interruptibly(
                p, [&] { done = r.run(p, rows, view(offsets), view(times), limit, rejection); });
            return std::tuple(done, rejection.reason, rejection.of_precision);
          },
          "propagator"_a, "src"_a.noconvert(), "dst"_a.noconvert(), "weight"_a.noconvert().none(),
          "op"_a.noconvert().none(), "t"_a.noconvert().none(), "offsets"_a.noconvert(),
          "times"_a.noconvert(), "limit"_a,
          "(steps applied, why the next was rejected or \"\", whether for lack of precision)");
}

}  // namespace

void bind_trajectories(nb::module_& module) {
  auto recorder = nb::class_<Recorder>(module, "Recorder");
  recorder
      .def(
          "__init__",
          [](Recorder* self, std::size_t channels, std::size_t columns, bool half,
             std::size_t nodes,
             double epsilon) { new (self) Recorder({channels, columns, half}, nodes, epsilon); },
          "channels"_a, "columns"_a, "half"_a, "nodes"_a, "epsilon"_a)
      .def(
          "restore",
          [](Recorder& r, std::size_t first, const nb::ndarray<const float, nb::c_contig>& rows,
             const nb::ndarray<const float, nb::c_contig>& scales) {
            r.restore(first, {rows.data(), rows.size()}, {scales.data(), scales.size()});
          },
          "first"_a, "rows"_a.noconvert(), "scales"_a.noconvert(), release())
      .def("look_at_all", &Recorder::look_at_all)
      .def_prop_ro("waiting", &Recorder::waiting)
      .def_prop_ro("touched", &Recorder::touched)
      .def(
          "seal",
          [](Recorder& r) {
            SealedRecords sealed;
            {
              nb::gil_scoped_release unlocked;
              sealed = r.seal();
            }
            return std::tuple(own(std::move(sealed.nodes)), own(std::move(sealed.offsets)),
                              own(std::move(sealed.times)), own(std::move(sealed.rows)),
                              own(std::move(sealed.exponents)), own(std::move(sealed.scales)));
          },
          "nodes, offsets, times, rows as bytes, exponents, scales of the waiting records");
  bind_recording<float>(recorder);
  bind_recording<double>(recorder);

  // Owns the arrays that the segments view.
  struct Reader {
    std::vector<std::tuple<Ids, Ids, Ids, Bytes, Exponents, In<float>>> arrays;
    Trajectories trajectories;
  };
  nb::class_<Reader>(module, "TrajectoryReader")
      .def(
          "__init__",
          [](Reader* self, std::size_t channels, std::size_t columns, bool half,
             std::vector<std::tuple<Ids, Ids, Ids, Bytes, Exponents, In<float>>> arrays) {
            std::vector<Segment> segments;
            for (const auto& [nodes, offsets, times, rows, exponents, scales] : arrays)
              segments.push_back({view(nodes), view(offsets), view(times), view(rows),
                                  view(exponents), view(scales)});
            new (self) Reader{std::move(arrays),
                              Trajectories({channels, columns, half}, std::move(segments))};
          },
          "channels"_a, "columns"_a, "half"_a, "segments"_a)
      .def(
          "state",
          [](const Reader& r, const Ids& nodes, const Ids& times, const Out<float, 3>& out,
             int threads) {
            r.trajectories.state(view(nodes), view(times), {out.data(), out.size()}, threads);
          },
          "nodes"_a.noconvert(), "times"_a.noconvert(), "out"_a.noconvert(), "threads"_a, release())
      .def(
          "scales",
          [](const Reader& r, const Ids& nodes, const Ids& times, const Out<float, 2>& out,
             int threads) {
            r.trajectories.scales(view(nodes), view(times), {out.data(), out.size()}, threads);
          },
          "nodes"_a.noconvert(), "times"_a.noconvert(), "out"_a.noconvert(), "threads"_a, release())
      .def(
          "window",
          [](const Reader& r, const Ids& nodes, const Ids& times, std::size_t k, int change,
             const nb::ndarray<float, nb::c_contig, nb::device::cpu>& changes,
             const Out<std::int64_t, 2>& since, const Out<bool, 2>& mask, int threads) {
            r.trajectories.window(view(nodes), view(times), k, Change(change),
                                  {changes.data(), changes.size()}, {since.data(), since.size()},
                                  {mask.data(), mask.size()}, threads);
          },
          "nodes"_a.noconvert(), "times"_a.noconvert(), "k"_a, "change"_a, "changes"_a.noconvert(),
          "since"_a.noconvert(), "mask"_a.noconvert(), "threads"_a, release())
      .def("count", [](const Reader& r, std::int64_t node) { return r.trajectories.count(node); })
      .def(
          "records",
          [](const Reader& r, std::int64_t node, const Out<std::int64_t, 1>& times,
             const Out<float, 3>& rows) {
            r.trajectories.records(node, {times.data(), times.size()}, {rows.data(), rows.size()});
          },
          "node"_a, "times"_a.noconvert(), "rows"_a.noconvert(), release());
}

}  // namespace tidegraph
