#include <algorithm>
#include <cmath>
#include <utility>

#include "check.hpp"
#include "history_fixture.hpp"
#include "local.hpp"

using namespace history_fixture;
using namespace tidegraph;
using support::repeats;

namespace {

// What a history answers, counted directly: each series is a list of times, walked from its start.
class Oracle {
 public:
  Oracle(const Stream& stream, std::vector<double> half_lives, std::int64_t t)
      : half_lives_(std::move(half_lives)), t_(t) {
    first_ = stream.t.empty() ? t : stream.t[0];
    for (std::size_t e = 0; e < stream.t.size() && stream.t[e] < t; ++e) {
      const std::int64_t ends[] = {stream.src[e], stream.dst[e]};
      all_.push_back(stream.t[e]);
      for (const int role : {0, 1}) {
        Events& events = nodes_[{ends[role], role}];
        const std::int64_t partner = ends[1 - role];
        if (!events.partner.empty())
          sequels_[role][{events.partner.back(), partner}].push_back(stream.t[e]);
        events.t.push_back(stream.t[e]);
        events.partner.push_back(partner);
      }
      pairs_[{ends[0], ends[1]}].push_back(stream.t[e]);
      for (const std::int64_t node : ends) ++events_[node];
      for (const std::int64_t node : ends) at_pair_[{{ends[0], ends[1]}, node}] = events_[node];
    }
  }

  std::vector<float> row(std::int64_t src, std::int64_t dst) {
    out_.clear();
    node(src);
    node(dst);
    pair(src, dst);
    pair(dst, src);
    habits(src, dst, 0);
    habits(dst, src, 1);
    recent(all_);
    return out_;
  }
  std::vector<float> ages(std::int64_t src, std::int64_t dst) {
    out_.clear();
    for (const std::int64_t node : {src, dst})
      for (const int role : {0, 1}) {
        const Times& times = nodes_[{node, role}].t;
        since(times, std::max<std::size_t>(times.size(), 1));
      }
    return out_;
  }

 private:
  using Pair = std::pair<std::int64_t, std::int64_t>;
  using Times = std::vector<std::int64_t>;
  struct Events {
    Times t, partner;
  };

  void put(double value) { out_.push_back(float(value)); }
  void since(const Times& times, std::size_t back) {
    put(times.size() >= back ? std::log1p(double(t_ - times[times.size() - back]))
                             : std::log1p(double(std::max<std::int64_t>(t_ - first_, 0))) + 1);
  }
  void recent(const Times& times) {
    for (const double half_life : half_lives_) {
      float value = 0;
      for (std::size_t i = 0; i < times.size(); ++i)
        value =
            i ? float(double(value) * std::exp2(-double(times[i] - times[i - 1]) / half_life) + 1)
              : 1.0f;
      put(times.empty() ? 0
                        : std::log1p(10 * (double(value) *
                                           std::exp2(-double(t_ - times.back()) / half_life))));
    }
  }
  void node(std::int64_t node) {
    for (const int role : {0, 1}) {
      const Times& times = nodes_[{node, role}].t;
      put(std::log1p(double(times.size())));
      for (const std::size_t back : {1, 2, 5}) since(times, back);
      recent(times);
    }
  }
  void pair(std::int64_t first, std::int64_t second) {
    const Times& times = pairs_[{first, second}];
    put(!times.empty());
    put(std::log1p(double(times.size())));
    since(times, 1);
    recent(times);
    for (const std::int64_t node : {first, second})
      put(std::log1p(double(events_[node] - at_pair_[{{first, second}, node}])));
  }
  void habits(std::int64_t node, std::int64_t partner, int role) {
    const Times& partners = nodes_[{node, role}].partner;
    const std::size_t count = partners.size();
    std::vector<bool> is_new, repeated;
    for (std::size_t i = 0; i < count; ++i) {
      const auto before = partners.begin() + std::ptrdiff_t(i);
      is_new.push_back(std::find(partners.begin(), before, partners[i]) == before);
      repeated.push_back(i && partners[i] == partners[i - 1]);
    }
    put(std::log1p(double(std::count(is_new.begin(), is_new.end(), true))));
    for (const auto& kind : {is_new, repeated})
      for (const std::size_t last : {5, 20}) {
        const std::size_t among = std::min(last, count);
        const auto found = std::count(kind.end() - std::ptrdiff_t(among), kind.end(), true);
        out_.push_back(count ? float(found) / float(among) : 0.0f);
      }
    const std::size_t start = count - std::min<std::size_t>(count, 64);
    std::size_t place = count;
    while (place > start && partners[place - 1] != partner) --place;
    const bool found = place > start;
    Times behind(partners.begin() + std::ptrdiff_t(found ? place : 0), partners.end());
    std::sort(behind.begin(), behind.end());
    put(found);
    put(std::log1p(double(std::unique(behind.begin(), behind.end()) - behind.begin())));
    std::size_t run = count;
    while (run > 0 && partners[run - 1] == partners.back()) --run;
    for (const std::size_t behind : {count, run}) {
      const Times& times =
          behind ? sequels_[role][{partners[behind - 1], partner}] : sequels_[role][{-1, -1}];
      put(std::log1p(double(times.size())));
      since(times, 1);
      recent(times);
    }
  }

  std::vector<double> half_lives_;
  std::int64_t t_, first_;
  Times all_;
  std::map<std::pair<std::int64_t, int>, Events> nodes_;
  std::map<Pair, Times> pairs_, sequels_[2];
  std::map<std::int64_t, std::size_t> events_;
  std::map<std::pair<Pair, std::int64_t>, std::size_t> at_pair_;
  std::vector<float> out_;
};

std::vector<float> links(const History& history, const std::vector<std::int64_t>& src,
                         const std::vector<std::int64_t>& dst, const std::vector<std::int64_t>& t) {
  std::vector<float> out(src.size() * history.link_columns());
  history.link_rows(src, dst, t, t, 2, out);
  return out;
}

}  // namespace

TEST(a_history_answers_as_if_it_counted_directly_however_its_events_arrived) {
  Random random(1);
  for (std::size_t round = 0; round < repeats(300, 40); ++round) {
    const std::size_t nodes = 1 + random.below(6), events = random.below(round % 10 ? 60 : 600);
    const Stream stream = random_stream(random, events, nodes);
    std::vector<double> half_lives(random.below(4));
    for (double& half_life : half_lives) half_life = random.between(0.5, 300);
    Kept kept(1, half_lives);
    for (std::size_t done = 0; done < events;) {
      const std::size_t next = done + 1 + random.below(events - done);
      const Stream more = part(stream, done, next);
      if (random.chance(0.5))
        kept.history->append(more.src, more.dst, more.t, nodes);
      else
        kept.merge(more, half_lives);
      done = next;
    }
    if (events == 0) kept.history->append({}, {}, {}, nodes);
    CHECK_EQUAL(kept.history->events(), events);
    CHECK_EQUAL(kept.history->nodes(), nodes);
    std::vector<std::int64_t> src, dst, t;
    std::vector<float> expected, of_nodes, ages;
    for (std::size_t query = 0; query < 8; ++query) {
      t.insert(t.end(), 2, some_time(random, stream));
      src.insert(src.end(), 2, std::int64_t(random.below(nodes)));
      Oracle oracle(stream, half_lives, t.back());
      for (const int same : {0, 1}) {
        dst.push_back(std::int64_t(random.below(nodes)));
        const std::vector<float> row = oracle.row(src[src.size() - 2 + same], dst.back());
        expected.insert(expected.end(), row.begin(), row.end());
        of_nodes.insert(of_nodes.end(), row.begin(), row.begin() + kept.history->node_columns());
        const std::vector<float> age = oracle.ages(src[src.size() - 2 + same], dst.back());
        ages.insert(ages.end(), age.begin(), age.end());
      }
    }
    CHECK(same_bits(links(*kept.history, src, dst, t), expected));
    std::vector<float> out(src.size() * kept.history->node_columns());
    kept.history->node_rows(src, t, 2, out);
    CHECK(same_bits(out, of_nodes));
    out.resize(ages.size());
    kept.history->age_rows(src, dst, t, t, 2, out);
    CHECK(same_bits(out, ages));
  }
}

TEST(the_tables_of_a_history_depend_on_its_events_alone) {
  Random random(2);
  const std::vector<double> half_lives = {3, 40};
  for (std::size_t round = 0; round < repeats(50, 10); ++round) {
    const Stream stream = random_stream(random, 200, 7);
    const std::size_t cut = random.below(201);
    Kept once(7, half_lives), twice(2, half_lives);
    once.merge(stream, half_lives);
    const Stream early = part(stream, 0, cut), late = part(stream, cut, 200);
    if (random.chance(0.5))
      twice.merge(early, half_lives);
    else
      twice.history->append(early.src, early.dst, early.t, 7);
    twice.merge(late, half_lives);
    CHECK(once.files == twice.files);
    CHECK(once.history->holds(stream.src, stream.dst, stream.t));
    Stream other = stream;
    other.dst[random.below(200)] ^= 1;
    CHECK(!once.history->holds(other.src, other.dst, other.t));
    CHECK(!once.history->holds(early.src, early.dst, early.t) || cut == 200);
  }
}

// The sanitizers see reads outside of the tables.
TEST(damaged_tables_give_wrong_numbers_and_nothing_worse) {
  Random random(4);
  const std::vector<double> half_lives = {3, 40};
  for (std::size_t round = 0; round < repeats(300, 60); ++round) {
    const Stream stream = random_stream(random, 300, 9);
    Kept kept(9, half_lives);
    kept.merge(stream, half_lives);
    for (auto& [name, file] : kept.files)
      for (std::size_t hit = random.below(3); hit > 0; --hit)
        file[random.below(file.size())] ^= random.next() >> random.below(64);
    const Stream late = part(stream, 299, 300);
    for (int more = 0; more < 3; ++more) kept.history->append(late.src, late.dst, late.t, 9);
    std::vector<std::int64_t> src, dst, t;
    for (std::size_t query = 0; query < 50; ++query) {
      src.push_back(std::int64_t(random.below(9)));
      dst.push_back(std::int64_t(random.below(9)));
      t.push_back(some_time(random, stream));
    }
    const std::vector<float> rows = links(*kept.history, src, dst, t);
    CHECK_EQUAL(rows.size(), 50 * kept.history->link_columns());
    const LocalPropagation local(*kept.history, {{1}});
    std::vector<float> walks(50 * local.link_columns());
    local.link_rows(src, dst, t, 2, walks);
    try {
      kept.merge(late, half_lives);
    } catch (const std::invalid_argument&) {}
  }
}

TEST(arrays_that_do_not_fit_each_other_are_no_history) {
  Random random(5);
  const std::vector<double> half_lives = {3};
  Kept kept(5, half_lives);
  kept.merge(random_stream(random, 64, 5), half_lives);
  for (const char* name : {"t", "recent", "role0.event", "role1.link", "pairs.recent"}) {
    const std::size_t bytes = std::exchange(kept.bytes[name], 16);
    bool rejected = false;
    try {
      History(5, half_lives, kept.tables());
    } catch (const std::invalid_argument&) { rejected = true; }
    CHECK(rejected);
    kept.bytes[name] = bytes;
  }
}
