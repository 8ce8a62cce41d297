// What a history answers: rows of numbers about nodes and pairs.
#include <algorithm>
#include <array>
#include <cmath>

#include "history.hpp"
#include "parallel.hpp"

namespace tidegraph {
namespace {

constexpr std::size_t kChunk = 256;
// Makes a single event a few half-lives old visible in a logarithm.
constexpr double kRecentScale = 10;
constexpr std::size_t kLatest = 64;           // events searched for a partner
constexpr std::int64_t kNobody = 0xffffffff;  // a node without sequels
constexpr std::size_t kMostHalfLives = 16;    // whose numbers fit on the stack

// Most counts are small.
float log_of(std::size_t count) {
  static const auto kSmall = [] {
    std::array<float, 256> logs;
    for (std::size_t i = 0; i < logs.size(); ++i) logs[i] = float(std::log1p(double(i)));
    return logs;
  }();
  return count < kSmall.size() ? kSmall[count] : float(std::log1p(double(count)));
}
float log_since(std::int64_t from, std::int64_t to) {
  return float(std::log1p(double(elapsed(from, to))));
}

// Room for one number per half-life.
class Numbers {
 public:
  explicit Numbers(std::size_t size) : many_(size > kMostHalfLives ? size : 0) {}
  float* data() { return many_.empty() ? few_ : many_.data(); }

 private:
  float few_[kMostHalfLives];
  std::vector<float> many_;
};

}  // namespace

// What all series share at the time of a query.
struct History::Moment {
  std::int64_t t;
  std::size_t events;  // known
  float unseen;        // log of the time since what never happened: longer than any other
};

struct History::Node {
  Series as[2];
  std::size_t count[2];  // of entries before the moment
  std::size_t events() const { return count[0] + count[1]; }
  // The number of events up to and including one.
  std::size_t events_until(std::size_t event) const {
    return as[0].before(event + 1, count[0]) + as[1].before(event + 1, count[1]);
  }
};

History::Moment History::moment(std::int64_t t, std::int64_t as_of, std::size_t guess) const {
  const std::size_t known = events_before(as_of, guess);
  const std::int64_t span = known ? elapsed(time(0), t) : 0;
  return {t, known, float(std::log1p(double(span)) + 1)};
}

History::Node History::node_at(std::int64_t node, const Moment& now) const {
  Node found{{role_series(node, 0), role_series(node, 1)}, {}};
  for (const int role : {0, 1}) found.count[role] = count_before(found.as[role], now.events);
  return found;
}

float* History::write_decayed(const float* recent, std::int64_t elapsed, float* out) const {
  for (std::size_t h = 0; h < half_lives_.size(); ++h)
    *out++ = float(std::log1p(kRecentScale * decayed(double(recent[h]), elapsed, half_lives_[h])));
  return out;
}

float* History::write_recent(const Series& series, std::size_t count, const Moment& now,
                             float* out) const {
  if (count == 0) return std::fill_n(out, half_lives_.size(), 0.0f);
  Numbers numbers(half_lives_.size());
  recent(series, count - 1, numbers.data());
  return write_decayed(numbers.data(), elapsed(time(series.event(count - 1)), now.t), out);
}

void History::write_node(const Node& node, const Moment& now, float* out) const {
  for (const int role : {0, 1}) {
    const Series& series = node.as[role];
    const std::size_t count = node.count[role];
    *out++ = log_of(count);
    for (const std::size_t back : {1, 2, 5})
      *out++ = count >= back ? log_since(time(series.event(count - back)), now.t) : now.unseen;
    out = write_recent(series, count, now, out);
  }
}

void History::write_pair(std::int64_t first, std::int64_t second, const Node& first_node,
                         const Node& second_node, const Moment& now, float* out) const {
  const Series series = pair_series(kPair, first, second);
  const std::size_t count = count_before(series, now.events);
  const std::size_t last = count ? series.event(count - 1) : 0;
  *out++ = count ? 1.0f : 0.0f;
  *out++ = log_of(count);
  *out++ = count ? log_since(time(last), now.t) : now.unseen;
  out = write_recent(series, count, now, out);
  for (const Node* node : {&first_node, &second_node})
    *out++ = log_of(node->events() - (count ? node->events_until(last) : 0));
}

float* History::write_sequel(std::int64_t before, std::int64_t after, int role, const Moment& now,
                             float* out) const {
  const Series series = pair_series(Kind(kSequel + role), before, after);
  const std::size_t count = count_before(series, now.events);
  *out++ = log_of(count);
  *out++ = count ? log_since(time(series.event(count - 1)), now.t) : now.unseen;
  return write_recent(series, count, now, out);
}

void History::write_habits(const Node& node, std::int64_t partner, int role, const Moment& now,
                           float* out) const {
  const Series& series = node.as[role];
  const std::size_t count = node.count[role], latest = std::min(count, kLatest);
  const std::size_t start = count - latest;
  const std::uint32_t *partners, *links;
  std::uint32_t copied[2][kLatest];
  if (count <= series.old.size()) {
    partners = tables_.roles[role].partner.data() + series.place + start;
    links = tables_.roles[role].link.data() + series.place + start;
  } else {
    for (std::size_t k = 0; k < latest; ++k) {
      copied[0][k] = this->partner(series, start + k);
      copied[1][k] = link(series, start + k);
    }
    partners = copied[0];
    links = copied[1];
  }
  const std::size_t different = count ? met(series, count - 1) : 0;
  *out++ = log_of(different);
  const auto share = [&](std::size_t last, auto counts) {
    const std::size_t among = std::min(count, last);
    const auto found = std::count_if(links + latest - among, links + latest, counts);
    return count ? float(std::uint32_t(found)) / float(among) : 0.0f;
  };
  for (const std::size_t last : {5, 20})
    *out++ = share(last, [](std::uint32_t link) { return link == 0; });
  for (const std::size_t last : {5, 20})
    *out++ = share(last, [](std::uint32_t link) { return link >= kRepeated; });

  std::size_t k = latest;
  while (k > 0 && partners[k - 1] != std::uint32_t(partner)) --k;
  const bool found = k > 0;
  // Of the entries since, those are the first with their partner whose partner was last met before
  // them: the oldest one, and each with a link to before it.
  const auto oldest = std::uint32_t(start + k);
  const auto since = (k < latest) + std::count_if(links + std::min(k + 1, latest), links + latest,
                                                  [&](auto link) { return link <= oldest; });
  *out++ = found ? 1.0f : 0.0f;
  *out++ = log_of(found ? std::size_t(since) : different);

  std::int64_t last = kNobody, last_other = kNobody;
  if (count) {
    last = partners[latest - 1];
    const std::uint32_t newest = links[latest - 1];
    const std::size_t run = newest >= kRepeated ? newest - kRepeated : count - 1;
    if (run > 0 && run <= count) last_other = this->partner(series, run - 1);
  }
  for (const std::int64_t before : {last, last_other})
    out = write_sequel(before, partner, role, now, out);
}

void History::node_rows(std::span<const std::int64_t> nodes, std::span<const std::int64_t> t,
                        int threads, std::span<float> out) const {
  const std::function<void(std::size_t)> chunk = [&](std::size_t i) {
    Moment now{0, events(), 0};
    for (std::size_t row = i * kChunk; row < std::min(nodes.size(), (i + 1) * kChunk); ++row) {
      now = moment(t[row], t[row], now.events);  // most questions come in the order of time
      write_node(node_at(nodes[row], now), now, out.data() + row * node_columns());
    }
  };
  parallel_for((nodes.size() + kChunk - 1) / kChunk, threads, chunk);
}

void History::link_rows(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                        std::span<const std::int64_t> t, std::span<const std::int64_t> as_of,
                        int threads, std::span<float> out) const {
  const auto write_all = [&](const Moment& now, float* at) {
    if (now.events == 0) return (void)std::fill_n(at, half_lives_.size(), 0.0f);
    const std::size_t last = now.events - 1;
    Numbers numbers(half_lives_.size());
    recent_of_all(last, numbers.data());
    write_decayed(numbers.data(), elapsed(time(last), now.t), at);
  };
  const std::size_t nodes_at = 0, pairs_at = 2 * node_columns();
  const std::size_t habits_at = pairs_at + 2 * pair_columns();
  const std::size_t all_at = habits_at + 2 * habit_columns();
  const std::function<void(std::size_t)> chunk = [&](std::size_t i) {
    const std::size_t first = i * kChunk;
    Moment now{0, events(), 0};
    Node source, target;
    for (std::size_t row = first; row < std::min(src.size(), first + kChunk); ++row) {
      // Rankings ask about many partners of one node at one time: take over what stays.
      float *const at = out.data() + row * link_columns(), *const before = at - link_columns();
      const bool same_time = row > first && t[row] == t[row - 1] && as_of[row] == as_of[row - 1];
      const auto node = [&](std::span<const std::int64_t> ends, Node& end, std::size_t column) {
        if (same_time && ends[row] == ends[row - 1])
          return (void)std::copy_n(before + column, node_columns(), at + column);
        end = node_at(ends[row], now);
        write_node(end, now, at + column);
      };
      if (same_time) {
        std::copy_n(before + all_at, half_lives_.size(), at + all_at);
      } else {
        now = moment(t[row], as_of[row], now.events);  // most questions come in the order of time
        write_all(now, at + all_at);
      }
      node(src, source, nodes_at);
      node(dst, target, nodes_at + node_columns());
      write_pair(src[row], dst[row], source, target, now, at + pairs_at);
      write_pair(dst[row], src[row], target, source, now, at + pairs_at + pair_columns());
      write_habits(source, dst[row], 0, now, at + habits_at);
      write_habits(target, src[row], 1, now, at + habits_at + habit_columns());
    }
  };
  parallel_for((src.size() + kChunk - 1) / kChunk, threads, chunk);
}

void History::age_rows(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                       std::span<const std::int64_t> t, std::span<const std::int64_t> as_of,
                       int threads, std::span<float> out) const {
  const std::function<void(std::size_t)> chunk = [&](std::size_t i) {
    Moment now{0, events(), 0};
    for (std::size_t row = i * kChunk; row < std::min(src.size(), (i + 1) * kChunk); ++row) {
      now = moment(t[row], as_of[row], now.events);  // most questions come in the order of time
      float* at = out.data() + row * kAgeColumns;
      for (const std::int64_t node : {src[row], dst[row]})
        for (const int role : {0, 1}) {
          const Series series = role_series(node, role);
          const bool known = series.size() && series.event(0) < now.events;
          *at++ = known ? log_since(time(series.event(0)), now.t) : now.unseen;
        }
    }
  };
  parallel_for((src.size() + kChunk - 1) / kChunk, threads, chunk);
}

}  // namespace tidegraph
