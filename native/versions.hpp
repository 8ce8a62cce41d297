// The user's graph and the versions of it that channels see: all edges, edges that decay, edges
// inside a window. Turns rows of events into changes of weights and degrees. Knows time; knows
// nothing of features.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "graph.hpp"

namespace tidegraph {

// A row that cannot be applied. Thrown before anything has changed.
struct EventError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

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
  int forget = 0;         // decay: half-lives after which a unit of weight is negligible
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
        symmetric_(!directed || direction == Direction::both) {}

  std::size_t version() const { return version_; }
  Direction direction() const { return direction_; }
  bool symmetric() const { return symmetric_; }
  double degree(Node node) const { return degree_[node]; }
  const std::vector<double>& degrees() const { return degree_; }
  std::span<const Degree> moved() const { return moved_; }
  std::span<const Term> terms() const { return terms_; }
  std::size_t bytes() const {
    return (degree_.size() + carry_.size()) * sizeof(double) + slot_.size() * sizeof(std::uint32_t);
  }

  void begin();                    // forgets the last step
  void append(std::size_t count);  // new nodes, whose degrees are to be set
  void touch(Node node);           // counts as moved even when its degree stays
  void change_row(Node row, Node other, double change);  // one entry of the matrix
  void change_edge(Node src, Node dst, double change);   // an edge, in whatever entries it stands
  void scale(double factor);                             // a power of two
  void reset(Node node, double degree);                  // sets a degree summed anew
  void finish();                                         // groups the terms by row

 private:
  friend class Versions;
  std::vector<double> degree_;
  std::vector<double> carry_;  // what rounding has kept from it; empty while that is nothing
  std::size_t version_;
  Direction direction_;
  bool symmetric_;
  // Index into moved_ plus one, zero where not moved; empty before anything has.
  std::vector<std::uint32_t> slot_;
  std::vector<Degree> moved_;
  struct Entry {
    std::uint32_t slot;
    Term term;
  };
  std::vector<Entry> entries_;
  std::vector<Term> terms_;
};

// From pairs of nodes to small integers, by open addressing; nothing is allocated once it has
// grown.
class PairMap {
 public:
  static constexpr std::uint32_t kAbsent = 0xffffffff;
  std::uint32_t find(std::uint64_t key) const;
  void insert(std::uint64_t key, std::uint32_t value);  // key must be absent
  void erase(std::uint64_t key);                        // key must be present
  std::size_t size() const { return size_; }
  std::size_t bytes() const {
    return keys_.size() * (sizeof(std::uint64_t) + sizeof(std::uint32_t));
  }

 private:
  std::size_t home(std::uint64_t key) const;
  std::size_t locate(std::uint64_t key) const;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> values_;
  std::size_t size_ = 0;
};

class Versions {
 public:
  Versions(std::size_t nodes, bool directed, double self_loop, std::vector<VersionSpec> specs,
           std::vector<std::pair<std::size_t, Direction>> views);

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
  // Decay: what a weight of one counts in stored units now, and at the next boundary; 1 elsewhere.
  // Stored units are those of the time `unit` half-lives after the first event.
  double present(std::size_t version) const;
  double horizon(std::size_t version) const;
  std::int64_t unit(std::size_t version) const { return version_[version].decay.unit; }
  // Moves the reference of every decayed version to the present. Returns true where anything moved.
  bool rescale();

  // One step: check, then pass_time, then change. Rows are checked against the graph they would
  // meet; nothing has changed when check throws. `end` is the time the step moves to, if it is
  // timed. Time passes on its own first: an idle node's degree may grow a million-fold when its
  // self-loop is renewed, and the corrections that follow from that must be made before new edges
  // meet the old estimate.
  void check(const Rows& rows, std::size_t new_nodes, std::span<const std::int64_t> removed_nodes,
             std::optional<std::int64_t> end);
  void pass_time(std::optional<std::int64_t> end);
  void change(const Rows& rows, std::size_t new_nodes, std::span<const std::int64_t> removed_nodes);
  // The first rows of all, without staging them; false where these rows or versions need the long
  // way.
  bool load(const Rows& rows, std::optional<std::int64_t> end);
  // Starts from the lists of a graph without edges so far, which must outlive this object. Only
  // where plain(): every version sees all edges as they are.
  void stand_on(const CompactLists& sources, const CompactLists& targets, std::size_t edges,
                std::span<const Node> self_nodes, std::span<const float> self_weights);
  bool plain() const;
  Graph& graph_to_merge() { return user_; }  // to change where it lies, not what it says
  // Errors count rows from here.
  void count_rows_from(std::size_t row) { first_row_ = row; }
  // What passing time did to a decayed version: limits are stale; so much changed at once that
  // residuals are better computed anew than corrected; everything was forgotten.
  bool swept(std::size_t version) const { return version_[version].swept; }
  bool leapt(std::size_t version) const { return version_[version].leapt; }
  bool restarted(std::size_t version) const { return version_[version].restarted; }
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
    std::int64_t unit = 0;      // stored weights are in units of the weight at t0 + unit half-lives
    std::int64_t boundary = 0;  // the last one swept
    std::vector<double>
        renewed;  // per node: when its self-loop was last renewed, in half-lives since t0
  };
  struct Window {
    struct Entry {
      std::int64_t t;
      std::uint64_t key;
      double weight;
    };
    struct Pair {
      double weight = 0;  // what counts now; entries in the queue sum to weight + debt
      double debt =
          0;  // what was removed or replaced before it expired, taken from the oldest entries
      std::uint32_t entries = 0;
    };
    explicit Window(bool directed) : graph(0, directed, 1) {}
    std::uint32_t pair(std::uint64_t key);  // its slot, made where absent, and marked as touched
    void mark(std::uint32_t slot);
    void lower(Pair& pair,
               double weight);  // to at most this weight, the oldest contributions first
    void archive(Archive& archive, const std::string& name);
    Graph graph;
    std::deque<Entry> queue;
    PairMap index;
    std::vector<Pair> pairs;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint32_t> vacant;
    std::vector<std::uint32_t> touched;  // slots touched in this step
    std::vector<std::uint8_t> marked;
  };
  struct Version {
    VersionSpec spec;
    Decay decay;
    std::optional<Window> window;
    bool swept = false, leapt = false, restarted = false;
    std::int64_t planned_unit = 0;
  };
  struct Staged {
    Node src, dst;
    std::int64_t t;  // of its last row
  };

  std::uint64_t key(Node src, Node dst) const;
  double half_lives(const Version& version, std::int64_t t) const;
  double stored_loop(const Version& version, Node node) const;
  const Graph& graph_of(const Version& version) const;
  bool negligible(const Version& version, double weight, double boundary, std::int64_t unit) const;
  void grow(std::size_t count);
  std::size_t stage_edge(Node src, Node dst);
  void check_nodes(const Rows& rows, std::size_t row, std::size_t nodes) const;
  void check_row(const Rows& rows, std::size_t row, std::size_t nodes);
  [[noreturn]] void refuse_lost(const Rows& rows, std::size_t row, double before) const;
  double sum_row(const View& view, Node node) const;
  void sum_degrees();
  void advance(std::size_t version);
  void renew(std::size_t version, Node node, double when);
  void renew_idle(std::size_t version);
  void enter_window(std::size_t version, const Rows& rows);
  void leave_window(std::size_t version);
  void write_window(std::size_t version);
  void remove_node(Node node);
  void resum_cancelled();
  template <class Visit>
  void for_views(std::size_t version, Visit visit) {
    for (View& view : views_)
      if (view.version() == version) visit(view);
  }

  double self_loop_;
  Graph user_;  // layer 0: the user's weights; one further layer per half-life
  std::vector<Version> version_;
  std::vector<View> views_;
  std::vector<std::uint8_t> removed_;
  bool timed_ = false;
  std::int64_t start_ = 0, now_ = 0;
  std::int64_t planned_start_ = 0;  // start_, or what a first timed step will make it
  std::size_t first_row_ = 0;

  // Scratch of a step.
  std::vector<Staged> staged_;
  std::vector<float> staged_weights_;  // [staged, layers]
  PairMap staged_index_;
  std::vector<float> user_after_;  // the user's weight after each row
};

}  // namespace tidegraph
