// What the precision can hold, and nodes at the edge of it: removed, isolated, faded.
#include "propagator_fixture.hpp"

using namespace propagator_tests;

TEST(a_feature_beyond_the_precision_is_rejected_and_one_within_it_is_propagated) {
  std::size_t rejected = 0, taken = 0;
  for (const double theta : {1e-3, 1e-1, 1.0, 3.0, 10.0, 100.0}) {
    for (const bool directed : {false, true}) {
      const std::vector<double> thresholds{theta}, x{1, 0, 2, 0, 3};
      Started<float> p(one_channel(kAll, directed, Direction::out, 1, kLowPass, 0.5), x,
                       thresholds);
      p.apply(Step().row(0, 1).row(1, 2).row(2, 3).row(3, 4).row(4, 0).row(0, 2).update());
      const auto before = contents(p);
      Step change;
      change.feature_nodes = {2};
      change.feature_values = {1e6};
      if (imprecise([&] { p.apply(change.update()); })) {
        ++rejected;
        CHECK(contents(p) == before);
        CHECK(p.finest_tolerance(1e6 / theta) > 1);
      } else {
        ++taken;
        CHECK_AT_MOST(p.finest_tolerance(), 1.0);
      }
      // Either way the next step works.
      p.apply(Step().remove(0, 1).row(1, 4, 0.1).update());
      const auto audit = p.audit();
      CHECK_AT_MOST(audit.residual[0], 1.0);
      CHECK_EQUAL(audit.untracked[0], 0.0);
      CHECK_EQUAL(p.statistics().stalled, 0);
      const Reading<float> reading(p);
      for (std::size_t i = 0; i < x.size(); ++i)
        CHECK_AT_MOST(reading.bound[i], reading.promise[i]);
    }
  }
  CHECK(rejected > 2 && taken > 2);
}

TEST(without_self_loops_a_light_edge_and_a_large_feature_are_rejected_together) {
  const std::vector<double> theta{1e-3}, x{1, -1, 0.5};
  Started<float> p(one_channel(kAll, false, Direction::out, 0, kLowPass, 0.5), x, theta);
  p.apply(Step().row(0, 1).row(1, 2).update());
  const auto before = contents(p);
  CHECK(imprecise([&] { p.apply(Step().row(0, 2, 1e-7).update()); }));
  CHECK(imprecise([&] { p.apply(Step().row(0, 2).remove(0, 1, 1 - 1e-7).update()); }));
  Step large;  // the feature alone or the edge alone would be accepted
  large.feature_nodes = {0};
  large.feature_values = {20};
  large.row(0, 2, 1e-4);
  CHECK(imprecise([&] { p.apply(large.update()); }));
  CHECK(contents(p) == before);
  Rejection rejection;
  std::vector<std::int64_t> counts(2);
  const Step steps = Step().row(0, 2, 0.5).row(0, 2, 1e-7);
  const std::vector<std::int64_t> offsets{0, 1, 2};
  CHECK_EQUAL(p.apply_steps(steps.rows(), offsets, counts, rejection), 1);
  CHECK(!rejection.empty() && rejection.of_precision);
  Rejection other;
  const Step bad = Step().row(0, 3);
  CHECK_EQUAL(p.apply_steps(bad.rows(), std::span(offsets).first(2), counts, other), 0);
  CHECK(!other.empty() && !other.of_precision);
  p.apply(Step().row(0, 2, 1e-4).update());
  large = {};
  large.feature_nodes = {0};
  large.feature_values = {20};
  const auto after = contents(p);
  CHECK(imprecise([&] { p.apply(large.update()); }));
  CHECK(contents(p) == after);
  large.feature_values = {1.5};
  p.apply(large.update());
  CHECK_AT_MOST(p.audit().residual[0], 1.0);
}

TEST(a_node_whose_features_change_as_it_is_removed_leaves_nothing_to_push) {
  const std::vector<double> theta{1e-3}, x{1, 2, 3};
  Started<float> p(one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5), x, theta);
  p.apply(Step().row(0, 1).row(1, 2).update());
  Step removal;
  removal.feature_nodes = {1};
  removal.feature_values = {7};
  removal.removed_nodes = {1};
  p.apply(removal.update());
  CHECK_EQUAL(p.statistics().stalled, 0);
  CHECK_EQUAL(Reading<float>(p).embedding[1], 0.0f);
}

TEST(a_removed_node_stays_zero) {
  for (const VersionSpec& version :
       {kAll, VersionSpec{Kind::decay, 5, 0, 8}, VersionSpec{Kind::window, 0, 20, 0}}) {
    const std::vector<double> theta{1e-4}, x{1, 2, 3, 4};
    Started<float> p(one_channel(version, false, Direction::out, 1, kLowPass, 0.5), x, theta);
    p.apply(Step().row(0, 1).row(1, 2).row(1, 1).row(2, 3).at(0).update());
    Step removal;
    removal.removed_nodes = {1};
    p.apply(removal.at(1).update());
    for (std::int64_t t = 2; t < 100; t += 7) {
      p.apply(Step().row(2, 3).at(t).update());
      const Reading<float> reading(p);
      CHECK_EQUAL(reading.embedding[1], 0.0f);
      CHECK_EQUAL(reading.residual[1], 0.0f);
    }
    CHECK(rejects([&] { p.apply(Step().row(1, 2).at(100).update()); }));
    Step change;
    change.feature_nodes = {1};
    change.feature_values = {1};
    CHECK(rejects([&] { p.apply(change.at(100).update()); }));
  }
}

// A long pause drops all edges, so that the estimate of a node without features falls to zero.
TEST(nodes_that_move_in_a_long_pause_are_touched) {
  const std::vector<double> theta{1e-3}, x{1, 0, 0};
  Started<float> p(one_channel({Kind::decay, 1, 0, 16}, false, Direction::out, 1, kLowPass, 0.5), x,
                   theta);
  p.apply(Step().row(0, 1).at(0).update());
  const Reading<float> before(p);
  CHECK(before.embedding[1] > 0);
  p.apply(Step().at(1000).update());
  const Reading<float> after(p);
  CHECK(after.embedding[1] != before.embedding[1]);
  CHECK_AT_MOST(std::abs(double(after.embedding[1])), after.promise[1]);
  CHECK(std::count(after.touched.begin(), after.touched.end(), Node(1)) == 1);
}
