// The same bits: on any number of threads, in one call or many, after saving, after a rejection.
#include "propagator_fixture.hpp"

using namespace propagator_tests;

TEST(results_do_not_depend_on_the_number_of_threads) {
  for (const bool directed : {false, true}) {
    const int steps = int(repeats(60, 20));
    const auto alone = run<float>(many_channels(directed, 1), busy_options(directed), 21, steps);
    const auto twice = run<double>(many_channels(directed, 1), busy_options(directed), 21, steps);
    for (const int threads : {2, 3, 4}) {
      CHECK(run<float>(many_channels(directed, threads), busy_options(directed), 21, steps) ==
            alone);
      CHECK(run<double>(many_channels(directed, threads), busy_options(directed), 21, steps) ==
            twice);
    }
  }
}

TEST(steps_in_one_call_equal_steps_one_by_one) {
  history::Options options = busy_options(false);
  options.node_events = false;
  History history(options, 31);
  const Settings settings = many_channels(false, 2);
  const std::vector<double> theta = thresholds(options.columns, 0.02);
  Started<float> single(settings, history, theta), joint(settings, history, theta);
  for (int round = 0; round < 4; ++round) {
    const Stream stream = stream_through(single, history, 30);
    std::vector<std::int64_t> counts(stream.steps());
    Rejection rejection;
    CHECK_EQUAL(joint.apply_steps(stream.rows(), stream.offsets, counts, rejection), counts.size());
    CHECK(counts == stream.touched);
    Reading<float> a(single), b(joint);
    std::sort(b.touched.begin(), b.touched.end());
    CHECK(a == b);
  }
  CHECK(contents(single) == contents(joint));
}

TEST(a_long_stream_gives_the_same_bytes_on_any_number_of_threads) {
  for (const bool directed : {false, true}) {
    history::Options options = busy_options(directed);
    options.node_events = false;
    options.columns = 11;
    options.nodes = 12;
    History history(options, 32);
    const std::vector<double> theta = thresholds(options.columns, 1e-4),
                              x = history.flat_features();
    Started<float> single(many_channels(directed, 1), x, theta);
    const Stream stream = stream_through(single, history, repeats(1100, 300));
    CHECK(support::kSanitized || single.statistics().rewrites > 0);
    const auto bytes = contents(single);
    const std::size_t graph_bytes = single.statistics().graph_bytes;
    const Step next = Step().set(0, 1, 2).at(history.now() + 3);
    single.apply(next.update());
    const Reading<float> afterwards(single);
    for (const int threads : {1, 2, 5}) {
      Started<float> joint(many_channels(directed, threads), x, theta);
      std::vector<std::int64_t> counts(stream.steps());
      Rejection rejection;
      const std::size_t done = joint.apply_steps(stream.rows(), stream.offsets, counts, rejection);
      CHECK_EQUAL(done, stream.steps());
      CHECK(counts == stream.touched);
      CHECK(contents(joint) == bytes);
      CHECK_EQUAL(joint.statistics().graph_bytes, graph_bytes);
      joint.apply(next.update());
      CHECK(Reading<float>(joint) == afterwards);
    }
  }
}

TEST(a_rejected_step_leaves_the_earlier_ones_applied) {
  const std::vector<double> theta{1e-3}, x{1, 2, 3};
  const Settings settings = one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5);
  Started<float> p(settings, x, theta), same(settings, x, theta);
  const Step steps = Step().row(0, 1).row(1, 2).row(0, 2).remove(1, 1).row(0, 1);
  const std::vector<std::int64_t> offsets{0, 1, 2, 4, 5};
  std::vector<std::int64_t> counts(4, -1);
  Rejection rejection;
  CHECK_EQUAL(p.apply_steps(steps.rows(), offsets, counts, rejection), 2);
  CHECK(!rejection.empty());
  CHECK(counts[1] > 0);
  CHECK_EQUAL(counts[2], -1);
  same.apply(Step().row(0, 1).update());
  same.apply(Step().row(1, 2).update());
  CHECK(contents(p) == contents(same));
}

// Columns of different reach: blocks touch so many nodes, and not equally many, that those on
// different threads do not arrive at the rejected step together.
TEST(a_rejection_late_in_a_long_stream_ends_all_threads_at_the_same_step) {
  history::Options options;
  options.timed = true;
  options.node_events = false;
  options.columns = 32;
  options.nodes = 300;
  History history(options, 33);
  std::vector<double> theta = thresholds(options.columns, 1e-5);
  for (std::size_t c = 0; c < theta.size(); ++c) theta[c] *= c < 8 ? 1 : 100;
  Settings settings = one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5);
  settings.block_columns = 8;
  const std::vector<double> x = history.flat_features();
  Started<float> single(settings, x, theta);
  Stream stream = stream_through(single, history, repeats(1300, 400));
  std::int64_t touched = 0;
  for (const std::int64_t count : stream.touched) touched += count;
  CHECK_AT_MOST(1 << 16, touched);
  stream.all.row(0, 300).row(0, 1).at(history.now());
  const std::int64_t rows = std::int64_t(stream.all.src.size());
  stream.offsets.insert(stream.offsets.end(), {rows - 1, rows});
  for (const int threads : {1, 2, 4}) {
    settings.threads = threads;
    Started<float> joint(settings, x, theta);
    std::vector<std::int64_t> counts(stream.steps(), -1);
    Rejection rejection;
    CHECK_EQUAL(joint.apply_steps(stream.rows(), stream.offsets, counts, rejection),
                stream.touched.size());
    CHECK(rejection.reason.find("node 300") != std::string::npos);
    CHECK(std::equal(stream.touched.begin(), stream.touched.end(), counts.begin()));
    CHECK_EQUAL(counts[stream.touched.size()], -1);
    CHECK(contents(joint) == contents(single));
  }
}

TEST(a_rejected_update_changes_nothing) {
  History history(busy_options(true), 41);
  Started<float> p(many_channels(true, 1), history, thresholds(35, 0.02));
  for (int i = 0; i < 30; ++i) p.apply(history.next().update());
  const auto before = contents(p);
  const std::int64_t now = *p.versions().time(), nodes = std::int64_t(p.nodes());
  std::vector<Step> bad;
  bad.push_back(Step().row(0, nodes).at(now));
  bad.push_back(Step().row(0, 1).at(now - 1));
  bad.push_back(Step().row(0, 1));
  bad.push_back(Step().at(now));
  bad.back().feature_nodes = {nodes};
  bad.back().feature_values.resize(35);
  bad.push_back(Step().at(now));
  bad.back().removed_nodes = {nodes + 1};
  bad.back().new_nodes = 1;
  bad.back().new_features.resize(35);
  // Good in everything but its last row.
  bad.push_back(Step().row(0, nodes).row(1, nodes + 1).at(now + 5));
  bad.back().new_nodes = 1;
  bad.back().new_features.resize(35);
  bad.back().feature_nodes = {0};
  bad.back().feature_values.resize(35);
  std::size_t accepted = 0;
  for (const Step& step : bad) accepted += !rejects([&] { p.apply(step.update()); });
  CHECK_EQUAL(accepted, 0);
  CHECK(contents(p) == before);
}

TEST(a_propagator_read_back_continues_to_the_bit) {
  for (const bool directed : {false, true}) {
    const auto round_trip = [&]<class Real>(Real) {
      const history::Options options = busy_options(directed);
      History history(options, 51);
      const std::vector<double> theta = thresholds(options.columns, 0.02);
      const Settings settings = many_channels(directed, 2);
      Started<Real> p(settings, history, theta);
      for (int round = 0; round < int(repeats(6, 3)); ++round) {
        for (int i = 0; i < 10; ++i) p.apply(history.next().update());
        if (round == 2) p.refine(0.9);
        support::MemoryArchive archive;
        p.archive(archive);
        archive.begin_reading();
        Propagator<Real> copy(settings, p.nodes(), theta);
        copy.archive(archive);
        CHECK(contents(copy) == archive.arrays);
        Reading<Real> one(p), other(copy);
        other.touched = one.touched;
        CHECK(one == other);
        for (int i = 0; i < 10; ++i) {
          const Step step = history.next();
          p.apply(step.update());
          copy.apply(step.update());
          CHECK(Reading<Real>(p) == Reading<Real>(copy));
        }
        CHECK(contents(p) == contents(copy));
      }
    };
    round_trip(float());
    round_trip(double());
  }
}

TEST(an_archive_of_another_propagator_is_rejected) {
  const history::Options options = busy_options(false);
  History history(options, 52);
  const std::vector<double> theta = thresholds(options.columns, 0.02);
  Started<float> p(many_channels(false, 1), history, theta);
  support::MemoryArchive archive;
  p.archive(archive);
  archive.begin_reading();
  const auto rejected = [&](auto&& other) {
    try {
      other.archive(archive);
    } catch (const tidegraph::ArchiveError&) { return true; }
    return false;
  };
  CHECK(!rejected(Propagator<float>(many_channels(false, 1), p.nodes(), theta)));
  CHECK(rejected(Propagator<double>(many_channels(false, 1), p.nodes(), theta)));
  CHECK(rejected(Propagator<float>(many_channels(true, 1), p.nodes(), theta)));
  CHECK(rejected(Propagator<float>(many_channels(false, 1), p.nodes() + 1, theta)));
  const auto whole = archive.arrays;
  std::size_t accepted = 0;
  for (const auto& [name, array] : whole) {
    archive.arrays = whole;
    archive.arrays.erase(name);
    accepted += !rejected(Propagator<float>(many_channels(false, 1), p.nodes(), theta));
  }
  CHECK_EQUAL(accepted, 0);
}

TEST(time_that_passes_in_small_steps_changes_no_result) {
  const history::Options options = busy_options(false);
  History history(options, 61);
  Settings settings = many_channels(false, 1);
  const std::vector<double> theta = thresholds(options.columns, 1e-6);
  Started<double> plain(settings, history, theta), ticking(settings, history, theta);
  double worst = 0;
  std::optional<std::int64_t> now;
  for (int i = 0; i < 80; ++i) {
    const Step step = history.next();
    const std::int64_t first = step.t.empty() ? *step.end : step.t.front();
    for (std::int64_t t = now ? *now : first; t < first; ++t) ticking.apply(Step().at(t).update());
    plain.apply(step.update());
    ticking.apply(step.update());
    now = *step.end;
    const Reading<double> a(plain), b(ticking);
    for (std::size_t e = 0; e < a.embedding.size(); ++e)
      worst = std::max(worst, ratio(std::abs(a.embedding[e] - b.embedding[e]), a.promise[e]));
  }
  // Both are within the promise.
  CHECK_AT_MOST(worst, 2.0);
  expect_promises_kept(measure(ticking, history));
}
