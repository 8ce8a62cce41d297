// All versions against their definitions.
#include "versions_fixture.hpp"

using namespace versions_tests;

TEST(every_version_holds_what_its_definition_says) {
  const std::vector<VersionSpec> specs{kAll,          window(1),    window(7), window(60),
                                       last(1),       last(5),      last(64),  decay(4, 16),
                                       decay(2.5, 8), decay(64, 24)};
  for (const bool directed : {false, true}) {
    for (const double self_loop : {1.0, 0.125, 0.0}) {
      if (directed && self_loop == 0) continue;
      for (std::uint64_t seed = 0; seed < repeats(4, 1); ++seed) {
        history::Options options;
        options.directed = directed;
        options.timed = true;
        options.long_pause = 0.03;
        options.pause = seed % 2 ? 40 : 1000;
        History history(options, 100 * seed + 7);
        Versions versions = make(options.nodes, directed, self_loop, specs);
        const auto expected = models(specs, options.nodes, self_loop);
        double worst = 0, worst_loop = 0, departure = 0, forgotten = 0;
        std::size_t wrong = 0;
        for (int i = 0; i < 120; ++i) {
          const Step step = history.next();
          departure = std::max(departure, apply_and_audit(versions, step));
          std::map<Pair, double> user;
          for (const auto& [pair, w] : history.graph()) user[pair] = double(w);
          wrong += edges(versions, std::nullopt) != user || versions.edges() != user.size();
          wrong += versions.nodes() != history.nodes();
          for (std::size_t v = 0; v < specs.size(); ++v) {
            follow(*expected[v], history, step);
            const std::map<Pair, double> found = edges(versions, v), right = expected[v]->edges();
            if (specs[v].kind == Kind::decay) {
              worst = std::max(worst, difference(found, right, kForgotten * self_loop));
              forgotten = std::max(
                  forgotten, missing(found, right) * versions.present(v) - versions.forgotten(v));
            } else {
              wrong += found != right;
            }
            for (std::size_t node = 0; node < versions.nodes(); ++node) {
              if (history.removed(node) || self_loop == 0) continue;
              const double loop = versions.loop(v, Node(node)), model = expected[v]->loop(node);
              worst_loop = std::max(worst_loop, std::abs(loop / model - 1));
            }
          }
        }
        CHECK_EQUAL(wrong, 0);
        // Each row of an edge rounds its decayed weight a few times.
        CHECK_AT_MOST(worst, 64 * 0x1p-53);
        CHECK_AT_MOST(worst_loop, 4 * 0x1p-53);
        CHECK_AT_MOST(forgotten, 0.0);
        // Degrees and terms are sums of double of weights that are exact in double.
        CHECK_AT_MOST(departure, 1e-12);
      }
    }
  }
}

TEST(degrees_match_the_graph_when_sums_of_weights_are_rounded) {
  const std::vector<VersionSpec> specs{kAll, window(20), last(12), decay(8, 16)};
  for (const bool directed : {false, true}) {
    history::Options options;
    options.directed = directed;
    options.timed = true;
    options.exact_weights = false;
    History history(options, 77);
    Versions versions = make(options.nodes, directed, 1, specs);
    const auto expected = models(specs, options.nodes, 1);
    double worst = 0, departure = 0;
    for (std::size_t i = 0; i < repeats(2000, 400); ++i) {
      const Step step = history.next();
      const bool look = i % 50 == 0;
      if (look)
        departure = std::max(departure, apply_and_audit(versions, step));
      else
        apply(versions, step);
      for (std::size_t v = 0; v < specs.size(); ++v) {
        follow(*expected[v], history, step);
        if (!look) continue;
        // What a removal leaves of a windowed edge is known as well as the user's weight: to an ulp
        // of what has been there.
        const std::map<Pair, double> found = edges(versions, v), right = expected[v]->edges();
        for (const auto& [pair, w] : right) {
          const double other = found.count(pair) ? found.at(pair) : 0;
          worst = std::max(worst, std::abs(w - other));
        }
      }
    }
    CHECK_AT_MOST(worst, 1e-13);
    CHECK_AT_MOST(departure, 1e-14);
  }
}

TEST(how_rows_are_batched_does_not_matter) {
  const std::vector<VersionSpec> specs{kAll, window(9), last(10), decay(4, 16), decay(32, 8)};
  for (const bool directed : {false, true}) {
    for (std::uint64_t seed = 0; seed < repeats(8, 3); ++seed) {
      history::Options options;
      options.directed = directed;
      options.timed = true;
      options.node_events = false;
      options.long_pause = 0.05;
      options.pause = 60;
      History history(options, 31 * seed + 1);
      Step whole;
      std::vector<Step> singles;
      for (int i = 0; i < 60; ++i) {
        const Step step = history.next();
        for (std::size_t row = 0; row < step.src.size(); ++row) {
          const auto same = [&](Step& to) {
            to.row(step.src[row], step.dst[row], step.weight[row], Op(step.op[row]))
                .at(step.t[row]);
          };
          same(whole);
          same(singles.emplace_back());
        }
      }
      Versions at_once = make(options.nodes, directed, 1, specs),
               one_by_one = make(options.nodes, directed, 1, specs),
               with_clock = make(options.nodes, directed, 1, specs);
      apply(at_once, whole);
      std::int64_t now = whole.t.front();
      for (const Step& step : singles) {
        apply(one_by_one, step);
        for (++now; now < step.t.front(); ++now) apply(with_clock, Step().at(now));
        now = step.t.front();
        apply(with_clock, step);
      }
      for (std::size_t v = 0; v < specs.size(); ++v) {
        for (const Versions* other : {&one_by_one, &with_clock}) {
          if (specs[v].kind != Kind::decay) CHECK(edges(at_once, v) == edges(*other, v));
          CHECK_AT_MOST(difference(edges(at_once, v), edges(*other, v), kForgotten), 64 * 0x1p-53);
          double worst = 0;
          for (Node node = 0; node < options.nodes; ++node)
            worst = std::max(worst, std::abs(at_once.loop(v, node) / other->loop(v, node) - 1));
          CHECK_AT_MOST(worst, 4 * 0x1p-53);
        }
      }
    }
  }
}

TEST(a_directed_self_edge_counts_twice_if_both_directions_are_added_up) {
  Versions versions = make(2, true, 1, {kAll, window(10), decay(10, 16)});
  apply(versions, Step().row(0, 0, 3).row(0, 1, 5).at(0));
  for (const View& view : versions.views()) {
    const bool both = view.direction() == Direction::both;
    CHECK_EQUAL(view.self_edges(), both ? 2.0 : 1.0);
    CHECK_EQUAL(versions.self_weight(view, 0), both ? 7.0 : 4.0);
    CHECK_EQUAL(view.degree(0), both ? 12.0 : view.direction() == Direction::out ? 9.0 : 4.0);
  }
  apply(versions, Step().remove(0, 0).at(0));
  for (const View& view : versions.views()) CHECK_EQUAL(versions.self_weight(view, 0), 1.0);
}

TEST(degrees_are_exact_after_heavy_edges_are_removed) {
  const std::vector<VersionSpec> specs{kAll, window(1000), last(100'000), decay(50, 16)};
  for (const bool directed : {false, true}) {
    for (std::uint64_t seed = 0; seed < repeats(6, 2); ++seed) {
      Versions versions = make(8, directed, 1e-6, specs);
      Random random(seed);
      std::map<Pair, double> present;
      double worst = 0;
      for (int i = 0; i < 400; ++i) {
        Step step;
        for (int row = 0; row < 3; ++row) {
          Pair pair{std::int64_t(random.below(8)), std::int64_t(random.below(8))};
          if (!directed && pair.first > pair.second) std::swap(pair.first, pair.second);
          const auto found = present.find(pair);
          if (found != present.end() && random.chance(0.6)) {
            step.remove(pair.first, pair.second);
            present.erase(found);
          } else {
            const double w = std::pow(10.0, random.between(-12, 12));
            step.set(pair.first, pair.second, w);
            present[pair] = w;
          }
        }
        apply(versions, step.at(i));
        for (const View& view : versions.views()) {
          // Stored weights of decayed versions are known but for the last places.
          const bool decays = specs[view.version()].kind == Kind::decay;
          const std::vector<double> sums = row_sums(matrix(versions, view), 8);
          for (Node node = 0; node < 8; ++node)
            worst = std::max(
                worst, std::abs(view.degree(node) / sums[node] - 1) / (decays ? 4e-15 : 1e-15));
        }
      }
      CHECK_AT_MOST(worst, 1.0);
    }
  }
}

TEST(rows_loaded_at_once_equal_rows_applied) {
  for (const bool directed : {false, true}) {
    Versions loaded = make(60, directed, 0.5, {kAll}), applied = make(60, directed, 0.5, {kAll});
    Random random(3);
    Step first, later;
    for (int row = 0; row < 500; ++row)
      (row < 400 ? first : later)
          .row(std::int64_t(random.below(60)), std::int64_t(random.below(60)),
               random.between(0.1, 2))
          .at(100 + row / 10);
    apply(applied, first);
    CHECK(loaded.load({first.src, first.dst, first.weight, {}, first.t}, first.end));
    CHECK(loaded.time() == applied.time());
    for (Versions* each : {&loaded, &applied}) apply(*each, later);
    CHECK(edges(loaded, 0) == edges(applied, 0));
    CHECK_EQUAL(loaded.edges(), applied.edges());
    double worst = 0;
    for (std::size_t v = 0; v < loaded.views().size(); ++v)
      for (Node node = 0; node < 60; ++node)
        worst = std::max(
            worst, std::abs(loaded.views()[v].degree(node) / applied.views()[v].degree(node) - 1));
    CHECK_AT_MOST(worst, 1e-14);
    CHECK(!loaded.load({first.src, first.dst, {}, {}, {}}, {}));  // not the first rows
    Versions timed = make(60, directed, 1, {kAll, window(5)});
    CHECK(!timed.load({first.src, first.dst, {}, {}, first.t}, first.end));
    Versions fresh = make(60, directed, 1, {kAll});
    CHECK(!fresh.load(first.rows(), first.end));  // operations
    const std::vector<std::int64_t> src{0}, beyond{60};
    bool thrown = false;
    try {
      fresh.load({src, beyond, {}, {}, {}}, {});
    } catch (const EventError&) { thrown = true; }
    CHECK(thrown);
    CHECK_EQUAL(fresh.edges(), 0);
  }
}

TEST(the_difference_to_a_snapshot_leads_to_the_snapshot) {
  for (const bool directed : {false, true}) {
    history::Options options;
    options.directed = directed;
    options.node_events = false;
    History history(options, 5), other(options, 6);
    Versions versions = make(options.nodes, directed, 1, {kAll});
    for (int round = 0; round < 30; ++round) {
      for (int i = 0; i < 5; ++i) other.next();
      Step snapshot;
      std::map<Pair, double> wanted;
      for (const auto& [pair, w] : other.graph()) {
        wanted[pair] = double(w);
        snapshot.row(pair.first, pair.second, double(w) / 2)
            .row(pair.second, pair.first, double(w) / 2);
        if (!directed) continue;
        snapshot.src.back() = pair.first;
        snapshot.dst.back() = pair.second;
      }
      const Versions::Difference found =
          versions.difference({snapshot.src, snapshot.dst, snapshot.weight, {}, {}});
      Step step;
      step.src = found.src, step.dst = found.dst, step.weight = found.weight, step.op = found.op;
      apply(versions, step);
      CHECK(edges(versions, std::nullopt) == wanted);
      CHECK_EQUAL(
          versions.difference({snapshot.src, snapshot.dst, snapshot.weight, {}, {}}).src.size(), 0);
    }
    const std::vector<std::int64_t> src{0}, beyond{std::int64_t(options.nodes)};
    bool thrown = false;
    try {
      versions.difference({src, beyond, {}, {}, {}});
    } catch (const EventError&) { thrown = true; }
    CHECK(thrown);
  }
}

TEST(versions_read_back_continue_to_the_bit) {
  const std::vector<VersionSpec> specs{kAll, window(20), last(12), decay(4, 16)};
  for (const bool directed : {false, true}) {
    history::Options options;
    options.directed = directed;
    options.timed = true;
    options.exact_weights = false;
    options.long_pause = 0.05;
    History history(options, 12);
    Versions versions = make(options.nodes, directed, 1, specs);
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 10; ++i) apply(versions, history.next());
      support::MemoryArchive archive;
      versions.archive(archive);
      archive.begin_reading();
      Versions copy = make(versions.nodes(), directed, 1, specs);
      copy.archive(archive);
      CHECK(contents(copy) == archive.arrays);
      for (int i = 0; i < 10; ++i) {
        const Step step = history.next();
        apply(versions, step);
        apply(copy, step);
      }
      for (std::size_t v = 0; v < specs.size(); ++v) CHECK(edges(copy, v) == edges(versions, v));
      for (std::size_t v = 0; v < versions.views().size(); ++v)
        CHECK(copy.views()[v].degrees() == versions.views()[v].degrees());
    }
  }
}
