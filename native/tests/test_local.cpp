#include "local.hpp"

#include <cmath>
#include <map>
#include <utility>

#include "check.hpp"
#include "history_fixture.hpp"

using namespace history_fixture;
using namespace tidegraph;
using support::repeats;

namespace {

// float32 sums of at most 256 terms, each a product of a few, and powers of two from a series.
constexpr double kRounding = 1e-4;
constexpr std::size_t kAll = History::Latest::kMost;

// Walks over the whole graph of a time, in float64.
class Oracle {
 public:
  // A node's entry: an event in one of its roles.
  struct Entry {
    std::size_t event;
    int role;
    std::int64_t partner;
    double weight;
  };
  using Row = std::vector<double>;

  Oracle(const Stream& stream, double half_life, std::int64_t t)
      : stream_(stream), entries_(stream.nodes), degree_(stream.nodes) {
    for (std::size_t e = 0; e < stream.t.size() && stream.t[e] < t; ++e) {
      // Relative to the newest event: the walk does not depend on a common factor.
      const double age = double(newest_before(t) - stream.t[e]);
      const double weight = half_life > 0 ? std::exp2(-age / half_life) : 1;
      const std::int64_t ends[] = {stream.src[e], stream.dst[e]};
      for (const int role : {0, 1}) {
        entries_[std::size_t(ends[role])].push_back({e, role, ends[1 - role], weight});
        degree_[std::size_t(ends[role])] += weight;
      }
    }
  }

  Row step(const Row& from) const {
    Row to(from.size());
    for (std::size_t a = 0; a < from.size(); ++a)
      for (const Entry& entry : entries_[a])
        if (from[a] > 0) to[std::size_t(entry.partner)] += from[a] * entry.weight / degree_[a];
    return to;
  }
  Row indicator(std::int64_t node) const {
    Row row(entries_.size());
    row[std::size_t(node)] = 1;
    return row;
  }
  // What followed at most so many events later, for the partners of the newest events of a node.
  Row followed(std::int64_t node, std::size_t followed, std::size_t most) const {
    Row found(entries_.size());
    const Row first = step(indicator(node));
    std::map<std::int64_t, bool> asked;
    const auto& own = entries_[std::size_t(node)];
    for (std::size_t k = 0; k < std::min(followed, own.size()); ++k)
      asked[own[own.size() - 1 - k].partner] = true;
    for (const auto& [a, _] : asked)
      for (const Entry& entry : entries_[std::size_t(a)]) {
        std::size_t seen = 0;
        for (const Entry& next : entries_[std::size_t(entry.partner)])
          if (next.role == 1 - entry.role && next.event > entry.event && seen++ < most)
            found[std::size_t(next.partner)] +=
                first[std::size_t(a)] * entry.weight / degree_[std::size_t(a)];
      }
    return found;
  }

 private:
  std::int64_t newest_before(std::int64_t t) const {
    const auto end = std::lower_bound(stream_.t.begin(), stream_.t.end(), t);
    return end == stream_.t.begin() ? t : *(end - 1);
  }

  const Stream& stream_;
  std::vector<std::vector<Entry>> entries_;
  std::vector<double> degree_;
};

// A stream whose times lie within what float64 weights can hold, and a history of it.
struct Example {
  Stream stream;
  std::vector<double> half_lives;
  Kept kept{1, {}};
  std::int64_t t;

  Example(Random& random, std::size_t events, std::size_t nodes) : half_lives(random.below(4)) {
    for (double& half_life : half_lives) half_life = random.between(2, 300);
    do {
      stream = random_stream(random, events, nodes);
    } while (!stream.t.empty() && (stream.t.front() < -1000 || stream.t.back() > 100000));
    kept = Kept(nodes, half_lives);
    const std::size_t cut = random.below(events + 1);
    kept.merge(part(stream, 0, cut), half_lives);
    const Stream late = part(stream, cut, events);
    kept.history->append(late.src, late.dst, late.t, nodes);
    t = some_time(random, stream);
  }
  // The longest half-life is the last channel, so that the order shows.
  LocalPropagation::Settings settings(std::size_t most) const {
    LocalPropagation::Settings found;
    for (std::size_t h = half_lives.size(); h-- > 0;) found.half_lives.push_back(h);
    found.own = found.neighbours = most;
    found.followed = std::min<std::size_t>(most, 4);
    found.following = 3;
    found.r_max = 0;
    return found;
  }
  Oracle oracle(std::size_t channel) const {
    return Oracle(stream, channel ? half_lives[half_lives.size() - channel] : 0, t);
  }
};

double near(double x) { return kRounding * (x + 1e-6); }

}  // namespace

TEST(a_walk_over_all_events_is_exact) {
  Random random(11);
  for (std::size_t round = 0; round < repeats(300, 40); ++round) {
    const std::size_t nodes = 1 + random.below(7);
    const Example example(random, random.below(120), nodes);
    const LocalPropagation local(*example.kept.history, example.settings(kAll));
    const auto u = std::int64_t(random.below(nodes));
    std::vector<std::int64_t> src(nodes, u), dst, t(nodes, example.t);
    for (std::size_t v = 0; v < nodes; ++v) dst.push_back(std::int64_t(v));
    std::vector<float> rows(nodes * local.link_columns());
    local.link_rows(src, dst, t, 2, rows);
    for (std::size_t channel = 0; channel < local.channels(); ++channel) {
      const Oracle oracle = example.oracle(channel);
      const Oracle::Row one = oracle.step(oracle.indicator(u)), two = oracle.step(one),
                        three = oracle.step(two);
      const Oracle::Row next = oracle.followed(u, 4, 1), soon = oracle.followed(u, 4, 3);
      for (std::size_t v = 0; v < nodes; ++v) {
        const Oracle::Row back = oracle.step(oracle.indicator(std::int64_t(v)));
        double common = 0, overlap = 0;
        for (std::size_t b = 0; b < nodes; ++b) {
          common += one[b] * back[b];
          overlap += two[b] * back[b];
        }
        const double expected[] = {one[v],   two[v],  two[v],  common,
                                   three[v], overlap, next[v], soon[v]};
        for (std::size_t m = 0; m < LocalPropagation::kMeasures; ++m) {
          const float found = rows[v * local.link_columns() + m * local.channels() + channel];
          CHECK_AT_MOST(std::abs(std::expm1(double(found)) / 1e5 - expected[m]), near(expected[m]));
        }
      }
    }
  }
}

TEST(a_walk_over_few_events_misses_no_more_than_it_says) {
  Random random(12);
  for (std::size_t round = 0; round < repeats(300, 40); ++round) {
    const std::size_t nodes = 1 + random.below(12);
    const Example example(random, random.below(200), nodes);
    LocalPropagation::Settings settings = example.settings(1 + random.below(6));
    settings.r_max = random.chance(0.5) ? 0 : float(random.uniform());
    const LocalPropagation local(*example.kept.history, settings);
    const auto u = std::int64_t(random.below(nodes));
    const LocalPropagation::Spread spread = local.spread(u, example.t);
    const std::size_t channels = local.channels();
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const Oracle oracle = example.oracle(channel);
      Oracle::Row exact = oracle.indicator(u);
      for (std::size_t hop = 0; hop < LocalPropagation::kHops; ++hop) {
        exact = oracle.step(exact);
        std::vector<double> found(nodes);
        double sum = 0;
        for (std::size_t i = 0; i < spread.nodes.size(); ++i) {
          const float value = spread.values[(i * 4 + hop) * channels + channel];
          found[spread.nodes[i]] += value;
          sum += value;
        }
        CHECK_AT_MOST(sum, 1 + kRounding);
        for (std::size_t v = 0; v < nodes; ++v) {
          CHECK_AT_MOST(found[v], exact[v] + near(exact[v]));
          CHECK_AT_MOST(exact[v], found[v] + (1 - sum) + kRounding);
        }
      }
    }
  }
}

TEST(a_walk_does_not_depend_on_how_its_events_arrived_nor_on_later_ones) {
  Random random(13);
  for (std::size_t round = 0; round < repeats(100, 20); ++round) {
    const std::size_t nodes = 2 + random.below(8);
    Example example(random, 150, nodes);
    const LocalPropagation::Settings settings = example.settings(1 + random.below(8));
    std::vector<std::int64_t> src, dst, t;
    for (std::size_t i = 0; i < 300; ++i) {  // more than a chunk
      src.push_back(std::int64_t(random.below(nodes)));
      dst.push_back(std::int64_t(random.below(nodes)));
      t.push_back(example.t);
    }
    const auto answers = [&](const History& history) {
      const LocalPropagation local(history, settings);
      std::vector<float> out(src.size() * local.link_columns());
      local.link_rows(src, dst, t, 2, out);
      return out;
    };
    const std::vector<float> expected = answers(*example.kept.history);
    const auto before =
        std::size_t(std::lower_bound(example.stream.t.begin(), example.stream.t.end(), example.t) -
                    example.stream.t.begin());
    Stream other = part(example.stream, 0, before);
    const std::int64_t later = before < example.stream.t.size() ? example.stream.t[before]
                               : before                         ? example.stream.t[before - 1] + 1
                                                                : 0;
    for (std::size_t i = 0; i < 20 && later >= example.t; ++i) {
      other.src.push_back(std::int64_t(random.below(nodes)));
      other.dst.push_back(std::int64_t(random.below(nodes)));
      other.t.push_back(later);
    }
    Kept kept(nodes, example.half_lives);
    kept.merge(other, example.half_lives);
    CHECK(same_bits(answers(*kept.history), expected));
  }
}

TEST(the_likeliest_nodes_are_the_latest_partners_and_those_that_walks_reach_most) {
  Random random(14);
  for (std::size_t round = 0; round < repeats(200, 40); ++round) {
    const std::size_t nodes = 1 + random.below(9);
    const Example example(random, random.below(120), nodes);
    const LocalPropagation local(*example.kept.history, example.settings(kAll));
    const auto u = std::int64_t(random.below(nodes));
    std::vector<std::uint32_t> partners;  // the latest first
    const Stream& stream = example.stream;
    for (std::size_t e = stream.t.size(); e-- > 0;) {
      if (stream.t[e] >= example.t || (stream.src[e] != u && stream.dst[e] != u)) continue;
      const auto other = std::uint32_t(stream.src[e] == u ? stream.dst[e] : stream.src[e]);
      if (std::find(partners.begin(), partners.end(), other) == partners.end())
        partners.push_back(other);
    }
    std::vector<double> score(nodes);
    for (std::size_t channel = 0; channel < local.channels(); ++channel) {
      const Oracle oracle = example.oracle(channel);
      const Oracle::Row soon = oracle.followed(u, 4, 3);
      const Oracle::Row two = oracle.step(oracle.step(oracle.indicator(u)));
      const Oracle::Row three = oracle.step(two);
      for (std::size_t v = 0; v < nodes; ++v) score[v] += soon[v] + two[v] + three[v];
    }
    const auto is_partner = [&](std::size_t v) {
      return std::find(partners.begin(), partners.end(), v) != partners.end();
    };
    std::size_t others = 0;
    for (std::size_t v = 0; v < nodes; ++v) others += score[v] > 0 && !is_partner(v);
    const std::size_t most = 1 + random.below(nodes);
    const std::vector<std::uint32_t> found = local.likeliest(u, example.t, most);
    CHECK_EQUAL(found.size(), std::min(most, partners.size() + others));
    for (std::size_t i = 0; i < std::min(partners.size(), found.size()); ++i)
      CHECK_EQUAL(found[i], partners[i]);
    for (std::size_t v = 0; v < nodes; ++v)
      if (!is_partner(v) && std::find(found.begin(), found.end(), v) == found.end())
        for (std::size_t i = partners.size(); i < found.size(); ++i)
          CHECK_AT_MOST(score[v], score[found[i]] + 1e-3 * (1 + score[v]));
  }
}

TEST(settings_of_a_walk_that_cannot_be_are_rejected) {
  const History history(3, {10.0});
  const auto rejected = [&](auto change) {
    LocalPropagation::Settings settings;
    change(settings);
    try {
      const LocalPropagation local(history, settings);
      return false;
    } catch (const std::invalid_argument&) { return true; }
  };
  CHECK(!rejected([](auto&) {}));
  CHECK(rejected([](auto& settings) { settings.half_lives = {1}; }));
  CHECK(rejected([](auto& settings) { settings.half_lives = {0, 0, 0, 0}; }));
  CHECK(rejected([](auto& settings) { settings.own = 0; }));
  CHECK(rejected([](auto& settings) { settings.neighbours = History::Latest::kMost + 1; }));
  CHECK(rejected([](auto& settings) { settings.followed = 65; }));
  CHECK(rejected([](auto& settings) { settings.r_max = -1; }));
}
