// Windows of time and of events.
#include "versions_fixture.hpp"

using namespace versions_tests;

TEST(an_event_counts_while_it_is_younger_than_the_window) {
  Versions versions = make(2, false, 1, {window(10)});
  apply(versions, Step().row(0, 1, 2).at(100));
  apply(versions, Step().at(109));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  apply(versions, Step().at(110));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 2.0);
  CHECK_EQUAL(versions.views()[0].degree(0), 1.0);
}

TEST(the_last_events_count_but_not_removals) {
  Versions versions = make(4, false, 1, {last(2)});
  apply(versions, Step().row(0, 1).row(1, 2));
  apply(versions, Step().remove(0, 1));
  CHECK_EQUAL(edges(versions, 0).size(), 1);
  apply(versions, Step().row(2, 3));  // pushes out the event that was removed already
  CHECK_EQUAL(edges(versions, 0).size(), 2);
  apply(versions, Step().set(2, 3, 5));
  CHECK_EQUAL(edges(versions, 0).size(), 1);
  CHECK_EQUAL(weight(versions, 0, {2, 3}), 5.0);
}

TEST(a_removal_takes_the_oldest_contributions_even_expired_ones) {
  Versions versions = make(2, false, 1, {window(10)});
  apply(versions, Step().row(0, 1, 3).at(0));
  apply(versions, Step().row(0, 1, 2).at(5));
  apply(versions, Step().remove(0, 1, 1).at(6));  // of the first
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 4.0);
  apply(versions, Step().at(10));  // the rest of the first expires
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  apply(versions, Step().remove(0, 1, 1.5).at(11));  // still of the first, for the user has it
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  apply(versions, Step().remove(0, 1, 1.5).at(12));  // half of it, and one of the second
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 1.0);
  CHECK_EQUAL(weight(versions, std::nullopt, {0, 1}), 1.0);
}

TEST(what_was_removed_does_not_expire_a_second_time) {
  Versions versions = make(2, false, 1, {window(10), last(3)});
  apply(versions, Step().row(0, 1, 1).at(0));
  apply(versions, Step().remove(0, 1).at(1));
  apply(versions, Step().row(0, 1, 4).at(5));
  apply(versions, Step().at(10));  // when the first would have left
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 4.0);
  apply(versions, Step().set(0, 1, 2).at(11));
  apply(versions, Step().at(15));  // and the second, which was replaced
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 2.0);
  CHECK_EQUAL(weight(versions, 1, {0, 1}), 2.0);
  apply(versions, Step().at(21));
  CHECK_EQUAL(weight(versions, 0, {0, 1}), 0.0);
  CHECK_EQUAL(versions.views()[0].degree(1), 1.0);
}

TEST(removing_an_expired_edge_changes_nothing_in_a_window) {
  Versions versions = make(3, false, 1, {kAll, window(10)});
  apply(versions, Step().row(0, 1).at(0));
  apply(versions, Step().row(1, 2).at(20));
  const auto before = edges(versions, 1);
  apply(versions, Step().remove(0, 1).at(21));
  CHECK(edges(versions, 1) == before);
  CHECK(versions.views()[1].moved().empty());
  CHECK_EQUAL(versions.edges(), 1);
}

TEST(a_window_over_an_endless_stream_stays_bounded) {
  Versions versions = make(50, false, 1, {window(100)});
  Random random(1);
  std::map<Pair, bool> present;
  std::size_t early = 0, most = 0;
  const std::int64_t end = std::int64_t(repeats(50'000, 10'000));
  for (std::int64_t t = 0; t < end; ++t) {
    const std::int64_t src = std::int64_t(random.below(50)), dst = std::int64_t(random.below(50));
    bool& exists = present[std::minmax(src, dst)];
    apply(versions,
          exists && t % 3 == 2 ? Step().remove(src, dst).at(t) : Step().row(src, dst).at(t));
    exists = !(exists && t % 3 == 2);
    if (t < end / 2)
      early = std::max(early, versions.bytes());
    else
      most = std::max(most, versions.bytes());
  }
  CHECK_AT_MOST(most, early + early / 2);
  CHECK_AT_MOST(edges(versions, 0).size(), 100);
}

// An edge as the list of its contributions.
class NaiveWindow {
 public:
  void add(std::int64_t t, std::uint64_t key, double weight) { parts_.push_back({t, key, weight}); }
  long double sum(std::uint64_t key, std::size_t first = 0) const {
    long double sum = 0;
    for (std::size_t i = first; i < parts_.size(); ++i)
      if (parts_[i].key == key) sum += parts_[i].left;
    return sum;
  }
  void lower(std::uint64_t key, double weight) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].key != key) continue;
      const long double rest = sum(key, i + 1);
      if (rest + parts_[i].left <= weight) return;
      parts_[i].left = std::max(0.0L, weight - rest);
    }
  }
  void drop_beyond(std::size_t most) {
    while (parts_.size() > most) parts_.pop_front();
  }
  void drop_until(std::int64_t until) {
    while (!parts_.empty() && parts_.front().t <= until) parts_.pop_front();
  }

 private:
  struct Part {
    std::int64_t t;
    std::uint64_t key;
    long double left;
  };
  std::deque<Part> parts_;
};

TEST(a_window_agrees_with_the_list_of_its_contributions) {
  for (const bool directed : {false, true}) {
    for (std::uint64_t seed = 0; seed < repeats(20, 4); ++seed) {
      constexpr std::uint64_t kNodes = 4;
      auto window = std::make_unique<tidegraph::EdgeWindow>(directed);
      window->resize(kNodes);
      NaiveWindow naive;
      Random random(seed);
      std::map<std::uint64_t, double> reported;  // by apply()
      double worst = 0;
      std::size_t wrong = 0;
      for (std::int64_t t = 0; t < 600; ++t) {
        for (std::size_t i = random.below(4); i > 0; --i) {
          std::uint64_t src = random.below(kNodes), dst = random.below(kNodes);
          if (!directed && src > dst) std::swap(src, dst);
          const std::uint64_t key = src << 32 | dst;
          if (random.chance(0.3)) {
            // A removal that leaves less than 2^-32 of an edge leaves nothing.
            const double share = std::exp2(random.between(-32, 0));
            const double to = random.chance(0.2) ? 0 : double(naive.sum(key)) * share;
            window->lower(key, to);
            naive.lower(key, to);
          } else {
            const double weight = std::pow(10.0, random.between(-12, 12));
            window->add(t, key, weight);
            naive.add(t, key, weight);
          }
        }
        if (seed % 2) {
          window->drop_until(t - 15);
          naive.drop_until(t - 15);
        } else {
          window->drop_beyond(25);
          naive.drop_beyond(25);
        }
        window->apply([&](Node src, Node dst, double before, double after) {
          double& known = reported[std::uint64_t(src) << 32 | dst];
          wrong += known != before;
          known = after;
        });
        std::size_t edges = 0;
        for (std::uint64_t src = 0; src < kNodes; ++src)
          for (std::uint64_t dst = directed ? 0 : src; dst < kNodes; ++dst) {
            const std::uint64_t key = src << 32 | dst;
            double found = 0;
            const bool exists = window->graph().read(Node(src), Node(dst), {&found, 1});
            const long double right = naive.sum(key);
            wrong += exists != (right > 0) || reported[key] != found;
            edges += exists;
            if (right > 0) worst = std::max(worst, double(std::abs(found - right) / right));
          }
        wrong += window->graph().edges() != edges;
        if (t % 100 == 99) {  // read back
          support::MemoryArchive archive;
          window->archive(archive, "window");
          archive.begin_reading();
          window = std::make_unique<tidegraph::EdgeWindow>(directed);
          window->resize(kNodes);
          window->archive(archive, "window");
          support::MemoryArchive again;
          window->archive(again, "window");
          CHECK(again.arrays == archive.arrays);
        }
      }
      CHECK_EQUAL(wrong, 0);
      CHECK_AT_MOST(worst, 2 * 0x1p-53);
    }
  }
}
