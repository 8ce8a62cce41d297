// The invariant, the promised error and the certificate, on random histories.
#include "propagator_fixture.hpp"

using namespace propagator_tests;

TEST(invariant_and_bound_hold_after_every_step_on_undirected_graphs) {
  std::uint64_t seed = 0;
  for (const double self_loop : {1.0, 0.25, 0.0})
    for (const double beta : {0.0, 0.3, 0.5, 1.0})
      for (const Filter& filter : {kLowPass, kHighPass, kOdd}) {
        Settings settings = one_channel(kAll, false, Direction::out, self_loop, filter, beta);
        settings.scale_by_degree = ++seed % 3 != 0;
        history::Options options;
        options.columns = 3 + seed % 9;
        options.exact_weights = seed % 2;
        follow<double>(settings, options, 1e-8, seed, int(repeats(100, 30)));
        follow<float>(settings, options, 5e-3, seed, int(repeats(100, 30)));
      }
}

TEST(invariant_and_bound_hold_after_every_step_on_directed_graphs) {
  std::uint64_t seed = 1000;
  for (const Direction direction : {Direction::out, Direction::in, Direction::both})
    for (const double beta : {0.0, 0.5, 0.8, 1.0})
      for (const Filter& filter : {kLowPass, kHighPass, kOdd}) {
        Settings settings =
            one_channel(kAll, true, direction, ++seed % 2 ? 1.0 : 0.25, filter, beta);
        settings.scale_by_degree = seed % 3 != 0;
        history::Options options;
        options.directed = true;
        options.columns = 3 + seed % 9;
        options.exact_weights = seed % 2;
        follow<double>(settings, options, 1e-8, seed, int(repeats(100, 30)));
        follow<float>(settings, options, 5e-3, seed, int(repeats(100, 30)));
      }
}

TEST(invariant_and_bound_hold_in_every_version_of_time) {
  std::uint64_t seed = 2000;
  const VersionSpec versions[] = {{Kind::window, 0, 15, 0},
                                  {Kind::last, 0, 25, 0},
                                  {Kind::decay, 7, 0, 16},
                                  {Kind::decay, 2.5, 0, 8}};
  for (const VersionSpec& version : versions)
    for (const bool directed : {false, true})
      for (const Filter& filter : {kLowPass, kHighPass}) {
        const Direction direction = directed ? Direction(seed % 3) : Direction::out;
        const double self_loop = !directed && ++seed % 3 == 0 ? 0.0 : 1.0;
        Settings settings = one_channel(version, directed, direction, self_loop, filter, 0.5);
        history::Options options;
        options.directed = directed;
        options.timed = true;
        options.columns = 4;
        options.exact_weights = false;
        options.long_pause = 0.04;
        options.pause = seed % 2 ? 30 : 400;
        follow<double>(settings, options, 1e-6, seed, int(repeats(200, 50)));
        follow<float>(settings, options, 2e-2, seed, int(repeats(200, 50)));
      }
}

TEST(the_promise_is_kept_with_weights_of_24_orders_of_magnitude) {
  std::uint64_t seed = 4000;
  const VersionSpec versions[] = {
      kAll, {Kind::window, 0, 15, 0}, {Kind::last, 0, 25, 0}, {Kind::decay, 7, 0, 16}};
  for (const VersionSpec& version : versions)
    for (const bool directed : {false, true})
      for (const double self_loop : {1.0, 1e-4, 1e4})
        for (const Filter& filter : {kLowPass, kHighPass}) {
          const Direction direction = directed ? Direction(++seed % 3) : Direction::out;
          Settings settings =
              one_channel(version, directed, direction, self_loop, filter, ++seed % 2 ? 0.5 : 1);
          settings.scale_by_degree = seed % 5 != 0;
          history::Options options;
          options.directed = directed;
          options.timed = true;
          options.columns = 3;
          options.exact_weights = false;
          options.decades = 12;
          options.long_pause = 0.04;
          options.pause = seed % 3 ? 30 : 400;
          audit_all<double>(settings, options, 1e-5, seed, int(repeats(80, 20)));
          audit_all<float>(settings, options, 5e-2, seed, int(repeats(80, 20)));
        }
}

TEST(the_promise_is_kept_without_self_loops_down_to_the_lightest_edges) {
  std::uint64_t seed = 5000;
  for (const VersionSpec& version :
       {kAll, VersionSpec{Kind::window, 0, 15, 0}, VersionSpec{Kind::decay, 7, 0, 10}})
    for (const double beta : {0.5, 0.8, 1.0})
      for (const Filter& filter : {kLowPass, kHighPass}) {
        history::Options options;
        options.timed = true;
        options.columns = 3;
        options.exact_weights = false;
        options.decades = 3;
        options.least = 1e-5;
        options.long_pause = 0.04;
        const Settings settings = one_channel(version, false, Direction::out, 0, filter, beta);
        audit_all<double>(settings, options, 1e-4, ++seed, int(repeats(120, 30)));
      }
}

TEST(invariant_and_bound_hold_with_hundreds_of_queued_nodes) {
  std::uint64_t seed = 3000;
  for (const bool directed : {false, true})
    for (const Filter& filter : {kLowPass, kHighPass}) {
      history::Options options;
      options.directed = directed;
      options.nodes = repeats(200, 120);
      options.rows = 120;
      options.columns = 3;
      const Settings settings = one_channel(kAll, directed, Direction::out, 1, filter, 0.5);
      follow<double>(settings, options, 1e-8, ++seed, 25, 6);
      follow<float>(settings, options, 5e-3, ++seed, 25, 6);
    }
}

TEST(many_channels_are_each_correct) {
  for (const bool directed : {false, true}) {
    history::Options options = busy_options(directed);
    options.nodes = 14;
    follow<float>(many_channels(directed, 1), options, 5e-2, 3, 15);
    follow<double>(many_channels(directed, 2), options, 1e-6, 4, 15);
  }
}

TEST(a_graph_may_be_loaded_in_pieces) {
  for (const bool directed : {false, true}) {
    history::Options options = busy_options(directed);
    options.node_events = false;
    options.columns = 0;
    History history(options, 5);
    history::Options with_features = options;
    with_features.columns = 6;
    const History features(with_features, 6);
    const std::vector<double> theta = thresholds(6, 0.05), x = features.flat_features();
    Settings settings = many_channels(directed, 2);
    Propagator<float> p(settings, history.nodes(), theta);
    for (int i = 0; i < 50; ++i) {
      const Step step = history.next();
      p.load(step.rows(), step.end);
    }
    CHECK_EQUAL(*p.versions().time(), history.now());
    const std::size_t half = x.size() / 12 * 6;
    p.set_features(half / 6, std::span(x).subspan(half));
    p.set_features(0, std::span(x).first(half));
    p.read_peak();
    p.start();
    struct WithFeatures : History {
      WithFeatures(const History& graph, const History& features) : History(graph) {
        x_ = features.features();
      }
    };
    expect_promises_kept(measure(p, WithFeatures(history, features)));
  }
}

TEST(loading_no_rows_still_sets_the_clock) {
  const std::vector<double> theta{0.01};
  for (const VersionSpec& version : {kAll, VersionSpec{Kind::decay, 10, 0, 16}}) {
    Propagator<float> p(one_channel(version, false, Direction::out, 1, kLowPass, 0.5), 2, theta);
    p.load(Step().at(5).rows(), 5);
    CHECK(p.versions().time() && *p.versions().time() == 5);
  }
}

TEST(an_error_names_the_number_of_the_bad_row_among_many_loaded) {
  const std::vector<double> theta{0.01};
  for (const VersionSpec& version : {kAll, VersionSpec{Kind::last, 0, 10, 0}}) {
    Propagator<float> p(one_channel(version, false, Direction::out, 1, kLowPass, 0.5), 2, theta);
    std::vector<std::int64_t> src(100'000, 0), dst(100'000, 1);
    dst[90'000] = 2;
    std::string message;
    try {
      p.load({src, dst, {}, {}, {}}, {});
    } catch (const EventError& error) { message = error.what(); }
    CHECK_EQUAL(message.substr(0, message.find(' ', 4)), "row 90000");
  }
}

TEST(rounding_errors_do_not_accumulate_over_a_long_history) {
  history::Options options;
  options.columns = 2;
  options.nodes = 30;
  options.exact_weights = false;
  options.node_events = false;
  History history(options, 9);
  Started<float> p(one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5), history,
                   thresholds(2, 1e-3));
  Verdict verdict;
  for (std::size_t i = 0; i < repeats(40'000, 5000); ++i) {
    p.apply(history.next().update());
    if (i % 1000 == 0) verdict.take(measure(p, history));
  }
  expect_promises_kept(verdict);
  expect_promises_kept(measure(p, history));
  CHECK_AT_MOST(p.audit().drift[0], 0.1);
}

TEST(a_node_without_edges_or_self_loop_is_exact) {
  Settings settings = one_channel(kAll, false, Direction::out, 0, kHighPass, 0.5);
  const std::vector<double> theta{1e-3}, x{3, -5, 0};
  Started<double> p(settings, x, theta);
  const auto isolated = [&](std::int64_t node, double value) {
    double estimate = 0, residual = 1, bound = 1;
    const std::int64_t ids[] = {node};
    p.embedding(ids, {&estimate, 1});
    p.residual(ids, {&residual, 1});
    p.error_bound(ids, {&bound, 1});
    CHECK_AT_MOST(std::abs(estimate - kAlpha * value), 1e-15 * std::abs(value));
    CHECK_EQUAL(residual, 0.0);
    CHECK_AT_MOST(bound, 1e-14);
  };
  for (const std::int64_t node : {0, 1, 2}) isolated(node, x[std::size_t(node)]);
  p.apply(Step().row(0, 1, 2).update());
  isolated(2, 0);
  p.apply(Step().remove(0, 1).update());
  for (const std::int64_t node : {0, 1, 2}) isolated(node, x[std::size_t(node)]);
  Step change;
  change.feature_nodes = {2};
  change.feature_values = {7};
  p.apply(change.update());
  isolated(2, 7);
}
