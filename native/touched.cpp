#include "touched.hpp"

#include <algorithm>

namespace tidegraph {
namespace {

// A step lists the nodes it touches up to this share of all; beyond it, reading all marks costs
// less than the step did.
constexpr std::size_t kListedShare = 16;

}  // namespace

void TouchedLog::resize(std::size_t nodes, TouchedList& list) {
  listed_.resize(nodes / kListedShare + 1);
  marks_.resize(nodes, 0);
  list.nodes = listed_.data();
  list.marks = marks_.data();
  if (list.count > list.room) list.count = nodes + 1;  // the list stays incomplete
  list.room = listed_.size() - 1;
}

void TouchedLog::end_step(TouchedList& list) {
  begins_.push_back(log_.size());
  const auto take = [&](Node node) {
    marks_[node] = 0;
    log_.push_back(node);
  };
  if (list.count <= list.room) {
    for (std::size_t i = 0; i < list.count; ++i) take(list.nodes[i]);
  } else {
    for (std::size_t node = 0; node < marks_.size(); ++node)
      if (marks_[node]) take(Node(node));
  }
  list.count = 0;
}

void TouchedLog::discard(TouchedList& list) {
  std::fill(marks_.begin(), marks_.end(), std::uint8_t(0));
  list.count = 0;
}

std::span<const Node> TouchedLog::step(std::size_t step) const {
  return std::span(log_).subspan(begin_of(step), begin_of(step + 1) - begin_of(step));
}

void TouchedLog::drop(std::size_t steps) {
  const std::size_t end = begin_of(steps);
  log_.erase(log_.begin(), log_.begin() + std::ptrdiff_t(end));
  begins_.erase(begins_.begin(), begins_.begin() + std::ptrdiff_t(steps));
  for (std::size_t& begin : begins_) begin -= end;
}

std::size_t TouchedLog::bytes() const {
  return marks_.size() + (listed_.size() + log_.capacity()) * sizeof(Node);
}

void TouchedNodes::sort() { std::sort(nodes_.begin(), nodes_.end()); }

}  // namespace tidegraph
