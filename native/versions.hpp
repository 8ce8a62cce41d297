// The user's graph and the versions of it that channels see: all edges, decaying edges, and the
// edges inside a window. Turns rows of events into changes of weights and degrees. The only part of
// the engine that knows time; it knows nothing of features.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "edge_window.hpp"
#include "events.hpp"
#include "graph.hpp"
#include "pairmap.hpp"
#include "sum.hpp"
#include "view.hpp"

namespace tidegraph {

struct VersionSpec {
  enum class Kind : std::uint8_t { all = 0, decay = 1, window = 2, last = 3 };
  Kind kind = Kind::all;
  double half_life = 0;
  // Units of time, or events.
  std::int64_t span = 0;
  // Decay without self-loops: the number of half-lives after which an edge is dropped.
  int forget = 0;
  bool operator==(const VersionSpec&) const = default;
};

inline constexpr std::size_t kMaxNodes = 0xfffffffe;  // node numbers take 32 bits; one is reserved
inline constexpr int kMaxLayers = 64;                 // the user's weights and one per half-life

class Versions {
 public:
  // forgotten_share: the most that the edges dropped from a row may weigh, relative to a self-loop.
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

  // The lists that a push on a view walks, and those of its rows. Valid until the next step.
  Lists columns(const View& view) const;
  Lists rows(const View& view) const;
  // Self-loop plus self-edge, in the units of the view.
  double self_weight(const View& view, Node node) const;
  double stored_loop(const View& view, Node node) const {
    return stored_loop(version_[view.version()], node);
  }
  // The self-loop of a node in present units.
  double loop(std::size_t version, Node node) const;
  // Stored weights of a decaying version are in units of the last boundary, a whole number of
  // half-lives after the first event. These are a weight of one in those units, now and at the next
  // boundary; 1 for other versions.
  double present(std::size_t version) const;
  double horizon(std::size_t version) const;

  // One step: check, then pass_time, then change. `check` compares the rows with the graph they
  // would meet; if it throws, nothing has changed. `end` is the time that a timed step moves to.
  // Passing a boundary halves all weights of a decaying version and renews all self-loops.
  void check(const Rows& rows, std::size_t new_nodes, std::span<const std::int64_t> removed_nodes,
             std::optional<std::int64_t> end);
  void pass_time(std::optional<std::int64_t> end);
  void change(const Rows& rows, std::size_t new_nodes, std::span<const std::int64_t> removed_nodes);
  // Loads the first rows at once, without staging; returns false if these rows or versions have to
  // go through steps.
  bool load(const Rows& rows, std::optional<std::int64_t> end);
  // Starts a graph without edges from lists that outlive this object, and from self-edges. Requires
  // plain(). Throws if a weight is out of range; then nothing has changed.
  void attach_base(const CompactLists& sources, const CompactLists& targets, std::size_t edges,
                   const Entries& selves);
  // Whether every version sees all edges unchanged.
  bool plain() const;
  // The graph, to change where its lists are, not what they contain.
  Graph& graph_to_merge() { return user_; }
  // Sets the number that errors give to the first row.
  void count_rows_from(std::size_t row) { first_row_ = row; }

  // A row of a decaying version that changed as the last step passed boundaries: its weights were
  // multiplied by rescale_factor() and its self-loop was renewed. If an edge was dropped as well,
  // the row is not whole, and its residual has to be recomputed.
  struct RescaledRow {
    Node node;
    bool whole;
    double loop_before, loop_after;
  };
  // In ascending order of nodes.
  std::span<const RescaledRow> rescaled(std::size_t version) const {
    return version_[version].rescaled;
  }
  double rescale_factor(std::size_t version) const { return version_[version].rescale_factor; }

  // Without self-loops the lightest edge decides which precision is needed. Rows that leave a
  // lighter edge than this are rejected.
  void set_lightest_accepted(double weight) { lightest_accepted_ = weight; }
  // The lightest edge that any row has given or left so far; 1 before the first.
  double lightest() const { return lightest_; }
  int forget(std::size_t version) const { return version_[version].spec.forget; }
  // The most that edges dropped from any row of a version can weigh, in stored units.
  double forgotten(std::size_t version) const {
    return version_[version].decays() ? forgotten_share_ * self_loop_ : 0;
  }
  bool reads_time() const;
  bool decays() const { return user_.layers() > 1; }

  // Edges of the user's graph, or of a version in present units.
  struct Edges {
    std::vector<std::int64_t> src, dst;
    std::vector<double> weight;
  };
  Edges edges_of(std::optional<std::size_t> version) const;
  // Those of the user's graph that begin or end at a node; undirected ones once.
  Edges edges_at(Node node) const;
  // Rows that turn the user's graph into exactly the given edges (merged, weights summed).
  struct Difference {
    std::vector<std::int64_t> src, dst;
    std::vector<double> weight;
    std::vector<std::uint8_t> op;
  };
  Difference difference(const Rows& snapshot) const;

  // Everything needed to continue to the bit, as named arrays.
  void archive(Archive& archive);

 private:
  struct Decay {
    int layer = 0;
    // The last boundary passed.
    std::int64_t boundary = 0;
    // Per node: the time of the last event that renewed its self-loop.
    std::vector<std::int64_t> renewed;
    // Nodes whose row is more than a self-loop renewed at the boundary.
    std::vector<Node> active;
    std::vector<std::uint8_t> is_active;
    void activate(Node node);
  };
  struct Version {
    VersionSpec spec;
    Decay decay;
    std::optional<EdgeWindow> window;
    std::vector<RescaledRow> rescaled;  // by the last step
    double rescale_factor = 1;
    std::int64_t planned_boundary = 0;  // at the end of the step being checked
    bool decays() const { return spec.kind == VersionSpec::Kind::decay; }
  };
  struct Staged {
    Node src, dst;
    std::int64_t t;  // of its last row
  };

  std::uint64_t key(Node src, Node dst) const;
  double half_lives(const Version& version, std::int64_t t) const;
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
  std::size_t first_row_ = 0;
  double lightest_ = 1, lightest_accepted_ = kLightest;

  // What check() staged for change().
  std::vector<Staged> staged_;
  std::vector<double> staged_weights_;  // [staged, layers]
  PairMap staged_index_;
  std::vector<double> user_after_;  // the user's weight after each row
  std::int64_t planned_start_ = 0;  // start_, or what a first timed step will set it to
  double planned_lightest_ = 1;
};

}  // namespace tidegraph
