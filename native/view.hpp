// The matrix of one or more channels: a version of the graph, read in one direction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "archive.hpp"
#include "kernels.hpp"
#include "sum.hpp"

namespace tidegraph {

enum class Direction : std::uint8_t { out = 0, in = 1, both = 2 };

// The degrees of a matrix. Between two steps it also knows what the last one changed.
class View {
 public:
  View(std::size_t version, Direction direction, bool directed)
      : version_(version),
        direction_(direction),
        symmetric_(!directed || direction == Direction::both),
        self_edges_(directed && direction == Direction::both ? 2 : 1) {}

  std::size_t version() const { return version_; }
  Direction direction() const { return direction_; }
  bool symmetric() const { return symmetric_; }
  // How often a self-edge counts: twice if both directions are added up.
  double self_edges() const { return self_edges_; }
  double degree(Node node) const { return degree_[node]; }
  const std::vector<double>& degrees() const { return degree_; }
  std::size_t bytes() const;

  // Rows that the last step changed, and their terms.
  struct Degree {
    Node node;
    std::uint32_t first, last;  // its terms
    double before, after;
  };
  std::span<const Degree> moved() const { return moved_; }
  std::span<const Term> terms() const { return terms_; }
  // Degrees of the nodes in Versions::rescaled(), before the rows of the step.
  struct RescaledDegree {
    double before, after;
  };
  std::span<const RescaledDegree> rescaled_degrees() const { return rescaled_degrees_; }

  // A step: begin(), any of the changes, finish().
  void begin();
  // Adds nodes, whose degrees must then be set.
  void append(std::size_t count);
  // Lists a node as moved even if its degree does not change.
  void touch(Node node);
  // Changes one entry of the matrix.
  void change_row(Node row, Node other, double before, double after);
  // Changes all entries of an edge.
  void change_edge(Node src, Node dst, double before, double after);
  // Replaces a degree by a fresh sum.
  void set_degree(Node node, const Sum& degree);
  // Replaces a degree as weights are rescaled.
  void rescale_degree(Node node, const Sum& degree);
  void clear_rescaled() { rescaled_degrees_.clear(); }
  // Groups the terms by row.
  void finish();
  // Whether a degree is the sum of its row to the last place.
  bool exact(Node node) const {
    return carry_.empty() || Sum{degree_[node], carry_[node].rest, carry_[node].lost}.exact();
  }

  void archive(Archive& archive, const std::string& name);

 private:
  struct Carry {
    double rest = 0, lost = 0;
  };
  struct Entry {
    std::uint32_t slot;
    Term term;
  };
  void put(Node node, const Sum& degree);

  std::size_t version_;
  Direction direction_;
  bool symmetric_;
  double self_edges_;
  std::vector<double> degree_;
  // What rounding took from the degrees; empty while they are exact.
  std::vector<Carry> carry_;
  // Per node: index into moved_ plus one, or zero; empty before the first change.
  std::vector<std::uint32_t> slot_;
  std::vector<Degree> moved_;
  std::vector<Entry> entries_;
  std::vector<Term> terms_;
  std::vector<RescaledDegree> rescaled_degrees_;
};

}  // namespace tidegraph
