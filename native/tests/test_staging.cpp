// Rows that are rejected, and what rows do to single weights.
#include "versions_fixture.hpp"

using namespace versions_tests;

TEST(invalid_rows_are_rejected_and_change_nothing) {
  for (const bool directed : {false, true}) {
    Versions versions = make(5, directed, 1, {kAll, window(10), last(4), decay(8, 16)});
    apply(versions, Step().row(0, 1, 2).row(1, 2, 3).row(2, 2, 1).at(50));
    Step removal;
    removal.removed_nodes = {4};
    apply(versions, removal.at(60));
    const auto before = contents(versions);
    std::vector<Step> bad;
    const auto step = [&]() -> Step& {
      return bad.emplace_back().row(0, 1, 1).at(61);
    };  // a good row first
    step().row(0, 5).at(61);
    step().row(-1, 0).at(61);
    step().row(0, std::int64_t(1) << 40).at(61);
    step().row(4, 0).at(61);
    step().row(0, 4).at(61);
    step().remove(0, 3).at(61);
    step().remove(0, 1, 3.1).at(61);  // of three, with the row before
    step().remove(0, 1).remove(0, 1).at(61);
    step().row(1, 2, 0x1.ffp-65).at(61);
    step().row(1, 2, 0x1.01p64).at(61);
    step().row(1, 2, 0x1p63).row(1, 2, 0x1.1p63).at(61);
    step().set(1, 2, 0x1.01p64).at(61);
    step().set(1, 2, 1e-60).at(61);
    step().row(1, 2, std::nan("")).at(61);
    step().removed_nodes = {5};
    step().removed_nodes = {-1};
    step().removed_nodes = {4};
    bad.push_back(Step().row(0, 1).at(59));
    bad.push_back(Step().at(59));
    bad.push_back(Step().row(0, 1));  // no time
    if (directed) step().remove(1, 0).at(61);
    std::size_t accepted = 0;
    for (const Step& rejected : bad) accepted += !rejects(versions, rejected);
    CHECK_EQUAL(accepted, 0);
    CHECK(contents(versions) == before);
    // And what comes next does not see them.
    Step good = Step().row(0, 1, 1).at(61);
    apply(versions, good);
    CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 3.0);
    CHECK_EQUAL(versions.views()[0].degree(0), 4.0);
    Step grown = Step().row(5, 6, 1).at(62);
    CHECK(rejects(versions, grown));
    grown.new_nodes = 1;
    CHECK(rejects(versions, grown));
    grown.new_nodes = 2;
    apply(versions, grown);
    CHECK_EQUAL(versions.nodes(), 7);
  }
}

TEST(a_rejected_first_step_does_not_set_the_clock) {
  Versions versions = make(3, false, 1, {decay(10, 16)});
  CHECK(rejects(versions, Step().remove(0, 1).at(12345)));
  CHECK(!versions.time());
  apply(versions, Step().row(0, 1, 1).at(7));
  apply(versions, Step().at(17));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.5);
  CHECK_EQUAL(*versions.time(), 17);
}

TEST(removing_the_weight_up_to_rounding_removes_the_edge) {
  Versions versions = make(2, false, 1, {kAll});
  for (const double share : {1 - 0x1p-33, 1.0, 1 + 0.5e-6}) {
    apply(versions, Step().row(0, 1, 0.3));
    apply(versions, Step().remove(1, 0, 0.3 * share));
    CHECK_EQUAL(versions.edges(), 0);
    CHECK_EQUAL(versions.views()[0].degree(0), 1.0);
  }
  apply(versions, Step().row(0, 1, 0.3));
  CHECK(rejects(versions, Step().remove(0, 1, 0.3 * (1 + 3e-6))));
  const double most = 0.3 * (1 - 0x1p-30);
  apply(versions, Step().remove(0, 1, most));
  CHECK_EQUAL(versions.edges(), 1);
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.3 - most);
}

TEST(what_is_left_of_a_weight_is_exact) {
  for (const bool directed : {false, true}) {
    Versions versions = make(3, directed, 1, {kAll, window(100), last(100)});
    apply(versions, Step().row(0, 1, 1e6 + 0.5).row(1, 1, 1e6 + 0.125).at(0));
    apply(versions, Step().remove(0, 1, 1e6).remove(1, 1, 1e6).at(1));
    for (const std::size_t v : {0, 1, 2}) {
      CHECK_EQUAL(weight(versions, v, {0, 1}), 0.5);
      CHECK_EQUAL(weight(versions, v, {1, 1}), 0.125);
    }
    for (const View& view : versions.views())
      CHECK_EQUAL(view.degree(1), 1 + view.self_edges() * 0.125 +
                                      (view.direction() == Direction::out && directed ? 0 : 0.5));
  }
}

TEST(two_hundred_thousand_tenths_add_up_as_in_float64) {
  Versions one_by_one = make(2, false, 1, {kAll, window(10)}), at_once = make(2, false, 1, {kAll});
  Step all;
  double sum = 0;
  for (int i = 0; i < 200'000; ++i) {
    apply(one_by_one, Step().row(0, 1, 0.1).at(0));
    all.row(0, 1, 0.1);
    sum += 0.1;
  }
  apply(at_once, all.at(0));
  CHECK_EQUAL(weight(one_by_one, 0, {0, 1}), sum);
  CHECK_EQUAL(weight(at_once, 0, {0, 1}), sum);
  CHECK_EQUAL(one_by_one.views()[0].degree(1), 1 + sum);
  // A window knows its parts, and loses nothing.
  CHECK_EQUAL(weight(one_by_one, 1, {0, 1}), double(200'000 * (long double)(0.1)));
  apply(one_by_one, Step().remove(0, 1, sum - 0.1).at(1));
  CHECK_EQUAL(weight(one_by_one, 0, {0, 1}), sum - (sum - 0.1));
  CHECK_EQUAL(weight(one_by_one, 1, {0, 1}), sum - (sum - 0.1));
}

TEST(without_self_loops_a_lighter_edge_than_accepted_is_rejected_and_changes_nothing) {
  Versions versions = make(3, false, 0, {kAll}), with_loops = make(3, false, 1, {kAll});
  for (Versions* each : {&versions, &with_loops}) {
    each->set_lightest_accepted(1e-3);
    apply(*each, Step().row(0, 1, 1));
  }
  const auto before = contents(versions);
  const auto imprecise = [](Versions& of, const Step& step) {
    try {
      of.check(step.rows(), 0, {}, {});
    } catch (const tidegraph::PrecisionError&) { return true; }
    return false;
  };
  for (const Step& light : {Step().row(1, 2, 1).row(0, 2, 0.9e-3), Step().set(0, 1, 1e-6),
                            Step().remove(0, 1, 1 - 1e-4)}) {
    CHECK(imprecise(versions, light));
    CHECK(!imprecise(with_loops, light));
  }
  CHECK(contents(versions) == before);
  apply(versions, Step().row(0, 2, 1e-3));
  CHECK_EQUAL(versions.lightest(), 1e-3);
  apply(versions, Step().remove(0, 2));
  CHECK_EQUAL(versions.lightest(), 1e-3);  // so far
}

TEST(rows_without_columns_add_ones_and_remove_whole_edges) {
  Versions versions = make(3, false, 1, {kAll, last(10)});
  const std::vector<std::int64_t> src{0, 0, 1}, dst{1, 1, 2};
  const std::vector<std::uint8_t> ops{1, 1, 1};
  versions.check({src, dst, {}, {}, {}}, 0, {}, {});
  versions.pass_time({});
  versions.change({src, dst, {}, {}, {}}, 0, {});
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  CHECK_EQUAL(weight(versions, 1, {0, 1}), 2.0);
  const tidegraph::Rows removal = tidegraph::Rows{src, dst, {}, ops, {}}.slice(1, 3);
  versions.check(removal, 0, {}, {});
  versions.pass_time({});
  versions.change(removal, 0, {});
  CHECK_EQUAL(versions.edges(), 0);
  CHECK(edges(versions, 1).empty());
}
