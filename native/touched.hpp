// Which nodes a step touched: logged per block, on the thread that works on it, and merged later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels.hpp"

namespace tidegraph {

// The nodes that one block touched in each step since the log was last emptied.
class TouchedLog {
 public:
  // Makes room for marks of all nodes in the list that kernels write to.
  void resize(std::size_t nodes, TouchedList& list);
  // Moves the nodes of the list into the log, as those of one more step.
  void end_step(TouchedList& list);
  // Empties the list without logging it.
  void discard(TouchedList& list);

  std::span<const Node> step(std::size_t step) const;
  // The number of logged nodes.
  std::size_t size() const { return log_.size(); }
  // Removes the first steps from the log.
  void drop(std::size_t steps);
  std::size_t bytes() const;

 private:
  std::size_t begin_of(std::size_t step) const {
    return step < begins_.size() ? begins_[step] : log_.size();
  }

  std::vector<Node> listed_;         // the memory of the list
  std::vector<std::uint8_t> marks_;  // likewise
  std::vector<Node> log_;
  std::vector<std::size_t> begins_;  // of each step in the log
};

// The union of the nodes that blocks touched in one step, in order of appearance.
class TouchedNodes {
 public:
  void resize(std::size_t nodes) { marks_.resize(nodes, 0); }
  void clear() { nodes_.clear(); }
  void add(Node node) {
    if (marks_[node]) return;
    nodes_.push_back(node);
    marks_[node] = 1;
  }
  // Must follow the last add().
  void finish() {
    for (const Node node : nodes_) marks_[node] = 0;
  }
  void sort();
  std::span<const Node> nodes() const { return nodes_; }

 private:
  std::vector<Node> nodes_;
  std::vector<std::uint8_t> marks_;  // all zero after finish()
};

}  // namespace tidegraph
