// Rows are checked against the graph they would meet, and staged, before anything changes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "versions.hpp"

namespace tidegraph {
namespace {

// Removing at least this share of a weight, or at most this multiple, removes the edge: sums are
// rounded, here and where the caller computed them.
constexpr double kWholeFrom = 1 - 0x1p-32, kWholeTo = 1 + 1e-6;
constexpr double kLongest = 0x1p33;       // the most entries of a row
constexpr double kMaxHalfLives = 0x1p52;  // beyond it, boundaries are indistinguishable

}  // namespace

void Versions::check(const Rows& rows, std::size_t new_nodes,
                     std::span<const std::int64_t> removed_nodes, std::optional<std::int64_t> end) {
  for (const Staged& staged : staged_) staged_index_.erase(key(staged.src, staged.dst));
  staged_.clear();
  staged_weights_.clear();
  user_after_.clear();
  const std::size_t nodes = user_.nodes() + new_nodes;
  if (new_nodes > kMaxNodes || nodes > kMaxNodes)
    throw EventError("there are " + std::to_string(user_.nodes()) + " nodes and " +
                     std::to_string(new_nodes) + " new ones; at most " + std::to_string(kMaxNodes) +
                     " are possible");
  if (!end && rows.size() && reads_time())
    throw EventError(
        "the rows have no times, but a channel has a half-life or a time window: give t");
  if (end && timed_) {
    const std::int64_t begin = rows.t.empty() ? *end : rows.t.front();
    if (begin < now_)
      throw EventError(
          "time " + std::to_string(begin) + " is before " + std::to_string(now_) +
          ", which has been applied: times must not run backwards; sort the events by time");
  }
  planned_lightest_ = lightest_;
  planned_start_ = timed_ || !end ? start_ : rows.t.empty() ? *end : rows.t.front();
  if (end) {
    for (Version& version : version_) {
      if (!version.decays()) continue;
      const double half_lives_on = half_lives(version, *end);
      if (half_lives_on > kMaxHalfLives)
        throw EventError("time " + std::to_string(*end) + " is " + number(half_lives_on) +
                         " half-lives after the first event; at most 2**52 are possible: use a "
                         "longer half_life");
      version.planned_boundary =
          std::max(version.decay.boundary, std::int64_t(std::floor(half_lives_on)));
    }
  }
  for (const std::int64_t node : removed_nodes) {
    if (node < 0 || std::size_t(node) >= nodes)
      throw EventError("removed_nodes names node " + std::to_string(node) +
                       ", but there are nodes 0 to " + std::to_string(std::int64_t(nodes) - 1));
    if (std::size_t(node) < removed_.size() && removed_[std::size_t(node)])
      throw EventError("removed_nodes names node " + std::to_string(node) +
                       ", which was removed before");
  }
  for (std::size_t row = 0; row < rows.size(); ++row) check_row(rows, row, nodes);
}

std::size_t Versions::stage_edge(Node src, Node dst) {
  const std::uint64_t pair = key(src, dst);
  if (const std::uint32_t found = staged_index_.find(pair); found != PairMap::kAbsent) return found;
  const std::size_t layers = std::size_t(user_.layers()), slot = staged_.size();
  staged_weights_.resize((slot + 1) * layers, 0.0);
  const std::span<double> weights = std::span(staged_weights_).subspan(slot * layers, layers);
  if (src < user_.nodes() && dst < user_.nodes()) user_.read(src, dst, weights);
  for (const Version& version : version_) {
    if (!version.decays()) continue;
    double& weight = weights[std::size_t(version.decay.layer)];
    weight *= std::exp2(double(version.decay.boundary - version.planned_boundary));
    if (weight < floor_of(version, lightest_, kLongest)) weight = 0;
  }
  staged_.push_back({src, dst, std::numeric_limits<std::int64_t>::min()});
  try {
    staged_index_.insert(pair, std::uint32_t(slot));
  } catch (...) {  // the next check() erases from the index what is staged
    staged_.pop_back();
    throw;
  }
  return slot;
}

void Versions::check_nodes(const Rows& rows, std::size_t row, std::size_t nodes) const {
  const std::int64_t src = rows.src[row], dst = rows.dst[row];
  for (const std::int64_t node : {src, dst}) {
    if (node < 0 || std::uint64_t(node) >= nodes)
      throw EventError(describe(first_row_ + row, src, dst) + "node " + std::to_string(node) +
                       " is not among the " + std::to_string(nodes) +
                       " nodes; numbers start at 0, and new_nodes adds more");
    if (std::size_t(node) < removed_.size() && removed_[std::size_t(node)])
      throw EventError(describe(first_row_ + row, src, dst) + "node " + std::to_string(node) +
                       " was removed, and its number is not used again: add a new node");
  }
}

// Checks a weight that a row gives or leaves.
void Versions::check_weight(const Rows& rows, std::size_t row, double weight) {
  const auto where = [&] { return describe(first_row_ + row, rows.src[row], rows.dst[row]); };
  if (!(weight >= kLightest && weight <= kHeaviest))
    throw EventError(where() + "a weight of " + number(weight) +
                     " is given or would be left; weights lie between 2**-64 and 2**64: use "
                     "another unit");
  if (self_loop_ > 0) return;
  if (weight < lightest_accepted_)
    throw PrecisionError(where() + "without self-loops, edges of weight " + number(weight) +
                         " need more than the precision can hold; the lightest that it can is " +
                         number(lightest_accepted_));
  planned_lightest_ = std::min(planned_lightest_, weight);
}

void Versions::check_row(const Rows& rows, std::size_t row, std::size_t nodes) {
  check_nodes(rows, row, nodes);
  const std::int64_t src = rows.src[row], dst = rows.dst[row];
  const std::size_t layers = std::size_t(user_.layers());
  const std::size_t slot = stage_edge(Node(src), Node(dst));
  Staged& staged = staged_[slot];
  double* const weights = staged_weights_.data() + slot * layers;
  const Op op = rows.op.empty() ? Op::add : Op(rows.op[row]);
  const double whole = op == Op::remove ? std::numeric_limits<double>::infinity() : 1.0;
  const double weight = rows.weight.empty() ? whole : rows.weight[row];
  const double before = weights[0];
  double after = 0;
  switch (op) {
    case Op::add:
      check_weight(rows, row, weight);
      after = before + weight;
      break;
    case Op::remove:
      if (before == 0)
        throw EventError(describe(first_row_ + row, src, dst) + "there is no such edge to remove");
      if (weight > before * kWholeTo && !std::isinf(weight))
        throw EventError(describe(first_row_ + row, src, dst) + "cannot remove " + number(weight) +
                         " from an edge of weight " + number(before) +
                         "; leave weight out, or give inf, to remove the whole edge");
      if (weight < before * kWholeFrom) after = before - weight;
      if (after < kLightest) after = 0;
      break;
    case Op::set:
      after = weight;
      break;
  }
  if (after > 0) check_weight(rows, row, after);
  const std::int64_t t = rows.t.empty() ? 0 : rows.t[row];
  for (const Version& version : version_) {
    if (!version.decays()) continue;
    double& decayed = weights[version.decay.layer];
    const double fresh = weight * std::exp2(half_lives(version, t, version.planned_boundary));
    if (op == Op::add) decayed += fresh;
    if (op == Op::set) decayed = fresh;
    if (op == Op::remove) decayed *= after / before;
    decayed = decayed < floor_of(version, planned_lightest_, kLongest) ? 0 : decayed;
  }
  weights[0] = after;
  staged.t = t;
  user_after_.push_back(after);
}

}  // namespace tidegraph
