// The user's graph and the versions of it that channels see: all edges, edges that decay, edges
// inside a window. Turns rows of events into changes of weights and degrees. Knows time; knows
// nothing of features.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "edge_window.hpp"
#include "graph.hpp"
#include "pairmap.hpp"
#include "sum.hpp"

namespace tidegraph {

// A row that cannot be applied. Thrown before anything has changed.
struct EventError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A row that fits the graph, but after which the precision at hand could not keep the promise.
// Thrown before anything has changed.
struct PrecisionError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

std::string number(double value);  // as errors show it

enum class Op : std::uint8_t { add = 0, remove = 1, set = 2 };

struct Rows {
  std::span<const std::int64_t> src, dst;
  std::span<const double> weight;    // empty: 1 for add and set, the whole edge for remove
  std::span<const std::uint8_t> op;  // empty: add
  std::span<const std::int64_t> t;   // empty: untimed
  std::size_t size() const { return src.size(); }
  Rows slice(std::size_t first, std::size_t last) const;
};

struct VersionSpec {
  enum class Kind : std::uint8_t { all = 0, decay = 1, window = 2, last = 3 };
  Kind kind = Kind::all;
  double half_life = 0;
  std::int64_t span = 0;  // of time, or events
  int forget = 0;         // decay without self-loops: half-lives after which an edge is forgotten
  bool operator==(const VersionSpec&) const = default;
};

inline constexpr std::size_t kMaxNodes = 0xfffffffe;  // ids take 32 bits, and one is left out
inline constexpr int kMaxLayers = 64;  // the user's weights and one layer per half-life

enum class Direction : std::uint8_t { out = 0, in = 1, both = 2 };

// A version of the graph read in one direction: the matrix of one or more channels. Between two
// steps `moved` and `terms` tell what the last one changed.
class View {
 public:
  struct Degree {
    Node node;
    std::uint32_t first, last;  // its terms
    double before, after;
  };

  View(std::size_t version, Direction direction, bool directed)
      : version_(version),
        direction_(direction),
        symmetric_(!directed || direction == Direction::both),
        self_edges_(directed && direction == Direction::both ? 2 : 1) {}

  std::size_t version() const { return version_; }
  Direction direction() const { return direction_; }
  bool symmetric() const { return symmetric_; }
  // How often a self-edge counts: twice where both directions are added up.
  double self_edges() const { return self_edges_; }
  double degree(Node node) const { return degree_[node]; }
  const std::vector<double>& degrees() const { return degree_; }
  std::span<const Degree> moved() const { return moved_; }
  std::span<const Term> terms() const { return terms_; }
  // Degrees of the nodes that the last step swept, in their order, before its rows.
  struct SweptDegree {
    double before, after;
  };
  std::span<const SweptDegree> swept_degrees() const { return swept_degrees_; }
  std::size_t bytes() const {
    return degree_.size() * sizeof(double) + carry_.size() * sizeof(Carry) +
           slot_.size() * sizeof(std::uint32_t);
  }

  void begin();                    // forgets the last step
  void append(std::size_t count);  // new nodes, whose degrees are to be set
  void touch(Node node);           // counts as moved even when its degree stays
  void change_row(Node row, Node other, double before, double after);  // one entry of the matrix
  void change_edge(Node src, Node dst, double before, double after);   // in all entries it has
  void reset(Node node, const Sum& degree);                            // sets one summed anew
  void finish();                                                       // groups the terms by row
  // Whether a degree is its sum but for the last place.
  bool exact(Node node) const {
    return carry_.empty() || Sum{degree_[node], carry_[node].rest, carry_[node].lost}.exact();
  }

 private:
  friend class Versions;
  struct Carry {
    double rest = 0, lost = 0;
  };
  void put(Node node, const Sum& degree);
  std::vector<double> degree_;
  std::vector<Carry> carry_;  // of degrees as sums; empty while they are exact
  std::size_t version_;
  Direction direction_;
  bool symmetric_;
  double self_edges_;
  // Index into moved_ plus one, zero where not moved; empty before anything has.
  std::vector<std::uint32_t> slot_;
  std::vector<Degree> moved_;
  struct Entry {
    std::uint32_t slot;
    Term term;
  };
  std::vector<Entry> entries_;
  std::vector<Term> terms_;
  std::vector<SweptDegree> swept_degrees_;
};

class Versions {
 public:
  // forgotten_share: how much of a self-loop the edges that a row forgets may weigh together.
  Versions(std::size_t nodes, bool directed, double self_loop, double forgotten_share,
           std::vector<VersionSpec> specs, std::vector<std::pair<std::size_t, Direction>> views);

  std::size_t nodes() const { return user_.nodes(); }
  bool directed() const { return user_.directed(); }
  double self_loop() const { return self_loop_; }
  std::size_t edges() const { return user_.edges(); }
  std::size_t bytes() const;
  std::optional<std::int64_t> time() const { return timed_ ? std::optional(now_) : std::nullopt; }
  bool removed(Node node) const { return removed_[node]; }
  const std::vector<View>& views() const { return views_; }

  // The lists a push on a view walks, and those of its rows. Valid until the next step.
  Lists columns(const View& view) const;
  Lists rows(const View& view) const;
  // Self-loop plus self-edge, in the units of the view.
  double self_weight(const View& view, Node node) const;
  double stored_loop(const View& view, Node node) const {
    return stored_loop(version_[view.version()], node);
  }
  double loop(std::size_t version, Node node) const;  // in present units
  // Decay: stored weights are in units of the last boundary, a whole number of half-lives after the
  // first event. What a weight of one counts in them now, and at the next boundary; 1 elsewhere.
  double present(std::size_t version) const;
  double horizon(std::size_t version) const;

  // One step: check, then pass_time, then change. Rows are checked against the graph they would
  // meet; nothing has changed when check throws. `end` is the time the step moves to, if it is
  // timed. Passing a boundary halves all weights of a decayed version and renews all self-loops.
  void check(const Rows& rows, std::size_t new_nodes, std::span<const std::int64_t> removed_nodes,
             std::optional<std::int64_t> end);
  void pass_time(std::optional<std::int64_t> end);
  void change(const Rows& rows, std::size_t new_nodes, std::span<const std::int64_t> removed_nodes);
  // The first rows of all, without staging them; false where these rows or versions need the long
  // way.
  bool load(const Rows& rows, std::optional<std::int64_t> end);
  // Starts from the lists of a graph without edges so far, which must outlive this object, and from
  // the edges of `selves` to themselves. Only where plain(): every version sees all edges as they
  // are. Throws where a weight is not accepted; nothing has changed then.
  void stand_on(const CompactLists& sources, const CompactLists& targets, std::size_t edges,
                const Entries& selves);
  bool plain() const;
  Graph& graph_to_merge() { return user_; }  // to change where it lies, not what it says
  // Errors count rows from here.
  void count_rows_from(std::size_t row) { first_row_ = row; }
  // The nodes of a decayed version whose rows changed as boundaries were passed, in ascending
  // order: their weights were multiplied by factor(), their self-loops renewed. Where an edge was
  // dropped as well, the row is not whole, and its residual has to be computed from scratch.
  struct Swept {
    Node node;
    bool whole;
    double loop_before, loop_after;
  };
  std::span<const Swept> swept(std::size_t version) const { return version_[version].swept; }
  double factor(std::size_t version) const { return version_[version].factor; }
  // Without self-loops the lightest edge decides how closely can be computed: what rows may leave,
  // and the lightest that any row has given or left so far (1 before the first).
  void set_lightest_accepted(double weight) { lightest_accepted_ = weight; }
  double lightest() const { return lightest_; }
  int forget(std::size_t version) const { return version_[version].spec.forget; }
  // The most that edges forgotten by any row of a version can weigh, in stored units.
  double forgotten(std::size_t version) const {
    return version_[version].spec.kind == VersionSpec::Kind::decay ? forgotten_share_ * self_loop_
                                                                   : 0;
  }
  bool reads_time() const;
  bool decays() const { return user_.layers() > 1; }

  // Edges of the user's graph, or of a version in present units.
  struct Edges {
    std::vector<std::int64_t> src, dst;
    std::vector<double> weight;
  };
  Edges edges_of(std::optional<std::size_t> version) const;
  // Rows that turn the user's graph into exactly the given edges (merged, weights summed).
  struct Difference {
    std::vector<std::int64_t> src, dst;
    std::vector<double> weight;
    std::vector<std::uint8_t> op;
  };
  Difference difference(const Rows& snapshot) const;

  // Everything needed to go on to the bit, as named arrays.
  void archive(Archive& archive);

 private:
  struct Decay {
    int layer = 0;
    std::int64_t boundary = 0;          // the last one passed
    std::vector<std::int64_t> renewed;  // per node: when its self-loop last was, by an event
    // Nodes whose row is other than a self-loop renewed at the boundary.
    std::vector<Node> active;
    std::vector<std::uint8_t> is_active;
    void activate(Node node);
  };
  struct Version {
    VersionSpec spec;
    Decay decay;
    std::optional<EdgeWindow> window;
    std::vector<Swept> swept;           // by the last step
    double factor = 1;                  // of the weights in them
    std::int64_t planned_boundary = 0;  // that of the end of the step being checked
  };
  struct Staged {
    Node src, dst;
    std::int64_t t;  // of its last row
  };

  std::uint64_t key(Node src, Node dst) const;
  double half_lives(const Version& version, std::int64_t t) const;  // since the first event
  double half_lives(const Version& version, std::int64_t t, std::int64_t boundary) const;
  double stored_loop(const Version& version, Node node) const;
  const Graph& graph_of(const Version& version) const;
  double floor_of(const Version& version, double lightest, double longest) const;
  void grow(std::size_t count);
  std::size_t stage_edge(Node src, Node dst);
  void check_nodes(const Rows& rows, std::size_t row, std::size_t nodes) const;
  void check_row(const Rows& rows, std::size_t row, std::size_t nodes);
  void check_weight(const Rows& rows, std::size_t row, double weight);
  Sum sum_row(const View& view, Node node) const;
  void sum_degrees();
  void pass_boundaries(std::size_t version);
  void renew(std::size_t version, Node node, std::int64_t t);
  void enter_window(Version& version, const Rows& rows);
  void remove_node(Node node);
  void resum_cancelled();
  template <class Visit>
  void for_views(std::size_t version, Visit visit) {
    for (View& view : views_)
      if (view.version() == version) visit(view);
  }

  double self_loop_, forgotten_share_;
  Graph user_;  // layer 0: the user's weights; one further layer per half-life
  std::vector<Version> version_;
  std::vector<View> views_;
  std::vector<std::uint8_t> removed_;
  bool timed_ = false;
  std::int64_t start_ = 0, now_ = 0;
  std::int64_t planned_start_ = 0;  // start_, or what a first timed step will make it
  std::size_t first_row_ = 0;
  double lightest_ = 1, lightest_accepted_ = kLightest;

  // Scratch of a step.
  std::vector<Staged> staged_;
  std::vector<double> staged_weights_;  // [staged, layers]
  PairMap staged_index_;
  std::vector<double> user_after_;  // the user's weight after each row
  double planned_lightest_ = 1;
};

}  // namespace tidegraph
