#include "trajectories.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

#include "check.hpp"
#include "recorder.hpp"
#include "support.hpp"

using namespace tidegraph;

namespace {

constexpr std::size_t kNodes = 40, kColumns = 11;

Settings settings(int threads) {
  Settings settings;
  settings.block_columns = 8;
  settings.threads = threads;
  settings.versions = {{}, {VersionSpec::Kind::window, 0, 300, 0}};
  settings.views = {{0, Direction::out}, {1, Direction::out}};
  settings.channels = {{0, 0.2, 0.8, 0.5}, {1, 0.3, -0.7, 0.25}};
  return settings;
}

struct Stream {
  std::vector<std::int64_t> src, dst, t, offsets{0}, times;
  Rows rows() const { return {src, dst, {}, {}, t}; }
};

// Additions between nodes, a few of which are hubs; one to three per step.
Stream random_stream(std::uint64_t seed, std::size_t steps) {
  support::Random random(seed);
  Stream stream;
  std::int64_t now = 0;
  for (std::size_t s = 0; s < steps; ++s) {
    now += std::int64_t(random.below(20));
    for (std::size_t row = 0; row <= random.below(3); ++row) {
      stream.src.push_back(std::int64_t(random.below(random.chance(0.5) ? 3 : kNodes)));
      stream.dst.push_back(std::int64_t(random.below(kNodes)));
      stream.t.push_back(now);
    }
    stream.offsets.push_back(std::int64_t(stream.src.size()));
    stream.times.push_back(now);
  }
  return stream;
}

// With features of about the given size.
template <class Real>
struct Started : Propagator<Real> {
  explicit Started(int threads = 1, double size = 1)
      : Propagator<Real>(settings(threads), kNodes, std::vector<double>(kColumns, 1e-2 * size)) {
    support::Random random(5);
    std::vector<double> features(kNodes * kColumns);
    for (double& value : features) value = size * random.between(-2, 2);
    this->set_features(0, features);
    this->read_peak();
    this->start();
  }
};

constexpr RecordLayout layout(bool half) { return {2, kColumns, half}; }

// One segment of the states before the first step, then one per `limit` records or more.
template <class Real>
std::vector<SealedRecords> recorded(Propagator<Real>& propagator, const Stream& stream, bool half,
                                    double epsilon, std::size_t limit) {
  Recorder recorder(layout(half), kNodes, epsilon);
  recorder.begin(propagator, 0, kNodes, kBeginning);
  std::vector<SealedRecords> segments;
  segments.push_back(recorder.seal());
  for (std::size_t done = 0; done < stream.times.size();) {
    Rejection rejection;
    done += recorder.run(propagator, stream.rows(), std::span(stream.offsets).subspan(done),
                         std::span(stream.times).subspan(done), limit, rejection);
    CHECK(rejection.empty());
    if (recorder.waiting()) segments.push_back(recorder.seal());
  }
  return segments;
}

Trajectories reader(const std::vector<SealedRecords>& segments, bool half) {
  std::vector<Segment> views;
  for (const SealedRecords& sealed : segments) views.push_back(sealed.view());
  return {layout(half), std::move(views)};
}

std::vector<std::int64_t> all_nodes() {
  std::vector<std::int64_t> nodes(kNodes);
  for (std::size_t node = 0; node < kNodes; ++node) nodes[node] = std::int64_t(node);
  return nodes;
}

double distance(const float* a, const float* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  return std::sqrt(sum);
}

}  // namespace

TEST(the_last_record_is_always_near_the_state) {
  const Stream stream = random_stream(1, support::repeats(400, 100));
  const std::vector<float> zero(kColumns);
  for (const bool half : {false, true})
    for (const double epsilon : {0.0, 0.05, 0.4}) {
      Started<float> watched, plain;
      const auto segments = recorded(watched, stream, half, epsilon, 100);
      const Trajectories trajectories = reader(segments, half);
      const std::vector<std::int64_t> nodes = all_nodes();
      std::vector<float> now(kNodes * 2 * kColumns), then(now.size());
      int far = 0, beyond = 0;
      for (std::size_t s = 0; s < stream.times.size(); ++s) {
        Rejection rejection;
        std::vector<std::int64_t> counts(1);
        plain.apply_steps(stream.rows(), std::span(stream.offsets).subspan(s, 2), counts,
                          rejection);
        if (s + 1 < stream.times.size() && stream.times[s + 1] == stream.times[s]) continue;
        const std::vector<std::int64_t> times(kNodes, stream.times[s] + 1);
        plain.embedding(nodes, now);
        trajectories.state(nodes, times, then, 1);
        std::vector<double> promised(kNodes * 2 * kColumns);
        std::vector<float> scales(kNodes * 2);
        plain.threshold(nodes, promised);
        trajectories.scales(nodes, times, scales, 1);
        for (std::size_t row = 0; row < kNodes * 2; ++row) {
          const float* const z = &now[row * kColumns];
          const double rounding = half ? 0x1p-10 : 0;
          far += distance(z, &then[row * kColumns], kColumns) >
                 std::max(epsilon * (1 + 1e-9), rounding) * distance(z, zero.data(), kColumns);
          beyond += promised[row * kColumns] > double(scales[row]) * 1e-2;
        }
      }
      CHECK_EQUAL(far, 0);
      CHECK_EQUAL(beyond, 0);
    }
}

TEST(recording_changes_no_result) {
  const Stream stream = random_stream(2, 200);
  Started<double> watched, plain;
  recorded(watched, stream, false, 0.05, 50);
  std::vector<std::int64_t> counts(stream.times.size());
  Rejection rejection;
  plain.apply_steps(stream.rows(), stream.offsets, counts, rejection);
  CHECK(support::contents(watched) == support::contents(plain));
}

TEST(segments_depend_neither_on_threads_nor_on_where_a_recorder_was_restored) {
  const Stream stream = random_stream(3, 300);
  for (const bool half : {false, true}) {
    Started<float> one(1), four(4);
    const auto expected = recorded(one, stream, half, 0.05, 60);
    const auto parallel = recorded(four, stream, half, 0.05, 60);
    CHECK_EQUAL(parallel.size(), expected.size());

    // Continue after every segment with a recorder that knows only the records.
    Started<float> third;
    std::vector<SealedRecords> resumed;
    const std::vector<std::int64_t> nodes = all_nodes(),
                                    times(kNodes, std::numeric_limits<std::int64_t>::max());
    for (std::size_t done = 0; resumed.empty() || done < stream.times.size();) {
      Recorder recorder(layout(half), kNodes, 0.05);
      if (resumed.empty()) {
        recorder.begin(third, 0, kNodes, kBeginning);
      } else {
        const Trajectories trajectories = reader(resumed, half);
        std::vector<float> rows(kNodes * 2 * kColumns), scales(kNodes * 2);
        trajectories.state(nodes, times, rows, 2);
        trajectories.scales(nodes, times, scales, 2);
        recorder.restore(0, rows, scales);
        Rejection rejection;
        done += recorder.run(third, stream.rows(), std::span(stream.offsets).subspan(done),
                             std::span(stream.times).subspan(done), 60, rejection);
      }
      if (recorder.waiting()) resumed.push_back(recorder.seal());
    }
    CHECK_EQUAL(resumed.size(), expected.size());
    for (std::size_t s = 0; s < expected.size(); ++s)
      for (const SealedRecords* other : {&parallel[s], std::as_const(resumed).data() + s}) {
        CHECK(other->nodes == expected[s].nodes);
        CHECK(other->offsets == expected[s].offsets);
        CHECK(other->times == expected[s].times);
        CHECK(other->rows == expected[s].rows);
        CHECK(other->exponents == expected[s].exponents);
        CHECK(other->scales == expected[s].scales);
      }
  }
}

TEST(windows_are_differences_of_neighbouring_records_before_t) {
  const Stream stream = random_stream(4, support::repeats(500, 150));
  support::Random random(9);
  for (const bool half : {false, true})
    for (const std::size_t limit : {std::size_t(40), std::size_t(1) << 30}) {
      Started<float> watched;
      const auto segments = recorded(watched, stream, half, 0.05, limit);
      const Trajectories trajectories = reader(segments, half);
      const std::size_t questions = support::repeats(3000, 600), k = 1 + random.below(6);
      std::vector<std::int64_t> nodes(questions), times(questions), since(questions * k);
      for (std::size_t q = 0; q < questions; ++q) {
        nodes[q] = std::int64_t(random.below(kNodes));
        times[q] = std::int64_t(random.below(std::uint64_t(stream.times.back() + 20))) - 5;
      }
      const std::size_t values = 2 * kColumns;
      std::vector<float> changes(questions * k * values), norms(questions * k * 2),
          angles(questions * k * 2);
      const auto mask = std::make_unique<bool[]>(questions * k);
      const std::span<bool> masked(mask.get(), questions * k);
      trajectories.window(nodes, times, k, Change::l2, norms, since, masked, 3);
      trajectories.window(nodes, times, k, Change::cosine, angles, since, masked, 3);
      trajectories.window(nodes, times, k, Change::difference, changes, since, masked, 3);
      int wrong = 0;
      for (std::size_t q = 0; q < questions; ++q) {
        const std::size_t count = trajectories.count(nodes[q]);
        std::vector<std::int64_t> when(count);
        std::vector<float> rows(count * values);
        trajectories.records(nodes[q], when, rows);
        const std::size_t known =
            std::size_t(std::lower_bound(when.begin(), when.end(), times[q]) - when.begin());
        for (std::size_t j = 0; j < k; ++j) {
          const std::size_t at = q * k + j, back = k - j;  // known - back is its record
          const bool there = known > back;
          wrong += mask[at] != there;
          wrong += since[at] != (there ? times[q] - when[known - back] : 0);
          for (std::size_t i = 0; i < values; ++i)
            wrong += changes[at * values + i] != (there ? rows[(known - back) * values + i] -
                                                              rows[(known - back - 1) * values + i]
                                                        : 0);
          for (std::size_t c = 0; c < 2; ++c) {
            double norm = 0;
            if (there) {
              const float* const now = &rows[(known - back) * values + c * kColumns];
              norm = distance(now, now - values, kColumns);
            }
            wrong += std::abs(norms[at * 2 + c] - norm) > 1e-6 * (1 + norm);
            wrong += angles[at * 2 + c] < -1e-6 || angles[at * 2 + c] > 2 + 1e-6;
            wrong += !there && angles[at * 2 + c] != 0;
          }
        }
      }
      CHECK_EQUAL(wrong, 0);
    }
}

TEST(half_precision_rounds_to_the_nearest_at_any_size) {
  for (const double size : {0x1p-120, 1e-20, 1.0, 3e4, 0x1p100}) {
    Started<double> source(1, size);
    Recorder recorder(layout(true), kNodes, 0.05);
    recorder.begin(source, 0, kNodes, kBeginning);
    const SealedRecords sealed = recorder.seal();
    const std::vector<SealedRecords> segments{sealed};
    const Trajectories trajectories = reader(segments, true);
    const std::vector<std::int64_t> nodes = all_nodes(), times(kNodes, 0);
    std::vector<float> stored(kNodes * 2 * kColumns);
    std::vector<double> states(stored.size());
    trajectories.state(nodes, times, stored, 1);
    source.embedding(nodes, states);
    double worst = 0;
    for (std::size_t row = 0; row < kNodes * 2; ++row) {
      double peak = 0;
      for (std::size_t i = 0; i < kColumns; ++i)
        peak = std::max(peak, std::abs(states[row * kColumns + i]));
      for (std::size_t i = 0; i < kColumns; ++i) {
        const double value = states[row * kColumns + i];
        const double allowed =
            0x1p-11 * std::abs(value) + 0x1p-24 * std::abs(value) + 0x1p-38 * peak + 0x1p-145;
        worst = std::max(worst, std::abs(stored[row * kColumns + i] - value) / allowed);
      }
    }
    CHECK_AT_MOST(worst, 1);
  }
}

TEST(a_value_beyond_float_is_rejected_with_its_node) {
  Started<double> source(1, 1e39);
  Recorder recorder(layout(false), kNodes, 0.05);
  bool rejected = false;
  try {
    recorder.begin(source, 0, kNodes, kBeginning);
  } catch (const std::range_error& error) {
    rejected = std::string(error.what()).find("node 0 ") != std::string::npos;
  }
  CHECK(rejected);
}

TEST(several_threads_read_at_once) {
  const Stream stream = random_stream(6, 200);
  Started<float> watched;
  const auto segments = recorded(watched, stream, true, 0.05, 80);
  const Trajectories trajectories = reader(segments, true);
  std::vector<std::int64_t> nodes(5000), times(5000);
  for (std::size_t q = 0; q < nodes.size(); ++q) {
    nodes[q] = std::int64_t(q % kNodes);
    times[q] = std::int64_t(q * 37 % std::size_t(stream.times.back()));
  }
  std::vector<float> expected(nodes.size() * 2 * kColumns);
  trajectories.state(nodes, times, expected, 1);
  std::vector<std::thread> readers;
  for (int number = 0; number < 4; ++number)
    readers.emplace_back([&] {
      std::vector<float> states(expected.size());
      trajectories.state(nodes, times, states, 2);
      CHECK(states == expected);
    });
  for (std::thread& reader : readers) reader.join();
}
