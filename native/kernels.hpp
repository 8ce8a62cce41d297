// The inner loops of propagation. kernels.cpp is compiled once per instruction set, so this header
// holds plain data only: an inline function here could be emitted with instructions that the
// machine does not have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidegraph {

using Node = std::uint32_t;

// One adjacency list: `capacity` neighbours, then `capacity` weights per layer, then the index of a
// long list.
struct List {
  std::uint32_t* block = nullptr;
  std::uint32_t size = 0;
  std::uint32_t capacity = 0;
};

// Lists that nobody changes, one after the other: the list of a node is
// neighbours[offsets[node], offsets[node + 1]). Where there are no weights every entry counts one,
// and a neighbour may stand in a list several times, one after the other. The list of a node that
// has changed lies in a page of lists above them, whose size is kUntouched where it has not; pages
// are made when needed.
struct CompactLists {
  std::size_t nodes = 0;  // later nodes have lists in pages only
  const std::uint64_t* offsets = nullptr;
  const Node* neighbours = nullptr;
  const float* weights = nullptr;
  const List* const* pages = nullptr;
};
inline constexpr std::uint32_t kUntouched = 0xffffffff;
inline constexpr std::size_t kPageLists = 4096;

// The entries of a list, wherever it lies.
struct Entries {
  const Node* neighbours = nullptr;
  const float* weights = nullptr;  // null: all one
  std::uint32_t size = 0;
};

// The lists a push at a node walks (those with an edge into it; two for a symmetrised directed
// graph), in one layer; in one form or the other.
struct Lists {
  const List* lists[2] = {nullptr, nullptr};
  const CompactLists* compact[2] = {nullptr, nullptr};
  int layer = 0;
};

// A node whose degree changed, with the correction of its residual,
//   R += on_features * x + on_estimate * p + per_term * sum over its terms of change * p(other),
// its changed neighbours being the terms [first, last).
struct Moved {
  Node node;
  std::uint32_t first, last;
  double on_features, on_estimate;
  // Where a degree grew manyfold while time passed, keeping p would make the estimate grow with it
  // and drown the residual in rounding. Then p shrinks by this factor instead, and the neighbours'
  // residuals take the difference; 1 elsewhere.
  double shrink;
  double pivot;   // that of the node, in full precision
  bool vanished;  // removed, or without a degree: estimate and residual become zero
};
struct Term {
  Node other;
  double change;
};

// Features [nodes, width] that are kept as rows, or are read one at a time.
template <class Real>
struct FeatureRows {
  const Real* kept;  // null where they are read
  void* reader;
  const Real* (*read)(void* reader, Node node);  // valid until the next call
};

// The state of one channel on one block of columns, row-major [nodes, width], a row being a
// multiple of kVectorBytes, or of kNarrowBytes. Estimates and residuals are kept scaled: p =
// estimate / d^(1-beta) and R = residual
// * d^beta, in units of the column's threshold. The exponent beta then drops out of every loop,
// changing a degree changes no estimate, and the rule to stop reads |R| <= limit.
template <class Real>
struct Block {
  std::size_t nodes, width;
  Real* estimate;
  Real* residual;
  FeatureRows<Real> features;
  const Real* limit;  // per node
  const Real* pivot;  // per node: degree less gamma times the self-weight
  double gamma;
  double gain;        // estimate gained per unit pushed: gamma0, in the units of the stored arrays
  Real per_gain;      // 1 / gain
  Real relaxed_gain;  // gain times the over-relaxation, which is 1 for a plain push
  Node* queue;        // ring of nodes + 1 entries
  std::size_t head, queued;
  std::uint8_t* marks;  // kQueued | kTouched per node
  // Nodes that moved since it was last emptied, the first `touched_room` of them; the marks tell
  // all.
  Node* touched;
  std::size_t touches, touched_room;
  std::uint64_t pushes, edge_pushes, stalled;
};
inline constexpr std::uint8_t kQueued = 1, kTouched = 2;
inline constexpr std::size_t kMaxWidth = 256;
// Rows are worked on in vectors of this many bytes; where columns are so few that one narrow vector
// holds them all, in narrow ones, since zeros would take half of the memory.
inline constexpr std::size_t kVectorBytes = 32, kNarrowBytes = 16;

// The matrix of a channel. A push at a node walks a column of it; its residual follows from a row.
struct Matrix {
  Lists columns, rows;
  const double* degree;  // per node
  double residual_unit;  // stored residual = unit * natural residual
};

// Some nodes [first, last), and what else their residuals follow from; needed seldom, and then
// computed.
template <class Real>
struct Range {
  std::size_t first, last;
  const double* pivot;  // per node from `first` on
  const double* power;  // degree^beta
  FeatureRows<Real> features;
};

// What the invariant says about the residuals, from estimates and graph alone.
struct Measured {
  double* ratio;  // [width]: max |residual| / degree
  double drift;   // max |stored - true| / limit
  double excess;  // max |true| / limit
};

template <class Real>
struct Kernels {
  // Pushes until no node is above its limit.
  void (*settle)(Block<Real>&, const Matrix&);
  // Corrects the residuals of the nodes that moved and queues those above their limit.
  void (*correct)(Block<Real>&, const Matrix&, const Moved*, std::size_t, const Term*,
                  double per_term);
  // Queues the nodes [first, last) that are above their limit; says of all that they moved, on
  // request.
  void (*scan)(Block<Real>&, std::size_t first, std::size_t last, bool moved);
  // The kernels below work on a range of nodes and change only its rows: ranges may be worked on at
  // the same time.
  // Evaluates the residuals in float64 and compares; `largest` is that of the estimates of all
  // nodes, per column, as `peak` finds it.
  void (*measure)(const Block<Real>&, const Matrix&, const Range<Real>&, const double* largest,
                  Measured&);
  void (*peak)(const Block<Real>&, std::size_t first, std::size_t last, double* largest);
  // Puts residuals evaluated in float64 in the place of the stored ones.
  void (*rewrite)(Block<Real>&, const Matrix&, const Range<Real>&);
  // One step of Jacobi's iteration: writes to `next`, [nodes, width], the estimates with every
  // residual pushed to its own node. Returns how many nodes were above their limit before.
  std::size_t (*sweep)(const Block<Real>&, const Matrix&, const Range<Real>&, Real* next);
};

// The kernels for the rows of a block.
template <class Real>
const Kernels<Real>& kernels(const Block<Real>& block);

}  // namespace tidegraph
