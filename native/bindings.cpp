// The only file that sees Python. Arrays come in as spans and are never copied or cast here; every
// call that computes releases the interpreter lock. Serialising calls is the Python class's
// business.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <thread>

#include "compact.hpp"
#include "history.hpp"
#include "propagator.hpp"
#include "trajectories.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace tidegraph {
namespace {

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using InMatrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T, int N>
using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

template <class T>
std::span<const T> view(const In<T>& array) {
  return {array.data(), array.shape(0)};
}
template <class T>
std::span<const T> view(const std::optional<In<T>>& array) {
  return array ? view(*array) : std::span<const T>();
}
std::span<const double> view(const std::optional<InMatrix<double>>& array) {
  return array ? std::span<const double>(array->data(), array->size()) : std::span<const double>();
}

template <class T>
Array<T> own(std::vector<T> values) {
  auto* const kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept,
                    [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return Array<T>(kept->data(), {kept->size()}, owner);
}

using Arrays = nb::typed<nb::dict, nb::str, nb::any>;

// Collects arrays in a dictionary. Lasting memory is handed out as a view that keeps `owner` alive.
class Writer final : public Archive {
 public:
  explicit Writer(nb::handle owner) : owner_(owner) {}
  bool reading() const override { return false; }
  Arrays arrays() const { return arrays_; }

 protected:
  std::size_t count(const std::string&) const override { return 0; }
  void move(const std::string& name, Kind kind, void* data, std::size_t size,
            bool lasting) override {
    switch (kind) {
      case Kind::u8:
        return put<std::uint8_t>(name, data, size, lasting);
      case Kind::u32:
        return put<std::uint32_t>(name, data, size, lasting);
      case Kind::u64:
        return put<std::uint64_t>(name, data, size, lasting);
      case Kind::i64:
        return put<std::int64_t>(name, data, size, lasting);
      case Kind::f32:
        return put<float>(name, data, size, lasting);
      case Kind::f64:
        return put<double>(name, data, size, lasting);
    }
  }

 private:
  template <class T>
  void put(const std::string& name, void* data, std::size_t size, bool lasting) {
    T* const values = static_cast<T*>(data);
    if (lasting)
      arrays_[name.c_str()] = Array<T>(values, {size}, owner_);
    else
      arrays_[name.c_str()] = own(std::vector<T>(values, values + size));
  }
  nb::handle owner_;
  Arrays arrays_;
};

class Reader final : public Archive {
 public:
  explicit Reader(Arrays arrays) : arrays_(std::move(arrays)) {}
  bool reading() const override { return true; }

 protected:
  nb::ndarray<nb::ro> find(const std::string& name) const {
    if (!arrays_.contains(name.c_str())) throw ArchiveError("the array " + name + " is missing");
    return nb::cast<nb::ndarray<nb::ro>>(arrays_[name.c_str()]);
  }
  std::size_t count(const std::string& name) const override { return find(name).size(); }
  void move(const std::string& name, Kind kind, void* data, std::size_t size, bool) override {
    const nb::ndarray<nb::ro> array = find(name);
    const auto expect = [&](nb::dlpack::dtype type) {
      if (array.dtype() != type || array.size() != size)
        throw ArchiveError("the array " + name +
                           " has another type or size than its settings need");
      if (size) std::memcpy(data, array.data(), array.nbytes());
    };
    switch (kind) {
      case Kind::u8:
        return expect(nb::dtype<std::uint8_t>());
      case Kind::u32:
        return expect(nb::dtype<std::uint32_t>());
      case Kind::u64:
        return expect(nb::dtype<std::uint64_t>());
      case Kind::i64:
        return expect(nb::dtype<std::int64_t>());
      case Kind::f32:
        return expect(nb::dtype<float>());
      case Kind::f64:
        return expect(nb::dtype<double>());
    }
  }

 private:
  Arrays arrays_;
};

using Ids = In<std::int64_t>;
using MaybeIds = std::optional<Ids>;
using MaybeWeights = std::optional<In<double>>;
using MaybeOps = std::optional<In<std::uint8_t>>;

Rows rows_of(const Ids& src, const Ids& dst, const MaybeWeights& weight, const MaybeOps& op,
             const MaybeIds& t) {
  Rows rows{view(src), view(dst), view(weight), view(op), view(t)};
  const auto fits = [&](std::size_t size) { return size == 0 || size == rows.src.size(); };
  if (rows.dst.size() != rows.src.size() || !fits(rows.weight.size()) || !fits(rows.op.size()) ||
      !fits(rows.t.size()))
    throw EventError("the columns of the rows differ in length");
  return rows;
}

// Offsets, neighbours, weights or nothing, fractions of weights or nothing.
using CompactArrays = std::tuple<In<std::uint64_t>, In<std::uint32_t>, std::optional<In<float>>,
                                 std::optional<In<std::int32_t>>>;

CompactLists compact_lists(const CompactArrays& arrays) {
  const auto& [offsets, neighbours, weights, fractions] = arrays;
  CompactLists lists;
  lists.nodes = offsets.size() - 1;
  lists.offsets = offsets.data();
  lists.neighbours = neighbours.data();
  if (weights) lists.weights = weights->data();
  if (fractions) lists.fractions = fractions->data();
  if (offsets.size() == 0 || offsets.data()[lists.nodes] != neighbours.size() ||
      (weights && weights->size() != neighbours.size()) ||
      (fractions && (!weights || fractions->size() != neighbours.size())))
    throw EventError("the arrays of the graph do not fit together");
  return lists;
}

// With room for weights and fractions of weights, where there are any.
using OutLists = std::tuple<Out<std::uint64_t, 1>, Out<std::uint32_t, 1>,
                            std::optional<Out<float, 1>>, std::optional<Out<std::int32_t, 1>>>;

void merge_into(Adjacency& lists, const OutLists& arrays) {
  const auto& [offsets, neighbours, weights, fractions] = arrays;
  const Adjacency::Extent extent = lists.extent();
  if (!lists.compact() || offsets.size() != lists.nodes() + 1 ||
      neighbours.size() != extent.entries ||
      (weights ? weights->size() != extent.entries : !extent.plain) ||
      (fractions ? fractions->size() : 0) != (extent.fine ? extent.entries : 0))
    throw EventError("the arrays do not fit the graph");
  lists.merge_into(offsets.data(), neighbours.data(), weights ? weights->data() : nullptr,
                   fractions ? fractions->data() : nullptr);
}

// Runs a long call without the interpreter's lock. Ctrl-C ends it early, if this is the thread that
// Python's signals reach; what it has begun is then completed by the next call.
template <class P, class Work>
void interruptibly(P& p, Work work) {
  {
    nb::gil_scoped_release unlocked;
    p.begin([] {
      nb::gil_scoped_acquire locked;
      return PyErr_CheckSignals() != 0;
    });
    p.complete();
    if (!p.interrupted()) work();
  }
  if (p.interrupted()) throw nb::python_error();
}

template <class Real, class Given>
void borrow_features(Propagator<Real>& p, const InMatrix<Given>& values) {
  if (values.shape(1) != p.columns() || values.shape(0) != p.nodes())
    throw EventError("the features do not fit the nodes and columns");
  p.borrow_features(std::span<const Given>(values.data(), values.size()));
}

template <class Real>
void bind_propagator(nb::module_& module, const char* name) {
  using P = Propagator<Real>;
  using VersionTuple = std::tuple<int, double, std::int64_t, int>;  // kind, half-life, span, forget
  using ChannelTuple =
      std::tuple<std::size_t, double, double, double>;  // view, gamma0, gamma, beta
  // source, seed, first column, distribution
  using FeatureTuple = std::tuple<int, std::uint64_t, std::uint64_t, int>;
  using release = nb::call_guard<nb::gil_scoped_release>;

  const auto edges = [](const P& p, std::optional<std::size_t> channel) {
    std::optional<std::size_t> version;
    if (channel) version = p.versions().views()[p.settings().channels.at(*channel).view].version();
    Versions::Edges found;
    {
      nb::gil_scoped_release unlocked;
      found = p.versions().edges_of(version);
    }
    return std::tuple(own(std::move(found.src)), own(std::move(found.dst)),
                      own(std::move(found.weight)));
  };

  nb::class_<P>(module, name)
      .def(
          "__init__",
          [](P* self, std::size_t nodes, const In<double>& thresholds, bool directed,
             double self_loop, bool scale_by_degree, std::size_t block_columns, int threads,
             const std::vector<VersionTuple>& versions,
             const std::vector<std::pair<std::size_t, int>>& views,
             const std::vector<ChannelTuple>& channels, const FeatureTuple& features,
             std::size_t sweep_nodes) {
            Settings settings;
            settings.sweep_nodes = sweep_nodes;
            const auto& [source, seed, first, distribution] = features;
            settings.features = {FeatureSource::Kind(source), seed, Distribution(distribution),
                                 first};
            settings.directed = directed;
            settings.self_loop = self_loop;
            settings.scale_by_degree = scale_by_degree;
            settings.block_columns = block_columns;
            settings.threads = threads;
            for (const auto& [kind, half_life, span, forget] : versions)
              settings.versions.push_back({VersionSpec::Kind(kind), half_life, span, forget});
            for (const auto& [version, direction] : views)
              settings.views.emplace_back(version, Direction(direction));
            for (const auto& [view, gamma0, gamma, beta] : channels)
              settings.channels.push_back({view, gamma0, gamma, beta});
            new (self) P(std::move(settings), nodes, view(thresholds));
          },
          "nodes"_a, "thresholds"_a.noconvert(), "directed"_a, "self_loop"_a, "scale_by_degree"_a,
          "block_columns"_a, "threads"_a, "versions"_a, "views"_a, "channels"_a, "features"_a,
          "sweep_nodes"_a)
      .def(
          "set_features",
          [](P& p, std::size_t first, const InMatrix<double>& values) {
            if (values.shape(1) != p.columns() || first + values.shape(0) > p.nodes())
              throw EventError("the features do not fit the nodes and columns");
            p.set_features(first, {values.data(), values.size()});
          },
          "first"_a, "values"_a.noconvert(), release())
      .def("borrow_features", borrow_features<Real, float>, "values"_a.noconvert(),
           nb::keep_alive<1, 2>())
      .def("borrow_features", borrow_features<Real, double>, "values"_a.noconvert(),
           nb::keep_alive<1, 2>())
      .def(
          "load",
          [](P& p, const Ids& src, const Ids& dst, const MaybeWeights& weight, const MaybeOps& op,
             const MaybeIds& t,
             std::optional<std::int64_t> end) { p.load(rows_of(src, dst, weight, op, t), end); },
          "src"_a.noconvert(), "dst"_a.noconvert(), "weight"_a.noconvert().none(),
          "op"_a.noconvert().none(), "t"_a.noconvert().none(), "end"_a.none(), release())
      .def(
          "stand_on",
          [](P& p, const CompactArrays& sources, const std::optional<CompactArrays>& targets,
             std::size_t edges, const In<std::uint32_t>& self_nodes, const In<float>& self_weights,
             const std::optional<In<std::int32_t>>& self_fractions) {
            if (!p.versions().plain() || p.versions().edges() > 0 ||
                p.settings().directed != targets.has_value())
              throw EventError("the graph does not fit the channels");
            const CompactLists lists = compact_lists(sources),
                               other = targets ? compact_lists(*targets) : lists;
            if (lists.nodes > p.nodes() || other.nodes != lists.nodes)
              throw EventError("the graph has more nodes than there are");
            if (self_nodes.size() != self_weights.size() ||
                (self_fractions && self_fractions->size() != self_nodes.size()))
              throw EventError("the self-edges do not fit together");
            for (std::size_t i = 0; i < self_nodes.size(); ++i)
              if (self_nodes.data()[i] >= lists.nodes)
                throw EventError("a self-edge belongs to no node");
            p.stand_on(lists, other, edges,
                       {self_nodes.data(), self_weights.data(),
                        self_fractions ? self_fractions->data() : nullptr,
                        std::uint32_t(self_nodes.size())});
          },
          "sources"_a, "targets"_a.none(), "edges"_a, "self_nodes"_a.noconvert(),
          "self_weights"_a.noconvert(), "self_fractions"_a.noconvert().none(),
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
          "Starts from the lists of a compact graph: (offsets, neighbours, weights or None,"
          " fractions or None). The caller vouches for their contents but for the range of "
          "weights.")
      .def(
          "changed_list_bytes",
          [](P& p) {
            Graph& graph = p.graph_to_merge();
            return graph.sources_to_merge().bytes() +
                   (graph.directed() ? graph.targets_to_merge().bytes() : 0);
          },
          "Over a compact graph: what lists take that were copied out of it.")
      .def(
          "extents",
          [](P& p) {
            Graph& graph = p.graph_to_merge();
            std::vector<std::tuple<std::size_t, bool, bool>> found;
            const auto add = [&](const Adjacency& lists) {
              const Adjacency::Extent extent = lists.extent();
              found.emplace_back(extent.entries, extent.plain, extent.fine);
            };
            add(graph.sources_to_merge());
            if (graph.directed()) add(graph.targets_to_merge());
            return found;
          },
          "Over a compact graph: (entries, whether all count one, whether there are fractions) of"
          " the sources, and targets.",
          release())
      .def(
          "merge_into",
          [](P& p, const OutLists& sources, const std::optional<OutLists>& targets) {
            Graph& graph = p.graph_to_merge();
            if (graph.directed() != targets.has_value())
              throw EventError("the arrays do not fit the graph");
            merge_into(graph.sources_to_merge(), sources);
            if (targets) merge_into(graph.targets_to_merge(), *targets);
          },
          "sources"_a, "targets"_a.none(), release(),
          "Writes all lists of the graph into (offsets, neighbours, weights or None, fractions or"
          " None), of the sizes that extents() told, and reads them there from now on: the caller"
          " keeps the arrays.")
      .def("read_peak", &P::read_peak, release())
      .def("start", [](P& p) { interruptibly(p, [&] { p.start(); }); })
      .def(
          "apply",
          [](P& p, const Ids& src, const Ids& dst, const MaybeWeights& weight, const MaybeOps& op,
             const MaybeIds& t, std::optional<std::int64_t> end, std::size_t new_nodes,
             const std::optional<InMatrix<double>>& new_features, const Ids& feature_nodes,
             const std::optional<InMatrix<double>>& feature_values, const Ids& removed_nodes) {
            Update update;
            update.rows = rows_of(src, dst, weight, op, t);
            update.end = end;
            update.new_nodes = new_nodes;
            update.new_features = view(new_features);
            update.feature_nodes = view(feature_nodes);
            update.feature_values = view(feature_values);
            update.removed_nodes = view(removed_nodes);
            if ((new_features && update.new_features.size() != new_nodes * p.columns()) ||
                update.feature_values.size() != update.feature_nodes.size() * p.columns())
              throw EventError("feature rows have another number of columns than the " +
                               std::to_string(p.columns()) + " of this propagator");
            std::vector<std::int64_t> touched;
            interruptibly(p, [&] {
              p.apply(update);
              touched.assign(p.touched().begin(), p.touched().end());
            });
            return own(std::move(touched));
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "weight"_a.noconvert().none(),
          "op"_a.noconvert().none(), "t"_a.noconvert().none(), "end"_a.none(), "new_nodes"_a,
          "new_features"_a.noconvert().none(), "feature_nodes"_a.noconvert(),
          "feature_values"_a.noconvert().none(), "removed_nodes"_a.noconvert())
      .def(
          "apply_steps",
          [](P& p, const Ids& src, const Ids& dst, const MaybeWeights& weight, const MaybeOps& op,
             const MaybeIds& t, const Ids& offsets, const Out<std::int64_t, 1>& counts) {
            const Rows rows = rows_of(src, dst, weight, op, t);
            Refusal refusal;
            std::size_t done = 0;
            interruptibly(p, [&] {
              done = p.apply_steps(rows, view(offsets), {counts.data(), counts.shape(0)}, refusal);
            });
            return std::tuple(done, refusal.why, refusal.of_precision);
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "weight"_a.noconvert().none(),
          "op"_a.noconvert().none(), "t"_a.noconvert().none(), "offsets"_a.noconvert(),
          "counts"_a.noconvert(),
          "(steps done, why the next was refused or an empty text, whether for its precision)")
      .def(
          "difference",
          [](const P& p, const Ids& src, const Ids& dst, const MaybeWeights& weight) {
            auto d = p.versions().difference(rows_of(src, dst, weight, {}, {}));
            return std::tuple(own(std::move(d.src)), own(std::move(d.dst)),
                              own(std::move(d.weight)), own(std::move(d.op)));
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "weight"_a.noconvert().none())
      .def("edges", edges, "channel"_a.none())
      .def(
          "embedding",
          [](P& p, const Ids& nodes, const Out<Real, 3>& out) {
            interruptibly(p, [&] { p.embedding(view(nodes), {out.data(), out.size()}); });
          },
          "nodes"_a.noconvert(), "out"_a.noconvert())
      .def(
          "finish",
          [](P& p, const Out<Real, 3>& out) {
            if (out.shape(0) != p.nodes() || out.shape(1) != p.channels() ||
                out.shape(2) != p.columns())
              throw EventError("out has another shape than nodes, channels and columns");
            interruptibly(p, [&] { p.finish({out.data(), out.size()}); });
          },
          "out"_a.noconvert())
      .def(
          "residual",
          [](P& p, const Ids& nodes, const Out<Real, 3>& out) {
            interruptibly(p, [&] { p.residual(view(nodes), {out.data(), out.size()}); });
          },
          "nodes"_a.noconvert(), "out"_a.noconvert())
      .def(
          "features",
          [](const P& p, const Ids& nodes, const Out<double, 2>& out) {
            p.features(view(nodes), {out.data(), out.size()});
          },
          "nodes"_a.noconvert(), "out"_a.noconvert(), release())
      .def(
          "degree",
          [](const P& p, const Ids& nodes, const Out<double, 2>& out) {
            p.degree(view(nodes), {out.data(), out.size()});
          },
          "nodes"_a.noconvert(), "out"_a.noconvert(), release())
      .def(
          "threshold",
          [](const P& p, const Ids& nodes, const Out<double, 3>& out) {
            p.threshold(view(nodes), {out.data(), out.size()});
          },
          "nodes"_a.noconvert(), "out"_a.noconvert(), release())
      .def(
          "error_bound",
          [](P& p, const Ids& nodes, const Out<double, 3>& out) {
            interruptibly(p, [&] { p.error_bound(view(nodes), {out.data(), out.size()}); });
          },
          "nodes"_a.noconvert(), "out"_a.noconvert())
      .def(
          "loops",
          [](const P& p, std::size_t channel, const Out<double, 1>& out) {
            if (out.shape(0) != p.nodes())
              throw EventError("out has another length than there are nodes");
            const std::size_t version =
                p.versions().views()[p.settings().channels.at(channel).view].version();
            for (std::size_t node = 0; node < p.nodes(); ++node)
              out.data()[node] = p.versions().loop(version, Node(node));
          },
          "channel"_a, "out"_a.noconvert())
      .def("audit",
           [](P& p) {
             typename P::Audit audit;
             interruptibly(p, [&] { audit = p.audit(); });
             return std::tuple(std::move(audit.drift), std::move(audit.residual),
                               std::move(audit.untracked));
           })
      .def("repair", [](P& p) { interruptibly(p, [&] { p.repair(); }); })
      .def(
          "refine", [](P& p, double factor) { interruptibly(p, [&] { p.refine(factor); }); },
          "factor"_a)
      .def("finest_tolerance", &P::finest_tolerance, "peak"_a = 0.0)
      .def("set_threads", &P::set_threads, "threads"_a)
      .def_prop_ro("tolerance", &P::tolerance)
      .def_prop_ro("nodes", &P::nodes)
      .def_prop_ro("time", [](const P& p) { return p.versions().time(); })
      .def("statistics",
           [](const P& p) {
             const auto s = p.statistics();
             nb::typed<nb::dict, nb::str, nb::int_> out;
             out["events"] = s.events;
             out["pushes"] = s.pushes;
             out["edge_pushes"] = s.edge_pushes;
             out["correction_rows"] = s.correction_rows;
             out["stalled"] = s.stalled;
             out["rewrites"] = s.rewrites;
             out["most_pushes"] = s.most_pushes;
             out["sweeps"] = s.sweeps;
             out["edges"] = s.edges;
             out["graph_bytes"] = s.graph_bytes;
             out["state_bytes"] = s.state_bytes;
             return out;
           })
      .def("state",
           [](nb::handle self) {
             P& p = nb::cast<P&>(self);
             interruptibly(p, [] {});  // completes what an interrupted call left
             Writer writer(self);
             p.archive(writer);
             return writer.arrays();
           })
      .def(
          "restore",
          [](P& p, Arrays arrays) {
            Reader reader(std::move(arrays));
            p.archive(reader);
          },
          "arrays"_a);
}

void bind_history(nb::module_& module) {
  const auto threads = [] { return int(std::thread::hardware_concurrency()); };
  nb::class_<History>(module, "History")
      .def(nb::init<std::size_t, std::vector<double>>(), "nodes"_a, "half_lives"_a)
      .def(
          "append",
          [](History& history, const In<std::int64_t>& src, const In<std::int64_t>& dst,
             const In<std::int64_t>& t) { history.append(view(src), view(dst), view(t)); },
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(),
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "node_rows",
          [threads](const History& history, const In<std::int64_t>& nodes,
                    const In<std::int64_t>& t, const Out<float, 2>& out) {
            history.node_rows(view(nodes), view(t), threads(), {out.data(), out.size()});
          },
          "nodes"_a.noconvert(), "t"_a.noconvert(), "out"_a.noconvert(),
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "link_rows",
          [threads](const History& history, const In<std::int64_t>& src,
                    const In<std::int64_t>& dst, const In<std::int64_t>& t,
                    const Out<float, 2>& out) {
            history.link_rows(view(src), view(dst), view(t), threads(), {out.data(), out.size()});
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(), "out"_a.noconvert(),
          nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("nodes", &History::nodes)
      .def_prop_ro("events", &History::events)
      .def_prop_ro("node_columns", &History::node_columns)
      .def_prop_ro("link_columns", &History::link_columns);
}

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
            Refusal refusal;
            std::size_t done = 0;
            interruptibly(
                p, [&] { done = r.run(p, rows, view(offsets), view(times), limit, refusal); });
            return std::tuple(done, refusal.why, refusal.of_precision);
          },
          "propagator"_a, "src"_a.noconvert(), "dst"_a.noconvert(), "weight"_a.noconvert().none(),
          "op"_a.noconvert().none(), "t"_a.noconvert().none(), "offsets"_a.noconvert(),
          "times"_a.noconvert(), "limit"_a,
          "(steps done, why the next was refused or an empty text, whether for its precision)");
}

void bind_trajectories(nb::module_& module) {
  using release = nb::call_guard<nb::gil_scoped_release>;
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

void bind_compact(nb::module_& module) {
  using release = nb::call_guard<nb::gil_scoped_release>;
  using Ids32 = In<std::uint32_t>;
  const auto pairs = [](const Ids32& src, const Ids32& dst, const MaybeWeights& weight) {
    if (src.size() != dst.size() || (weight && weight->size() != src.size()))
      throw EventError("the columns of the pairs differ in length");
    return Pairs{view(src), view(dst), view(weight)};
  };
  const auto window = [](std::uint32_t first, const In<std::uint64_t>& begin,
                         const Out<std::uint32_t, 1>& neighbours,
                         const std::optional<Out<double, 1>>& weights) {
    Window made{first, view(begin), {neighbours.data(), neighbours.size()}, {}};
    if (weights) made.weights = {weights->data(), weights->size()};
    if (begin.size() == 0 || made.begin.back() > neighbours.size() ||
        (weights && weights->size() != neighbours.size()))
      throw EventError("the arrays of the window do not fit together");
    return made;
  };
  module.def(
      "count_entries",
      [pairs](const Ids32& src, const Ids32& dst, int ends, const Out<std::uint32_t, 1>& lengths,
              int threads) {
        count_entries(pairs(src, dst, std::nullopt), Ends(ends), threads,
                      {lengths.data(), lengths.size()});
      },
      "src"_a.noconvert(), "dst"_a.noconvert(), "ends"_a, "lengths"_a.noconvert(), "threads"_a,
      release());
  module.def(
      "fill_lists",
      [pairs, window](const Ids32& src, const Ids32& dst, const MaybeWeights& weight, int ends,
                      std::uint32_t first, const In<std::uint64_t>& begin,
                      const Out<std::uint32_t, 1>& neighbours,
                      const std::optional<Out<double, 1>>& weights,
                      const Out<std::uint32_t, 1>& filled, int threads) {
        fill_lists(pairs(src, dst, weight), Ends(ends), threads,
                   window(first, begin, neighbours, weights), {filled.data(), filled.size()});
      },
      "src"_a.noconvert(), "dst"_a.noconvert(), "weight"_a.noconvert().none(), "ends"_a, "first"_a,
      "begin"_a.noconvert(), "neighbours"_a.noconvert(), "weights"_a.noconvert().none(),
      "filled"_a.noconvert(), "threads"_a, release());
  module.def(
      "sort_lists",
      [window](const In<std::uint64_t>& begin, const Out<std::uint32_t, 1>& neighbours,
               const std::optional<Out<double, 1>>& weights,
               int threads) { return sort_lists(window(0, begin, neighbours, weights), threads); },
      "begin"_a.noconvert(), "neighbours"_a.noconvert(), "weights"_a.noconvert().none(),
      "threads"_a, release());
  module.def(
      "merge_lists",
      [window](const In<std::uint64_t>& begin, const Out<std::uint32_t, 1>& neighbours,
               const Out<double, 1>& weights, bool weighted, const Out<std::uint32_t, 1>& lengths) {
        const Window lists = window(0, begin, neighbours, weights);
        return merge_lists(lists, weighted ? lists.weights : std::span<double>(),
                           {lengths.data(), lengths.size()});
      },
      "begin"_a.noconvert(), "neighbours"_a.noconvert(), "weights"_a.noconvert(), "weighted"_a,
      "lengths"_a.noconvert(), release());
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "The compiled core of tidegraph: use tidegraph.Propagator.";
  nb::exception<EventError>(module, "EventError", PyExc_ValueError);
  nb::exception<PrecisionError>(module, "PrecisionError", PyExc_ValueError);
  nb::exception<ArchiveError>(module, "ArchiveError", PyExc_ValueError);
  bind_propagator<float>(module, "PropagatorF32");
  bind_propagator<double>(module, "PropagatorF64");
  bind_compact(module);
  bind_history(module);
  bind_trajectories(module);
}

}  // namespace tidegraph
