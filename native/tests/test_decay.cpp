// Weights that halve with every half-life.
#include "versions_fixture.hpp"

using namespace versions_tests;

TEST(weights_halve_per_half_life_but_not_those_of_the_user) {
  Versions versions = make(2, false, 1, {decay(10, 16)});
  apply(versions, Step().row(0, 1, 8).at(1000));
  apply(versions, Step().at(1010));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 4.0);
  CHECK_EQUAL(versions.loop(0, 0), 1.0);  // as at every boundary
  CHECK_EQUAL(versions.views()[0].degree(0) / versions.present(0), 5.0);
  apply(versions, Step().row(0, 1, 1).at(1020));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 3.0);
  CHECK_EQUAL(versions.loop(0, 1), 1.0);
  apply(versions,
        Step().remove(0, 1, 4.5).at(1030));  // half of the user's nine, half of what is left
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.75);
  CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 4.5);
  apply(versions, Step().set(0, 1, 7).at(1035));
  CHECK_AT_MOST(std::abs(weight(versions, 0, {0, 1}) - 7), 7 * 0x1p-51);
}

TEST(without_self_loops_an_edge_is_dropped_at_the_first_boundary_where_it_is_negligible) {
  Versions versions = make(2, false, 0, {decay(10, 8)});
  apply(versions, Step().row(0, 1, 1).at(0));
  apply(versions, Step().at(80));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0x1p-8);  // not below the floor
  apply(versions, Step().at(89));
  CHECK(weight(versions, 0, {0, 1}) > 0);  // below it, but no boundary
  apply(versions, Step().at(90));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK_EQUAL(versions.views()[0].degree(0), 0.0);
  CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 1.0);
  apply(versions, Step().remove(0, 1, 0.5).at(91));  // of something forgotten
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  apply(versions, Step().row(0, 1, 2).at(92));
  CHECK(std::abs(weight(versions, 0, {0, 1}) - 2) < 1e-14);
}

TEST(without_self_loops_the_lightest_weight_so_far_decides_what_is_negligible) {
  Versions versions = make(4, false, 0, {decay(10, 8)});
  CHECK_EQUAL(versions.lightest(), 1.0);
  apply(versions, Step().row(0, 1, 16).row(1, 2, 1).at(0));
  apply(versions, Step().remove(0, 1, 15.75).row(2, 3, 8).at(0));
  CHECK_EQUAL(versions.lightest(), 0.25);
  apply(versions, Step().at(80));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0x1p-10);
  apply(versions, Step().at(90));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK_EQUAL(weight(versions, 0, {1, 2}), 0x1p-9);
  apply(versions, Step().at(130));
  CHECK_EQUAL(weight(versions, 0, {1, 2}), 0.0);
  CHECK_EQUAL(weight(versions, 0, {2, 3}), 0x1p-10);
  // A row that leaves next to nothing forgets the edge at once.
  apply(versions, Step().remove(2, 3, 7).at(130));
  CHECK_EQUAL(weight(versions, 0, {2, 3}), 0.0);
  CHECK_EQUAL(weight(versions, std::nullopt, {2, 3}), 1.0);
}

TEST(with_self_loops_an_edge_fades_until_it_is_far_below_them) {
  Versions versions = make(3, false, 4, {decay(10, 8)});
  apply(versions, Step().row(0, 1, 1).row(1, 2, 1).at(0));
  for (std::int64_t half_lives = 1; half_lives < 80; ++half_lives) {
    apply(versions, Step().at(10 * half_lives));
    const double found = weight(versions, 0, {0, 1}), right = std::exp2(-double(half_lives));
    CHECK(found == right || (found == 0 && 2 * right <= versions.forgotten(0)));
    CHECK_EQUAL(versions.views()[0].degree(1), 4 + 2 * found);
  }
  CHECK_EQUAL(versions.forgotten(0), 4 * kForgotten);
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK(!versions.rescaled(0).empty() || versions.views()[0].degree(0) == 4);
  apply(versions, Step().at(1000));
  CHECK(versions.rescaled(0).empty());
}

TEST(all_self_loops_are_renewed_at_every_boundary_and_by_rows_between_them) {
  Versions versions = make(3, false, 4, {decay(10, 8)});
  apply(versions, Step().row(0, 1, 1).at(0));
  apply(versions, Step().row(0, 0, 1).at(5));
  const double half = 4 * std::exp2(-0.5);
  const auto near = [&](double a, double b) { return std::abs(a - b) <= b * 0x1p-51; };
  CHECK(near(versions.loop(0, 0), 4.0));
  CHECK(near(versions.loop(0, 1), half));
  CHECK(near(versions.loop(0, 2), half));
  apply(versions, Step().at(10));
  for (const Node node : {0, 1, 2}) CHECK_EQUAL(versions.loop(0, node), 4.0);
  apply(versions, Step().at(15));
  for (const Node node : {0, 1, 2}) CHECK(near(versions.loop(0, node), half));
  apply(versions, Step().at(181 + 90 * 1000));
  for (const Node node : {0, 1, 2}) {
    CHECK(near(versions.loop(0, node), 4 * std::exp2(-0.1)));
    CHECK(near(versions.views()[0].degree(node) / versions.present(0), versions.loop(0, node)));
  }
}

TEST(an_endless_decaying_stream_keeps_a_bounded_graph_and_finite_numbers) {
  for (const double self_loop : {1.0, 0.0}) {
    Versions versions = make(40, false, self_loop, {decay(5, 16)});
    Random random(2);
    std::size_t most = 0;
    for (std::int64_t i = 0; i < std::int64_t(repeats(20'000, 4000)); ++i) {
      const std::int64_t t = 3 * i;
      apply(versions,
            Step().row(std::int64_t(random.below(40)), std::int64_t(random.below(40))).at(t));
      most = std::max(most, edges(versions, 0).size());
      for (Node node = 0; node < 40; ++node) {
        const double degree = versions.views()[0].degree(node);
        CHECK(degree == 0 ? self_loop == 0 : degree >= 0x1p-16 && degree < 0x1p10);
      }
    }
    // Events of so many half-lives: at most 41 entries are in a row.
    const std::size_t lasting = self_loop > 0 ? 54 + 7 + 1 : 17;
    CHECK_AT_MOST(most, lasting * 5 / 3 + 10);
  }
}

TEST(a_heavy_edge_outlives_a_long_pause) {
  Versions in_one = make(3, false, 1, {decay(1, 24)}), in_two = make(3, false, 1, {decay(1, 24)});
  for (Versions* versions : {&in_one, &in_two}) apply(*versions, Step().row(0, 1, 0x1p20).at(0));
  apply(in_one, Step().at(40));
  apply(in_two, Step().at(20));
  apply(in_two, Step().at(40));
  CHECK_EQUAL(weight(in_two, 0, {0, 1}), 0x1p-20);
  CHECK_EQUAL(weight(in_one, 0, {0, 1}), 0x1p-20);
}

TEST(nothing_returns_after_more_half_lives_than_32_bits_count) {
  for (const int bits : {31, 32, 33, 40}) {
    Versions versions = make(3, false, 1, {decay(1, 16)});
    apply(versions, Step().row(0, 1, 1).row(1, 2, 1).at(0));
    apply(versions, Step().row(0, 1, 1).at(std::int64_t(1) << bits));
    CHECK_EQUAL(weight(versions, 0, {0, 1}), 1.0);
    CHECK_EQUAL(weight(versions, 0, {1, 2}), 0.0);
    CHECK_EQUAL(versions.loop(0, 0), 1.0);
    CHECK_EQUAL(versions.views()[0].degree(0) / versions.present(0), 2.0);
  }
}

TEST(weights_far_from_the_start_are_exact_to_the_last_digit) {
  for (const double half_life : {3.0, 2.5, 1024.0}) {
    const std::int64_t far = std::int64_t(std::ldexp(half_life, 40));
    Versions near = make(6, true, 1, {decay(half_life, 16)}),
             distant = make(6, true, 1, {decay(half_life, 16)});
    for (Versions* versions : {&near, &distant}) apply(*versions, Step().row(0, 1, 0.1).at(-7));
    apply(near, Step().at(std::int64_t(std::ldexp(half_life, 7)) - 7));
    apply(distant, Step().at(far - 7));
    const std::int64_t begin = *near.time();
    Random random(40);
    std::int64_t passed = 0;
    for (int i = 0; i < 200; ++i) {
      passed += std::int64_t(random.below(std::uint64_t(2 * half_life)));
      const std::int64_t src = std::int64_t(random.below(6)), dst = std::int64_t(random.below(6));
      const double w = random.between(0.1, 2);
      apply(near, Step().set(src, dst, w).at(begin + passed));
      apply(distant, Step().set(src, dst, w).at(far - 7 + passed));
      CHECK(edges(near, 0) == edges(distant, 0));
      CHECK_EQUAL(near.present(0), distant.present(0));
      for (std::size_t v = 0; v < 3; ++v)
        CHECK(near.views()[v].degrees() == distant.views()[v].degrees());
    }
  }
}

TEST(too_many_half_lives_to_distinguish_are_rejected) {
  Versions versions = make(3, false, 1, {decay(1, 16)});
  apply(versions, Step().row(0, 1, 1).at(0));
  const auto before = contents(versions);
  CHECK(rejects(versions, Step().row(0, 1, 1).at((std::int64_t(1) << 52) + 1)));
  CHECK(contents(versions) == before);
  apply(versions, Step().row(0, 1, 3).at(std::int64_t(1) << 52));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 3.0);
}
