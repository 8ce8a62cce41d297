#include "local.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "parallel.hpp"

namespace tidegraph {
namespace {

constexpr std::size_t kLanes = LocalPropagation::kMostChannels;
constexpr std::size_t kChunk = 256;
constexpr double kFastest = 1e30;   // half-lives per unit of time
constexpr std::size_t kThird = 64;  // nodes from which a third hop leaves
constexpr float kScale = 1e5f;      // makes the least share that is pushed visible in a logarithm

// A number per channel. Loops over all of them, used or not, become vector instructions.
using Lanes = float[kLanes];

void add(const Lanes& what, Lanes& to) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) to[lane] += what[lane];
}
void add_product(const Lanes& a, const Lanes& b, Lanes& to) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) to[lane] += a[lane] * b[lane];
}

// 2^x for x <= 0, with a relative error below 2^-16; 0 below 2^-100. 1 above 0, which only times in
// damaged tables lead to.
inline float power_of_two(float x) {
  const float held = x < -100.0f ? -100.0f : x > 0.0f ? 0.0f : x;
  const auto whole = std::int32_t(held) - (held < float(std::int32_t(held)));
  const float f = held - float(whole);
  const float series =
      1 + f * (0.69314718f +
               f * (0.24022651f +
                    f * (0.05550411f + f * (0.00961812f + f * (0.00133336f + f * 0.000154f)))));
  const float power = std::bit_cast<float>(std::bit_cast<std::int32_t>(series) + (whole << 23));
  return x < -100.0f ? 0.0f : power;
}

}  // namespace

class LocalPropagation::Walk {
 public:
  void prepare(const LocalPropagation& local) {
    local_ = &local;
    const Settings& settings = local.settings_;
    std::fill_n(rate_, kLanes, 0.0f);
    for (std::size_t channel = 1; channel < local.channels(); ++channel)
      rate_[channel] = float(
          std::max(-1 / local.history_->half_lives()[settings.half_lives[channel - 1]], -kFastest));
    const std::size_t most = settings.own * (1 + settings.neighbours) +
                             settings.followed * settings.neighbours * settings.following +
                             kThird * settings.neighbours + 1;
    slots_.assign(std::bit_ceil(2 * most), kNone);
    shift_ = 32 - std::countr_zero(slots_.size());
    reached_.clear();
    reached_.reserve(most);
  }

  // Walks from a node, over events with numbers below a bound.
  void start(std::int64_t node, std::size_t bound) {
    for (const Reached& each : reached_) slots_[each.slot] = kNone;
    reached_.clear();
    bound_ = bound;
    const Settings& settings = local_->settings_;
    Degree degree;
    Lanes given, weight;
    read(node, settings.own, own_, degree);
    for (std::size_t i = 0; i < own_.size; ++i) {
      weigh(degree, own_.time[i], weight);
      add(weight, reach(own_.partner[i]).hop[0]);
    }
    neighbours_ = reached_.size();
    for (std::size_t k = 0; k < neighbours_; ++k) {
      const std::uint32_t neighbour = reached_[k].node;
      read(neighbour, settings.neighbours, theirs_, reached_[k].degree);
      reached_[k].known = true;
      degree = reached_[k].degree;
      float most = 0;
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        given[lane] = reached_[k].hop[0][lane];
        most = std::max(most, given[lane] * degree.share[lane]);
      }
      scale(degree, given);
      if (most >= settings.r_max)
        for (std::size_t i = 0; i < theirs_.size; ++i) {
          weigh(degree, theirs_.time[i], weight);
          add(weight, reach(theirs_.partner[i]).hop[1]);
        }
      follow(neighbour, degree);
    }
  }

  // Writes what the walk says about a node: kMeasures numbers per channel.
  void meet(std::int64_t node, float* out) {
    Lanes found[kMeasures] = {}, here, there;
    Degree degree;
    read(node, local_->settings_.own, own_, degree);
    if (const Reached* same = find(std::uint32_t(node))) {
      add(same->hop[0], found[0]);
      add(same->hop[1], found[1]);
      add(same->next, found[6]);
      add(same->soon, found[7]);
    }
    for (std::size_t i = 0; i < own_.size; ++i) {
      Reached* const met = find(own_.partner[i]);
      if (met == nullptr) continue;
      if (!met->known) {
        read(met->node, 1, theirs_, met->degree);
        met->known = true;
      }
      weigh(met->degree, own_.time[i], here);
      weigh(degree, own_.time[i], there);
      add_product(met->hop[0], here, found[2]);
      add_product(met->hop[0], there, found[3]);
      add_product(met->hop[1], here, found[4]);
      add_product(met->hop[1], there, found[5]);
    }
    for (const Lanes& measure : found)
      for (std::size_t channel = 0; channel < local_->channels(); ++channel)
        *out++ = std::log1p(kScale * measure[channel]);
  }

  std::vector<std::uint32_t> likeliest(std::size_t most) {
    std::vector<std::pair<float, std::uint32_t>> order;  // the negative of a sum, a position
    const auto sort_first = [&](std::size_t count) {
      count = std::min(count, order.size());
      std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(count), order.end());
      order.resize(count);
    };
    const auto sum = [](const Lanes& lanes) {
      float all = 0;
      for (const float lane : lanes) all += lane;
      return all;
    };
    for (std::size_t i = 0; i < reached_.size(); ++i)
      if (const float there = sum(reached_[i].hop[1]); there > 0)
        order.push_back({-there, std::uint32_t(i)});
    sort_first(kThird);
    std::vector<float> score(reached_.size());
    for (std::size_t i = 0; i < reached_.size(); ++i)
      score[i] = sum(reached_[i].hop[1]) + sum(reached_[i].soon);
    Degree degree;
    Lanes weight;
    for (const auto& [_, from] : order) {
      read(reached_[from].node, local_->settings_.neighbours, theirs_, degree);
      scale(degree, reached_[from].hop[1]);
      for (std::size_t i = 0; i < theirs_.size; ++i) {
        weigh(degree, theirs_.time[i], weight);
        const auto to = std::size_t(&reach(theirs_.partner[i]) - reached_.data());
        score.resize(reached_.size());
        score[to] += sum(weight);
      }
    }
    std::vector<std::uint32_t> found;
    for (std::size_t i = 0; i < std::min(neighbours_, most); ++i) found.push_back(reached_[i].node);
    order.clear();
    for (std::size_t i = neighbours_; i < score.size(); ++i)
      order.push_back({-score[i], std::uint32_t(i)});
    sort_first(most - found.size());
    for (const auto& [_, i] : order) found.push_back(reached_[i].node);
    return found;
  }

  Spread spread() const {
    Spread found;
    for (const Reached& each : reached_) {
      found.nodes.push_back(each.node);
      for (const Lanes* lanes : {&each.hop[0], &each.hop[1], &each.next, &each.soon})
        found.values.insert(found.values.end(), *lanes, *lanes + local_->channels());
    }
    return found;
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  // What all events of a node add up to. Weights are relative to that of its newest event, which
  // keeps them from vanishing however long ago that was.
  struct Degree {
    std::int64_t newest;
    Lanes share;  // of the newest event
  };
  struct Reached {
    std::uint32_t node, slot;
    bool known = false;  // whether its degree is
    Degree degree;
    Lanes hop[kHops] = {}, next = {}, soon = {};
  };

  // The share of an event in all of a node's.
  void weigh(const Degree& degree, std::int64_t time, Lanes& out) const {
    const auto age = float(elapsed(time, degree.newest));
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      out[lane] = power_of_two(age * rate_[lane]) * degree.share[lane];
  }
  static void scale(Degree& degree, const Lanes& by) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) degree.share[lane] *= by[lane];
  }

  void read(std::int64_t node, std::size_t most, History::Latest& events, Degree& degree) const {
    local_->history_->latest(node, bound_, most, events);
    degree.newest = events.size ? events.time[0] : 0;
    Lanes sum = {}, weight;
    for (const int role : {0, 1}) {
      if (events.decayed[role] == nullptr) continue;
      Degree part = {degree.newest, {}};
      for (std::size_t channel = 1; channel < local_->channels(); ++channel)
        part.share[channel] = events.decayed[role][local_->settings_.half_lives[channel - 1]];
      weigh(part, events.newest[role], weight);
      add(weight, sum);
    }
    sum[0] = float(events.events);
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      degree.share[lane] = sum[lane] > 0 ? 1 / sum[lane] : 0;
  }

  // Adds what others did after they had met a neighbour, whose events are in `theirs_`.
  void follow(std::uint32_t neighbour, const Degree& degree) {
    const Settings& settings = local_->settings_;
    // Only from the newest events of the walk's own node.
    const auto newest = own_.partner + std::min(own_.size, settings.followed);
    if (std::find(own_.partner, newest, neighbour) == newest) return;
    Lanes weight;
    local_->history_->following(theirs_, bound_, settings.following,
                                [&](std::size_t i, std::uint32_t partner, bool first) {
                                  if (first) weigh(degree, theirs_.time[i], weight);
                                  Reached& to = reach(partner);
                                  if (first) add(weight, to.next);
                                  add(weight, to.soon);
                                });
  }

  Reached* find(std::uint32_t node) {
    for (std::size_t at = place(node); slots_[at] != kNone; at = (at + 1) & (slots_.size() - 1))
      if (reached_[slots_[at]].node == node) return &reached_[slots_[at]];
    return nullptr;
  }
  Reached& reach(std::uint32_t node) {
    std::size_t at = place(node);
    for (; slots_[at] != kNone; at = (at + 1) & (slots_.size() - 1))
      if (reached_[slots_[at]].node == node) return reached_[slots_[at]];
    slots_[at] = std::uint32_t(reached_.size());
    Reached& added = reached_.emplace_back();
    added.node = node;
    added.slot = std::uint32_t(at);
    return added;
  }
  std::size_t place(std::uint32_t node) const { return (node * 0x9e3779b1u) >> shift_; }

  const LocalPropagation* local_ = nullptr;
  std::size_t bound_ = 0;
  Lanes rate_;                        // of decay, in powers of two
  std::size_t neighbours_ = 0;        // the first of `reached_`, the latest partner first
  std::vector<Reached> reached_;      // never more than were reserved, so that references stay
  std::vector<std::uint32_t> slots_;  // open addressing: positions in `reached_`
  int shift_ = 0;
  History::Latest own_, theirs_;
};

LocalPropagation::LocalPropagation(const History& history, Settings settings)
    : history_(&history), settings_(std::move(settings)) {
  bool fit = settings_.half_lives.size() < kMostChannels && settings_.r_max >= 0;
  for (const std::size_t each : settings_.half_lives)
    fit = fit && each < history_->half_lives().size();
  for (const std::size_t most : {settings_.own, settings_.neighbours})
    fit = fit && most >= 1 && most <= History::Latest::kMost;
  fit = fit && settings_.followed <= settings_.own && settings_.following <= 64;
  if (!fit) throw std::invalid_argument("the settings of a local propagation are out of range");
}

void LocalPropagation::link_rows(std::span<const std::int64_t> src,
                                 std::span<const std::int64_t> dst, std::span<const std::int64_t> t,
                                 int threads, std::span<float> out) const {
  const std::function<void(std::size_t)> chunk = [&](std::size_t i) {
    Walk walk;
    walk.prepare(*this);
    std::size_t bound = history_->events();
    const std::size_t first = i * kChunk;
    for (std::size_t row = first; row < std::min(src.size(), first + kChunk); ++row) {
      if (row == first || t[row] != t[row - 1] || src[row] != src[row - 1]) {
        bound = history_->events_before(t[row], bound);
        walk.start(src[row], bound);
      }
      walk.meet(dst[row], out.data() + row * link_columns());
    }
  };
  parallel_for((src.size() + kChunk - 1) / kChunk, threads, chunk);
}

LocalPropagation::Spread LocalPropagation::spread(std::int64_t node, std::int64_t t) const {
  Walk walk;
  walk.prepare(*this);
  walk.start(node, history_->events_before(t, history_->events()));
  return walk.spread();
}

std::vector<std::uint32_t> LocalPropagation::likeliest(std::int64_t node, std::int64_t t,
                                                       std::size_t most) const {
  Walk walk;
  walk.prepare(*this);
  walk.start(node, history_->events_before(t, history_->events()));
  return walk.likeliest(most);
}

}  // namespace tidegraph
