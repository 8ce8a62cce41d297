// Memory that runs out in the middle of a call: the state stays as it was, or every later use of
// the propagator says that it is incomplete.
#include <memory>
#include <new>

#include "failing_memory.hpp"
#include "propagator_fixture.hpp"

using namespace propagator_tests;

namespace {

bool is_broken(const std::function<void()>& work) {
  try {
    work();
  } catch (const tidegraph::BrokenError&) { return true; }
  return false;
}

struct Outcomes {
  std::size_t intact = 0, broken = 0;
};

// Lets each of many allocations of act(p) fail, on a new propagator each time.
template <class Make, class Act>
Outcomes fail_at_every_allocation(Make make, Act act) {
  auto whole = make();
  const auto before = contents(*whole);
  act(*whole);
  const auto after = contents(*whole);
  Outcomes outcomes;
  for (long number = 0;; number += 1 + number / long(repeats(16, 4))) {
    auto p = make();
    bool threw = false, failed = false;
    {
      const support::FailingMemory memory(number);
      try {
        act(*p);
      } catch (const std::bad_alloc&) { threw = true; }
      failed = memory.failed();
    }
    if (!failed) return outcomes;
    if (threw && is_broken([&] { p->complete(); })) {
      ++outcomes.broken;
      std::vector<std::int64_t> nodes{0};
      std::vector<float> row(p->channels() * p->columns());
      std::vector<double> degrees(p->channels());
      CHECK(is_broken([&] { contents(*p); }));
      CHECK(is_broken([&] { act(*p); }));
      CHECK(is_broken([&] { p->embedding(nodes, row); }));
      CHECK(is_broken([&] { p->degree(nodes, degrees); }));
      CHECK(is_broken([&] { p->versions(); }));
      continue;
    }
    if (threw) {
      ++outcomes.intact;
      CHECK(contents(*p) == before);
      act(*p);
    }
    CHECK(contents(*p) == after);
  }
}

}  // namespace

TEST(a_failed_allocation_in_many_steps_changes_nothing_or_is_reported_ever_after) {
  history::Options options = busy_options(false);
  options.node_events = false;
  options.columns = 11;
  options.nodes = 12;
  History history(options, 93);
  const std::vector<double> theta = thresholds(options.columns, 1e-2), x = history.flat_features();
  Started<float> single(many_channels(false, 1), x, theta);
  const Stream stream = stream_through(single, history, 200);
  for (const int threads : {1, 2}) {
    const Outcomes outcomes = fail_at_every_allocation(
        [&] { return std::make_unique<Started<float>>(many_channels(false, threads), x, theta); },
        [&](Propagator<float>& p) {
          std::vector<std::int64_t> counts(stream.steps());
          Rejection rejection;
          CHECK_EQUAL(p.apply_steps(stream.rows(), stream.offsets, counts, rejection),
                      stream.steps());
        });
    CHECK(outcomes.intact > 0 && outcomes.broken > 0);
  }
}

TEST(a_failed_allocation_in_an_update_changes_nothing_or_is_reported_ever_after) {
  const history::Options options = busy_options(true);
  const History history(options, 94);
  const std::vector<double> theta = thresholds(options.columns, 1e-2);
  Step step = Step().row(0, 1, 0.3).row(1, 40, 0.7).row(2, 2, 1).at(1000);
  step.new_nodes = 1;
  step.new_features.assign(options.columns, 0.5);
  step.feature_nodes = {3};
  step.feature_values.assign(options.columns, -0.25);
  step.removed_nodes = {5};
  const Outcomes outcomes = fail_at_every_allocation(
      [&] { return std::make_unique<Started<float>>(many_channels(true, 2), history, theta); },
      [&](Propagator<float>& p) { p.apply(step.update()); });
  CHECK(outcomes.intact > 0 && outcomes.broken > 0);
}
