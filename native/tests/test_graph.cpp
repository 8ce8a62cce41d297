#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "check.hpp"
#include "graph.hpp"
#include "support.hpp"

using support::Random;
using support::repeats;
using tidegraph::Adjacency;
using tidegraph::Graph;
using tidegraph::Node;

namespace {

using Weights = std::vector<double>;
using ListModel = std::map<Node, Weights>;

bool agrees(const Adjacency& lists, Node node, const ListModel& model, int layers) {
  if (lists.size(node) != model.size()) return false;
  const std::span<const Node> neighbours = lists.neighbours(node);
  for (std::uint32_t position = 0; position < neighbours.size(); ++position) {
    const auto found = model.find(neighbours[position]);
    if (found == model.end() || lists.find(node, neighbours[position]) != position) return false;
    for (int layer = 0; layer < layers; ++layer)
      if (lists.weight(node, position, layer) != found->second[std::size_t(layer)]) return false;
  }
  return true;
}

// A weight that float32 holds, or any other.
double some_weight(Random& random, bool fine) {
  const double weight = random.between(0.5, 1) * std::exp2(double(random.below(129)) - 64);
  return fine ? weight : double(float(weight));
}

// Node numbers that are easy and hard for a hash index: dense, far apart, equal in the low bits, at
// the upper end.
Node some_id(Random& random, std::size_t style, std::size_t spread) {
  const std::uint32_t id = std::uint32_t(random.below(spread));
  switch (style) {
    case 0:
      return id;
    case 1:
      return id * 37813u;
    case 2:
      return id << 12 | id >> 20;
    default:
      return 0xfffffffeu - id;
  }
}

// Random operations that bring a list to a size. Returns how many differed from the model.
std::size_t wander(Adjacency& lists, Node node, ListModel& model, std::size_t target, int layers,
                   std::size_t style, Random& random, bool fine) {
  std::size_t wrong = 0;
  const std::size_t spread = 2 * std::max(target, model.size()) + 64;
  while (model.size() != target) {
    const bool towards = random.chance(0.8), grow = (model.size() < target) == towards;
    const Node id = some_id(random, style, spread);
    const std::uint32_t position = lists.find(node, id);
    const auto known = model.find(id);
    if ((position == Adjacency::kAbsent) != (known == model.end())) return wrong + 1;
    if (known == model.end() && grow) {
      const std::uint32_t at = lists.insert(node, id);
      Weights& weights = model[id];
      wrong += lists.neighbours(node)[at] != id || lists.find(node, id) != at;
      for (int layer = 0; layer < layers; ++layer) {
        wrong += lists.weight(node, at, layer) != 0;
        weights.push_back(some_weight(random, fine));
        lists.set_weight(node, at, layer, weights.back());
      }
    } else if (known != model.end() && !grow) {
      lists.erase(node, position);
      model.erase(known);
      wrong += lists.find(node, id) != Adjacency::kAbsent;
    } else if (known != model.end()) {
      const std::size_t layer = random.below(std::uint64_t(layers));
      wrong += lists.weight(node, position, int(layer)) != known->second[layer];
      known->second[layer] = some_weight(random, fine);
      lists.set_weight(node, position, int(layer), known->second[layer]);
    } else if (!model.empty() && random.chance(0.7)) {
      // Shrinking needs present neighbours.
      const Node present = lists.neighbours(node)[random.below(lists.size(node))];
      const std::uint32_t at = lists.find(node, present);
      if (at == Adjacency::kAbsent || model.erase(present) != 1) return wrong + 1;
      lists.erase(node, at);
    }
  }
  return wrong;
}

class GraphModel {
 public:
  GraphModel(bool directed, int layers) : directed_(directed), layers_(layers) {}
  std::pair<Node, Node> key(Node src, Node dst) const {
    return directed_ || src < dst ? std::pair(src, dst) : std::pair(dst, src);
  }
  std::map<std::pair<Node, Node>, Weights> edges;
  bool fine = false;  // whether some weights are not float32

  bool agrees(const Graph& graph) const {
    if (graph.edges() != edges.size()) return false;
    for (int layer = 0; layer < layers_; ++layer) {
      std::size_t visited = 0, wrong = 0;
      graph.for_each_edge(layer, [&](Node src, Node dst, double weight) {
        ++visited;
        const auto found = edges.find({src, dst});
        wrong += found == edges.end() || found->second[std::size_t(layer)] != weight ||
                 (!directed_ && src > dst);
      });
      if (visited != edges.size() || wrong) return false;
    }
    std::vector<std::size_t> in(graph.nodes()), out(graph.nodes());
    Weights read(std::size_t(layers_), -1.0);
    for (const auto& [pair, weights] : edges) {
      const auto [src, dst] = pair;
      if (!graph.read(src, dst, read) || read != weights) return false;
      if (!directed_ && (!graph.read(dst, src, read) || read != weights)) return false;
      for (int layer = 0; src == dst && layer < layers_; ++layer)
        if (graph.self_edge(src, layer) != weights[std::size_t(layer)]) return false;
      if (src == dst) continue;
      const std::uint32_t from = graph.targets().find(src, dst),
                          to = graph.sources().find(dst, src);
      if (from == Adjacency::kAbsent || to == Adjacency::kAbsent) return false;
      for (int layer = 0; layer < layers_; ++layer)
        if (graph.targets().weight(src, from, layer) != weights[std::size_t(layer)]) return false;
      ++out[src], ++in[dst];
      if (!directed_) ++out[dst], ++in[src];
    }
    for (Node node = 0; node < graph.nodes(); ++node)
      if (graph.sources().size(node) != in[node] || graph.targets().size(node) != out[node])
        return false;
    return true;
  }

 private:
  bool directed_;
  int layers_;
};

using Listing = std::vector<std::vector<std::vector<double>>>;

// Every list in its order: neighbours, then weights.
Listing listing(const Graph& graph) {
  Listing all;
  for (const Adjacency* lists : {&graph.sources(), &graph.targets()})
    for (Node node = 0; node < graph.nodes(); ++node) {
      std::vector<std::vector<double>> parts;
      const std::span<const Node> ids = lists->neighbours(node);
      parts.emplace_back(ids.begin(), ids.end());
      for (int layer = 0; layer < graph.layers(); ++layer) {
        const tidegraph::Entries entries = lists->entries(node, layer);
        parts.emplace_back();
        for (std::uint32_t e = 0; e < entries.size; ++e)
          parts.back().push_back(tidegraph::weight_at(entries, e));
      }
      all.push_back(std::move(parts));
    }
  return all;
}

// One random operation on a graph and its model. A few nodes occur often, so that degrees
// differ a lot.
std::size_t operate(Graph& graph, GraphModel& model, Random& random, double growth) {
  const auto pick = [&] {
    const double u = random.uniform();
    return Node(u * u * u * double(graph.nodes()));
  };
  const Node src = pick(), dst = random.chance(0.02) ? src : pick();
  const auto key = model.key(src, dst);
  Weights weights(std::size_t(graph.layers()));
  const bool existed = graph.read(src, dst, weights);
  if (existed != (model.edges.count(key) == 1)) return 1;
  if (!existed) {
    for (const double weight : weights)
      if (weight != 0) return 1;
  }
  for (double& weight : weights) weight = some_weight(random, model.fine && random.chance(0.1));
  if (existed && !random.chance(growth)) {
    graph.erase(src, dst);
    model.edges.erase(key);
  } else if (existed && random.chance(0.5)) {
    Weights& kept = model.edges[key];
    kept[random.below(kept.size())] = weights[0];
    graph.write(src, dst, kept);
  } else {
    graph.write(src, dst, weights);
    model.edges[key] = weights;
  }
  return 0;
}

double bytes_per_edge(const Graph& graph) {
  const Graph empty(graph.nodes(), graph.directed(), graph.layers());
  return double(graph.bytes() - empty.bytes()) / double(graph.edges());
}

}  // namespace

TEST(a_list_agrees_with_a_map_at_every_size_of_its_index) {
  // Lists up to 32 are scanned; positions take 16 bits up to a capacity of 65,534.
  const std::size_t targets[] = {0,   1,  31,   32,     33,     34,     30,     100,    7,      0,
                                 300, 20, 1000, 65'530, 65'540, 65'533, 66'000, 80'000, 40'000, 90,
                                 33,  32, 31,   5,      2000,   1,      0,      50};
  for (const int layers : {1, 3}) {
    for (std::size_t style = 0; style < repeats(8, 2); ++style) {
      const bool fine = style % 2;
      Adjacency lists(layers);
      lists.resize(3);
      ListModel model;
      Random random(style + 10 * std::size_t(layers));
      std::size_t wrong = 0, disagreements = 0;
      const std::size_t sanitized_style = support::kSanitized ? std::size_t(layers) % 4 : style / 2;
      for (const std::size_t target : targets) {
        wrong += wander(lists, 1, model, target, layers, sanitized_style, random, fine);
        CHECK(!lists.fine() || fine);
        disagreements += !agrees(lists, 1, model, layers);
        lists.tidy();
        disagreements += !agrees(lists, 1, model, layers);
      }
      CHECK_EQUAL(wrong, 0);
      CHECK_EQUAL(disagreements, 0);
      CHECK_EQUAL(lists.size(0) + lists.size(2), 0);
    }
  }
}

TEST(a_weight_is_stored_to_its_last_bit) {
  Adjacency lists(2);
  lists.resize(2);
  std::vector<double> expected;
  Random random(12);
  const auto keep = [&](double weight) {
    const std::uint32_t position = lists.insert(0, Node(expected.size()));
    lists.set_weight(0, position, 1, weight);
    expected.push_back(weight);
  };
  keep(1);
  keep(2.5);
  keep(tidegraph::kHeaviest);
  keep(tidegraph::kLightest);
  CHECK(!lists.fine());
  for (int exponent = -64; exponent <= 64; ++exponent) {
    const double power = std::ldexp(1.0, exponent);
    keep(std::nextafter(power, 0.0));
    keep(std::nextafter(power, 2 * power));
    // Halfway between two float32, and next to it.
    const double half = power * (1 + 0x1p-24);
    for (const double weight : {half, std::nextafter(half, 0.0), std::nextafter(half, 2 * half)})
      keep(weight);
    for (int i = 0; i < 100; ++i) keep(power * random.between(0.5, 1));
  }
  CHECK(lists.fine());
  std::size_t wrong = 0;
  const auto look = [&] {
    for (Node id = 0; id < expected.size(); ++id) {
      const std::uint32_t position = lists.find(0, id);
      wrong += position == Adjacency::kAbsent || lists.weight(0, position, 1) != expected[id] ||
               lists.weight(0, position, 0) != 0;
    }
  };
  look();
  // By powers of two, as decay does, far down and up again.
  for (const double factor : {0x1p-40, 0x1p40}) CHECK(lists.scale(0, 1, factor, 0).left);
  look();
  CHECK_EQUAL(wrong, 0);
  CHECK(!lists.scale(0, 1, 0.5, 0x1p65).left);
  CHECK_EQUAL(lists.weight(0, 7, 1), 0.0);
}

TEST(fractions_take_room_only_once_a_weight_has_one) {
  Graph plain(1000, false, 1), fine(1000, false, 1);
  for (Node node = 0; node < 1000; ++node)
    for (Node step = 1; step <= 40; ++step)
      for (Graph* graph : {&plain, &fine})
        graph->write(node, (node + step) % 1000, Weights{double(step)});
  CHECK_EQUAL(plain.bytes(), fine.bytes());
  const Listing before = listing(plain);
  fine.write(3, 4, Weights{0.1});
  CHECK(!plain.sources().fine() && fine.sources().fine());
  CHECK_AT_MOST(plain.bytes() + 4 * 40'000, fine.bytes());
  CHECK_AT_MOST(fine.bytes(), plain.bytes() + 5 * 2 * 40'000);
  fine.write(3, 4, Weights{1.0});
  CHECK(listing(fine) == before);
}

TEST(lists_that_share_memory_do_not_disturb_each_other) {
  const int layers = 2;
  const std::size_t nodes = 400;
  Adjacency lists(layers);
  lists.resize(nodes);
  std::vector<ListModel> models(nodes);
  Random random(5);
  std::size_t wrong = 0;
  for (std::size_t round = 0; round < repeats(6000, 1500); ++round) {
    const Node node = Node(random.below(nodes));
    // Sizes over three orders of magnitude; often zero, so that blocks are reused.
    const std::size_t target =
        random.chance(0.3) ? 0 : std::size_t(random.below(1 + (1ull << random.below(10))));
    const bool fine = round > 1000 && random.chance(0.3);
    wrong += wander(lists, node, models[node], target, layers, node % 4, random, fine);
    if (round % 50 == 0) lists.tidy();
  }
  CHECK_EQUAL(wrong, 0);
  std::size_t disagreements = 0;
  for (Node node = 0; node < nodes; ++node)
    disagreements += !agrees(lists, node, models[node], layers);
  CHECK_EQUAL(disagreements, 0);
}

TEST(a_graph_agrees_with_a_map_of_its_edges) {
  for (const bool directed : {false, true}) {
    for (const int layers : {1, 3}) {
      Graph graph(150, directed, layers);
      GraphModel model(directed, layers);
      Random random(std::uint64_t(10 * layers) + directed);
      std::size_t wrong = 0, disagreements = 0;
      const std::size_t operations = repeats(150'000, 30'000);
      for (std::size_t i = 0; i < operations; ++i) {
        // Grows for a while, shrinks for a while.
        model.fine = i > operations / 3;
        wrong += operate(graph, model, random, i / 10'000 % 3 == 2 ? 0.05 : 0.8);
        if (i % 5000 == 0) {
          // A dropped edge stays with a weight of zero.
          const int layer = int(random.below(std::uint64_t(layers)));
          const double factor = random.chance(0.5) ? 2 : 0.5;
          const double floor = random.chance(0.5) && layer > 0 ? 1e-3 : 0;
          std::vector<bool> left(graph.nodes()), dropped(graph.nodes());
          for (auto& [pair, weights] : model.edges) {
            double& weight = weights[std::size_t(layer)];
            if (weight > 0 && weight * factor < floor)
              dropped[pair.first] = dropped[pair.second] = true;
            weight = weight * factor < floor ? 0 : weight * factor;
            if (weight >= floor) left[pair.first] = left[pair.second] = true;
          }
          for (Node node = 0; node < graph.nodes(); ++node) {
            const Adjacency::Scaled scaled = graph.scale_edges_of(node, layer, factor, floor);
            disagreements += floor > 0 && scaled.left != left[node];
            disagreements += scaled.dropped != dropped[node];
          }
          graph.tidy();
          disagreements += !model.agrees(graph);
        }
        if (i % 20'000 == 0) graph.resize(graph.nodes() + 25);
      }
      CHECK_EQUAL(wrong, 0);
      CHECK_EQUAL(disagreements, 0);
      CHECK(model.agrees(graph));
      while (!model.edges.empty()) {
        const auto [src, dst] = model.edges.begin()->first;
        graph.erase(src, dst);
        model.edges.erase(model.edges.begin());
      }
      CHECK(model.agrees(graph));
      CHECK_EQUAL(graph.edges(), 0);
    }
  }
}

TEST(a_graph_built_at_once_equals_one_built_edge_by_edge) {
  for (const bool directed : {false, true}) {
    for (const bool weighted : {false, true}) {
      const std::size_t nodes = 3000;
      Graph graph(nodes, directed, 1);
      GraphModel model(directed, 1);
      Random random(14);
      std::vector<std::int64_t> src, dst;
      std::vector<double> weight;
      for (std::size_t row = 0; row < 100'000; ++row) {
        const double u = random.uniform();
        src.push_back(std::int64_t(u * u * u * u * double(nodes)));
        dst.push_back(
            std::int64_t(random.chance(0.01) ? std::uint64_t(src.back()) : random.below(nodes)));
        weight.push_back(random.between(0.1, 10));
        Weights& sum = model.edges[model.key(Node(src.back()), Node(dst.back()))];
        sum.resize(1, 0.0);
        sum[0] += weighted ? weight.back() : 1.0;
      }
      CHECK(!graph.build(src, dst,
                         weighted ? std::span<const double>(weight) : std::span<const double>()));
      CHECK(model.agrees(graph));
      CHECK_EQUAL(graph.sources().fine(), weighted);
      std::size_t wrong = 0;
      model.fine = true;
      for (std::size_t i = 0; i < 50'000; ++i) wrong += operate(graph, model, random, 0.5);
      CHECK_EQUAL(wrong, 0);
      CHECK(model.agrees(graph));
    }
    for (const Node last : {Node(1), Node(2)}) {  // an edge, a self-edge
      Graph graph(3, directed, 1);
      const std::vector<std::int64_t> src{0, 2, 2}, dst{1, std::int64_t(last), std::int64_t(last)};
      const std::vector<double> weight{1, 0x1p64, 0x1p63};
      CHECK(graph.build(src, dst, weight) == std::optional<std::size_t>(2));
      Graph light(3, directed, 1);
      const std::vector<double> too_light{1, 0x1p-65, 1};
      CHECK(light.build(src, dst, too_light) == std::optional<std::size_t>(1));
      Graph good(3, directed, 1);
      const std::vector<double> extreme{0x1p-64, 0x1p63, 0x1p63};
      CHECK(!good.build(src, dst, extreme));
    }
  }
}

TEST(tidying_frees_memory_and_preserves_content_and_order) {
  for (const auto& [directed, fine] :
       {std::pair(false, false), std::pair(false, true), std::pair(true, true)}) {
    const std::size_t nodes = 30'000;
    Graph graph(nodes, directed, 2);
    GraphModel model(directed, 2);
    model.fine = fine;
    Random random(3);
    const auto connect = [&](Node src, Node dst) {
      const Weights weights{some_weight(random, model.fine), some_weight(random, model.fine)};
      graph.write(src, dst, weights);
      model.edges[model.key(src, dst)] = weights;
    };
    for (Node node = 1; node < nodes; ++node) {
      connect(0, node);  // a list in its own allocation, which tidying does not move
      for (int i = 0; i < 8; ++i) connect(node, Node(random.below(nodes)));
    }
    for (auto edge = model.edges.begin(); edge != model.edges.end();) {
      const auto [src, dst] = edge->first;
      if (src == 0 || dst == 0 || random.chance(0.15)) {
        ++edge;
        continue;
      }
      graph.erase(src, dst);
      edge = model.edges.erase(edge);
    }
    const Listing before = listing(graph);
    const std::size_t bytes = graph.bytes();
    graph.tidy();
    CHECK_AT_MOST(graph.bytes(), bytes * 3 / 4);
    CHECK(listing(graph) == before);
    CHECK(model.agrees(graph));
    const std::size_t tidied = graph.bytes();
    graph.tidy();
    CHECK_EQUAL(graph.bytes(), tidied);
    // And still works.
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < 50'000; ++i) wrong += operate(graph, model, random, 0.5);
    CHECK_EQUAL(wrong, 0);
    CHECK(model.agrees(graph));
  }
}

TEST(a_graph_read_back_has_the_same_order_and_continues_to_the_bit) {
  for (const bool directed : {false, true}) {
    Graph graph(200, directed, 2);
    GraphModel model(directed, 2);
    Random random(8);
    model.fine = true;
    for (std::size_t i = 0; i < 30'000; ++i) operate(graph, model, random, i < 20'000 ? 0.8 : 0.2);
    support::MemoryArchive archive;
    graph.archive(archive, "graph");
    archive.begin_reading();
    Graph copy(graph.nodes(), directed, 2);
    copy.archive(archive, "graph");
    CHECK(model.agrees(copy));
    CHECK(listing(copy) == listing(graph));
    GraphModel same = model;
    Random one(9), two(9);
    for (std::size_t i = 0; i < 20'000; ++i) {
      operate(graph, model, one, 0.5);
      operate(copy, same, two, 0.5);
    }
    CHECK(model.agrees(graph));
    CHECK(same.agrees(copy));
    CHECK(listing(copy) == listing(graph));
  }
}

TEST(a_copy_of_a_graph_is_independent_and_the_same_changes_give_the_same_graph) {
  for (const bool directed : {false, true}) {
    Graph graph(3000, directed, 2);
    GraphModel model(directed, 2);
    Random random(10);
    model.fine = true;
    for (std::size_t i = 0; i < 60'000; ++i) operate(graph, model, random, 0.9);
    CHECK_AT_MOST(1200, graph.sources().size(0));  // in its own allocation
    Graph copy(graph);
    GraphModel same = model;
    CHECK(listing(copy) == listing(graph));
    Random one(11), two(11);
    for (std::size_t i = 0; i < 20'000; ++i) operate(graph, model, one, 0.3);
    CHECK(same.agrees(copy));
    for (std::size_t i = 0; i < 20'000; ++i) operate(copy, same, two, 0.3);
    CHECK(model.agrees(graph));
    CHECK(listing(copy) == listing(graph));
  }
}

TEST(an_archive_of_another_graph_is_rejected) {
  Graph graph(4, false, 1);
  const Weights weights{1.0};
  graph.write(0, 1, weights);
  graph.write(1, 2, weights);
  support::MemoryArchive archive;
  graph.archive(archive, "graph");
  archive.begin_reading();
  const auto rejected = [&](std::size_t nodes) {
    Graph copy(nodes, false, 1);
    try {
      copy.archive(archive, "graph");
    } catch (const tidegraph::ArchiveError&) { return true; }
    return false;
  };
  CHECK(!rejected(4));
  CHECK(rejected(3));
  CHECK(rejected(5));
  const auto whole = archive.arrays;
  for (const auto& [name, array] : whole) {
    archive.arrays = whole;
    archive.arrays.erase(name);
    CHECK(rejected(4));
  }
  archive.arrays = whole;
  const std::uint32_t far = 4;
  std::memcpy(archive.arrays["graph.sources.neighbours"].bytes.data(), &far, sizeof far);
  CHECK(rejected(4));
}

// Needs no clock: if an operation scanned the hub's list of four megabytes, this test would move
// terabytes and not end.
TEST(a_hub_with_a_million_neighbours_takes_changes_without_scans) {
  const std::size_t degree = 1'000'000, nodes = degree + 200'001;
  Graph graph(nodes, false, 1);
  std::vector<Node> inside, outside;  // neighbours of node 0 and the rest
  for (Node node = 1; node < nodes; ++node) (node <= degree ? inside : outside).push_back(node);
  Weights weight{1.0};
  for (const Node node : inside) graph.write(0, node, weight);
  CHECK_EQUAL(graph.sources().size(0), degree);
  graph.tidy();
  const double star = bytes_per_edge(graph);
  std::printf("bytes per undirected edge of a star: %.1f\n", star);
  CHECK_AT_MOST(star, 24.0);
  Random random(4);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < repeats(2'000'000, 300'000); ++i) {
    Node &leaving = inside[random.below(inside.size())],
         &entering = outside[random.below(outside.size())];
    wrong += !graph.read(leaving, 0, weight) || graph.read(0, entering, weight);
    graph.erase(leaving, 0);
    weight[0] = double(float(entering));
    graph.write(0, entering, weight);
    std::swap(leaving, entering);
  }
  CHECK_EQUAL(wrong, 0);
  CHECK_EQUAL(graph.edges(), degree);
  CHECK_EQUAL(graph.sources().size(0), degree);
  for (const Node node : inside)
    wrong += !graph.read(0, node, weight) || graph.sources().size(node) != 1;
  for (const Node node : outside)
    wrong += graph.read(0, node, weight) || graph.sources().size(node) != 0;
  CHECK_EQUAL(wrong, 0);
  graph.tidy();
  CHECK_AT_MOST(bytes_per_edge(graph), 24.0);
  for (const Node node : inside) graph.erase(node, 0);
  CHECK_EQUAL(graph.edges(), 0);
  CHECK_EQUAL(graph.sources().size(0), 0);
}

TEST(a_grown_power_law_graph_at_rest_takes_at_most_24_bytes_per_edge) {
  // Preferential attachment: ends of edges are drawn among the ends of earlier ones.
  for (const std::size_t each : {2, 8}) {
    const std::size_t nodes = repeats(400'000, 100'000) / each;
    Graph graph(nodes, false, 1);
    Random random(6);
    std::vector<Node> ends{0};
    const Weights weight{1.0};
    Weights read(1);
    for (Node node = 1; node < nodes; ++node) {
      for (std::size_t i = 0; i < each; ++i) {
        const Node other =
            random.chance(0.1) ? Node(random.below(node)) : ends[random.below(ends.size())];
        if (other == node || graph.read(node, other, read)) continue;
        graph.write(node, other, weight);
        ends.push_back(other);
        ends.push_back(node);
      }
      if (node % 64 == 0) graph.tidy();  // as after the steps of a stream
    }
    graph.tidy();
    std::printf("bytes per undirected edge of a power-law graph with %zu edges: %.1f\n",
                graph.edges(), bytes_per_edge(graph));
    CHECK_AT_MOST(bytes_per_edge(graph), 24.0);
  }
}

TEST(lists_merged_into_a_new_base_are_unchanged) {
  constexpr std::size_t kNodes = 9000;  // several pages
  Random random(11);
  // The base: a few entries each, some of them twice, and a node with very many.
  std::vector<std::uint64_t> offsets{0};
  std::vector<Node> neighbours;
  for (std::size_t node = 0; node < kNodes; ++node) {
    const std::size_t count = node == 17 ? 5000 : random.below(4);
    for (std::size_t i = 0; i < count; ++i) neighbours.push_back(Node(i / (node % 2 + 1)));
    offsets.push_back(neighbours.size());
  }
  tidegraph::CompactLists base;
  base.nodes = kNodes;
  base.offsets = offsets.data();
  base.neighbours = neighbours.data();
  Adjacency over(1), merged(1);
  std::vector<std::uint64_t> new_offsets[2];
  std::vector<Node> new_neighbours[2];
  std::vector<float> new_weights[2];
  std::vector<std::int32_t> new_fractions[2];
  for (Adjacency* lists : {&over, &merged}) {
    lists->resize(kNodes + 3);  // some nodes are new
    lists->attach_base(base);
  }
  for (std::size_t round = 0; round < 6; ++round) {
    for (std::size_t change = 0; change < 500; ++change) {
      const Node node = random.chance(0.1) ? 17 : Node(random.below(kNodes + 3));
      const Node neighbour = Node(random.below(6000));
      const double weight = random.chance(0.5) ? 1 : random.chance(0.5) || round < 2 ? 2.5 : 0.1;
      const bool erase = random.chance(0.4);
      for (Adjacency* lists : {&over, &merged}) {
        const std::uint32_t position = lists->find_to_change(node, neighbour);
        if (position == Adjacency::kAbsent) {
          const std::uint32_t added = lists->insert(node, neighbour);
          lists->set_weight(node, added, 0, weight);
        } else if (erase) {
          lists->erase(node, position);
        }
      }
    }
    const Adjacency::Extent extent = merged.extent();
    // Into other memory: the old base is read while the new one is written.
    auto& fresh = new_offsets[round % 2];
    fresh.assign(kNodes + 4, 0);
    new_neighbours[round % 2].assign(extent.entries, 0);
    new_weights[round % 2].assign(extent.entries, 0.0f);
    new_fractions[round % 2].assign(extent.entries, 0);
    CHECK(!extent.plain);
    CHECK_EQUAL(extent.fine, round >= 2);
    merged.merge_into(fresh.data(), new_neighbours[round % 2].data(), new_weights[round % 2].data(),
                      extent.fine ? new_fractions[round % 2].data() : nullptr);
    CHECK_AT_MOST(merged.bytes(), kNodes);
    const Adjacency copy(merged);
    for (Node node = 0; node < kNodes + 3; ++node) {
      const std::span<const Node> expected = over.neighbours(node), found = copy.neighbours(node);
      CHECK(std::equal(expected.begin(), expected.end(), found.begin(), found.end()));
      for (const Node neighbour : expected) {
        const std::uint32_t position = over.find(node, neighbour);
        CHECK_EQUAL(copy.find(node, neighbour), position);
        CHECK_EQUAL(copy.weight(node, position, 0), over.weight(node, position, 0));
        if (expected.size() > 100) break;
      }
    }
  }
}
