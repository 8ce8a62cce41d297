// Interrupted calls, forked processes, and several propagators at once.
#include <thread>

#include "propagator_fixture.hpp"

using namespace propagator_tests;

// A graph on which every step takes a while.
template <class Real>
struct Slow : Propagator<Real> {
  explicit Slow(int threads)
      : Propagator<Real>(settings(threads), kNodes, std::vector<double>(kColumns, 1e-4)) {
    support::Random random(91);
    std::vector<double> x(kNodes * kColumns);
    for (double& value : x) value = random.between(-1, 1);
    this->set_features(0, x);
    this->read_peak();
    Step graph;
    for (std::size_t row = 0; row < 4 * kNodes; ++row) some_row(graph, random);
    this->load({graph.src, graph.dst, graph.weight, {}, {}}, {});
  }
  static void some_row(Step& step, support::Random& random) {
    step.row(std::int64_t(random.below(kNodes)), std::int64_t(random.below(kNodes)),
             random.between(0.1, 3));
  }
  static Step some_step(std::uint64_t seed) {
    support::Random random(seed);
    Step step;
    for (std::size_t row = 0; row < kNodes / 10; ++row) some_row(step, random);
    return step;
  }
  static Settings settings(int threads) {
    Settings settings = one_channel(kAll, false, Direction::out, 1, kLowPass, 0.5);
    settings.block_columns = 16;
    settings.threads = threads;
    settings.channels.push_back({0, kHighPass.gamma0, kHighPass.gamma, 0.3});
    return settings;
  }
  static constexpr std::size_t kNodes = repeats(20'000, 4000), kColumns = 32;
};

TEST(an_interrupted_and_completed_call_equals_an_uninterrupted_one) {
  Slow<float> whole(1);
  whole.start();
  const auto begun = contents(whole);
  whole.apply(Slow<float>::some_step(1).update());
  const auto expected = contents(whole);
  std::size_t interruptions = 0;
  for (const int threads : {1, 2}) {
    Slow<float> p(threads);
    for (int patience = 0; patience < 2; ++patience) {
      const auto complete = [&] {
        // Several times, later and later, then to the end.
        for (int polled = 0, more = 1; p.interrupted(); ++more) {
          ++interruptions;
          polled = 0;
          p.begin([&] { return more < 4 && polled++ >= more % 2 + patience; });
          p.complete();
        }
      };
      int polled = 0;
      p.begin([&] { return polled++ >= patience; });
      if (patience == 0)
        p.start();
      else
        p.apply(Slow<float>::some_step(1).update());
      complete();
      CHECK(contents(p) == (patience ? expected : begun));
      CHECK_AT_MOST(p.audit().residual[0], 1.0);
    }
  }
  CHECK(support::kSanitized || interruptions > 0);
}

TEST(interrupted_steps_resume_where_they_stopped) {
  constexpr std::size_t kSteps = 6;
  Slow<float> whole(1);
  whole.start();
  Step all;
  std::vector<std::int64_t> offsets{0};
  for (std::size_t s = 0; s < kSteps; ++s) {
    const Step step = Slow<float>::some_step(s);
    for (std::size_t row = 0; row < step.src.size(); ++row)
      all.row(step.src[row], step.dst[row], step.weight[row]);
    offsets.push_back(std::int64_t(all.src.size()));
    whole.apply(step.update());
  }
  for (const int threads : {1, 2}) {
    Slow<float> p(threads);
    p.start();
    std::vector<std::int64_t> counts(kSteps);
    Rejection rejection;
    std::size_t calls = 0;
    for (std::size_t done = 0; done < kSteps; ++calls) {
      p.begin([&] { return true; });
      done += p.apply_steps(all.rows(), std::span(offsets).subspan(done),
                            std::span(counts).subspan(done), rejection);
      p.begin({});
      p.complete();
      CHECK(rejection.empty());
      if (calls > 10 * kSteps) break;
    }
    CHECK(support::kSanitized || calls > 1);
    CHECK(contents(p) == contents(whole));
  }
}

TEST(a_forked_child_computes_the_bits_of_its_parent) {
  if (!support::kForks) {
    std::printf(
        "skipped under the thread sanitizer, which forbids threads after fork: forked "
        "propagators\n");
    return;
  }
  const history::Options options = busy_options(false);
  History history(options, 71);
  Started<float> p(many_channels(false, 2), history, thresholds(options.columns, 0.02));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) p.apply(history.next().update());
    std::vector<Step> rest;
    for (int i = 0; i < 20; ++i) rest.push_back(history.next());
    const auto finish = [&] {
      support::Digest digest;
      for (const Step& step : rest) {
        p.apply(step.update());
        const std::uint64_t value = Reading<float>(p).digest();
        digest.put<std::uint64_t>({&value, 1});
      }
      return digest.value();
    };
    support::Child child(finish);
    const std::uint64_t expected = finish();
    std::uint64_t value = 0;
    CHECK(child.finish(value));
    CHECK_EQUAL(value, expected);
  }
}

TEST(two_propagators_can_work_at_once) {
  const int steps = int(repeats(60, 25));
  const auto alone_one = run<float>(many_channels(false, 1), busy_options(false), 81, steps);
  const auto alone_two = run<double>(many_channels(true, 1), busy_options(true), 82, steps);
  std::vector<Reading<float>> one;
  std::vector<Reading<double>> two;
  std::thread first(
      [&] { one = run<float>(many_channels(false, 2), busy_options(false), 81, steps); });
  std::thread second(
      [&] { two = run<double>(many_channels(true, 2), busy_options(true), 82, steps); });
  first.join();
  second.join();
  CHECK(one == alone_one);
  CHECK(two == alone_two);
}
