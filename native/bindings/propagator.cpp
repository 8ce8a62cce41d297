#include "propagator.hpp"

#include "arrays.hpp"
#include "bind.hpp"
#include "interruptible.hpp"
#include "state.hpp"

namespace tidegraph {
namespace {

// Offsets, neighbours, weights if any, fractions of weights if any.
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
    throw EventError("the arrays of the graph do not match each other");
  return lists;
}

// The same, to be written to.
using OutLists = std::tuple<Out<std::uint64_t, 1>, Out<std::uint32_t, 1>,
                            std::optional<Out<float, 1>>, std::optional<Out<std::int32_t, 1>>>;

void merge_into(Adjacency& lists, const OutLists& arrays) {
  const auto& [offsets, neighbours, weights, fractions] = arrays;
  const Adjacency::Extent extent = lists.extent();
  if (!lists.compact() || offsets.size() != lists.nodes() + 1 ||
      neighbours.size() != extent.entries ||
      (weights ? weights->size() != extent.entries : !extent.plain) ||
      (fractions ? fractions->size() : 0) != (extent.fine ? extent.entries : 0))
    throw EventError("the arrays do not match the graph");
  lists.merge_into(offsets.data(), neighbours.data(), weights ? weights->data() : nullptr,
                   fractions ? fractions->data() : nullptr);
}

template <class Real, class Given>
void borrow_features(Propagator<Real>& p, const InMatrix<Given>& values) {
  if (values.shape(1) != p.columns() || values.shape(0) != p.nodes())
    throw EventError("the features do not match the nodes and columns");
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
              throw EventError("the features do not match the nodes and columns");
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
              throw EventError(
                  "a compact graph needs channels that see all edges, a propagator without edges, "
                  "and targets if it is directed");
            const CompactLists lists = compact_lists(sources),
                               other = targets ? compact_lists(*targets) : lists;
            if (lists.nodes > p.nodes() || other.nodes != lists.nodes)
              throw EventError("the graph has more nodes than the propagator");
            if (self_nodes.size() != self_weights.size() ||
                (self_fractions && self_fractions->size() != self_nodes.size()))
              throw EventError("the arrays of the self-edges differ in length");
            for (std::size_t i = 0; i < self_nodes.size(); ++i)
              if (self_nodes.data()[i] >= lists.nodes)
                throw EventError("a self-edge belongs to an unknown node");
            p.attach_base(lists, other, edges,
                          {self_nodes.data(), self_weights.data(),
                           self_fractions ? self_fractions->data() : nullptr,
                           std::uint32_t(self_nodes.size())});
          },
          "sources"_a, "targets"_a.none(), "edges"_a, "self_nodes"_a.noconvert(),
          "self_weights"_a.noconvert(), "self_fractions"_a.noconvert().none(),
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
          "Start from the lists of a compact graph: (offsets, neighbours, weights or None, "
          "fractions"
          " or None). Only the range of the weights is checked.")
      .def(
          "changed_list_bytes",
          [](P& p) {
            Graph& graph = p.graph_to_merge();
            return graph.sources_to_merge().bytes() +
                   (graph.directed() ? graph.targets_to_merge().bytes() : 0);
          },
          "Over a compact graph: the bytes of the lists that were copied because they changed.")
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
          "Over a compact graph: (entries, whether all weigh one, whether there are fractions) of "
          "the"
          " sources and, if directed, of the targets.",
          release())
      .def(
          "merge_into",
          [](P& p, const OutLists& sources, const std::optional<OutLists>& targets) {
            Graph& graph = p.graph_to_merge();
            if (graph.directed() != targets.has_value())
              throw EventError("the arrays do not match the graph");
            merge_into(graph.sources_to_merge(), sources);
            if (targets) merge_into(graph.targets_to_merge(), *targets);
          },
          "sources"_a, "targets"_a.none(), release(),
          "Write all lists of the graph into (offsets, neighbours, weights or None, fractions or"
          " None), of the sizes given by extents(), and read them there from now on: the caller"
          " must keep the arrays.")
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
              throw EventError("feature rows need " + std::to_string(p.columns()) +
                               " columns, as this propagator has");
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
            Rejection rejection;
            std::size_t done = 0;
            interruptibly(p, [&] {
              done =
                  p.apply_steps(rows, view(offsets), {counts.data(), counts.shape(0)}, rejection);
            });
            return std::tuple(done, rejection.reason, rejection.of_precision);
          },
          "src"_a.noconvert(), "dst"_a.noconvert(), "weight"_a.noconvert().none(),
          "op"_a.noconvert().none(), "t"_a.noconvert().none(), "offsets"_a.noconvert(),
          "counts"_a.noconvert(),
          "(steps applied, why the next was rejected or \"\", whether for lack of precision)")
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
          "edges_at",
          [](const P& p, std::size_t node) {
            Versions::Edges found = p.versions().edges_at(Node(node));
            return std::tuple(own(std::move(found.src)), own(std::move(found.dst)),
                              own(std::move(found.weight)));
          },
          "node"_a)
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
              throw EventError("out needs the shape (nodes, channels, columns)");
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
            if (out.shape(0) != p.nodes()) throw EventError("out needs one element per node");
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
             interruptibly(p, [] {});  // completes an interrupted call
             StateWriter writer(self);
             p.archive(writer);
             return writer.arrays();
           })
      .def(
          "restore",
          [](P& p, Arrays arrays) {
            StateReader reader(std::move(arrays));
            p.archive(reader);
          },
          "arrays"_a);
}

}  // namespace

void bind_propagators(nb::module_& module) {
  bind_propagator<float>(module, "PropagatorF32");
  bind_propagator<double>(module, "PropagatorF64");
}

}  // namespace tidegraph
