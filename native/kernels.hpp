// The inner loops of propagation. kernels.cpp is compiled once per instruction set, so this header
// holds plain data only: an inline function here could be emitted with instructions that the
// machine does not have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidegraph {

using Node = std::uint32_t;

// One adjacency list: `capacity` neighbours, then `capacity` weights per layer, then the fractions
// of the weights per layer, where there are any, then the index of a long list.
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
  const std::int32_t* fractions = nullptr;  // of the weights; null: none
  const List* const* pages = nullptr;
};
inline constexpr std::uint32_t kUntouched = 0xffffffff;
inline constexpr std::size_t kPageLists = 4096;

// The entries of a list, wherever it lies. A weight is kept as the nearest float32, which a push in
// float32 reads, and what that rounds away, in units of 2^-31 of its last place: together they are
// the float64.
struct Entries {
  const Node* neighbours = nullptr;
  const float* weights = nullptr;           // null: all one
  const std::int32_t* fractions = nullptr;  // null: none
  std::uint32_t size = 0;
};
inline constexpr int kFractionBits = 31;

// The lists a push at a node walks (those with an edge into it; two for a symmetrised directed
// graph), in one layer; in one form or the other.
struct Lists {
  const List* lists[2] = {nullptr, nullptr};
  const CompactLists* compact[2] = {nullptr, nullptr};
  int layer = 0, layers = 1;
  bool fine[2] = {false, false};  // whether lists have room for fractions
};

// A node whose degree changed, with the correction of its residual,
//   R = on_residual * R + on_features * x + on_estimate * p
//       + gamma * sum over its terms of change * p(other),
// its changed neighbours being the terms [first, last).
struct Moved {
  Node node;
  std::uint32_t first, last;
  double on_residual;  // 1, or the factor by which its whole row was multiplied
  double on_features, on_estimate;
  double limit;   // the rule to stop, with the new degree
  double noise;   // what rounding can do to the correction
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

// What the push loop knows of a node, in one place of memory: where it may stop, how far the stored
// residual may be from the true one, and by how much it may be above its limit. The last is
// positive while the node waits in the queue, and 0 elsewhere.
template <class Real>
struct Bounds {
  Real limit, drift, excess;
};

// The state of one channel on one block of columns, row-major [nodes, width], a row being a
// multiple of kVectorBytes, or of kNarrowBytes. Estimates and residuals are kept scaled:
// p = estimate / (gamma0 d^(1-beta)) and R = residual * d^beta, in units of the column's threshold.
// gamma0 and the exponent beta then drop out of every loop, changing a degree changes no estimate,
// and the rule to stop reads |R| + drift <= limit. Whatever changes a residual adds to its drift
// what rounding can have done to it, so that the rule holds for the true residual, too; where drift
// takes a large part of a limit, the residual is computed anew.
template <class Real>
struct Block {
  std::size_t nodes, width;
  Real* estimate;
  Real* residual;
  Bounds<Real>* bounds;  // per node
  FeatureRows<Real> features;
  const Real* pivot;  // per node: degree less gamma times the self-weight
  double gamma;
  Real steepness;   // |gamma|, rounded up
  Real relaxation;  // 1 for a plain push
  double noise;     // how far a residual computed in float64 may be off, per unit of degree
  Node* queue;      // a ring with room for more than all nodes, as large as a power of two
  std::size_t head, queued, ring;  // where it begins, how many wait, its size less one
  // Nodes that moved since it was last emptied, the first `touched_room` of them; the marks, one
  // per node, tell all.
  std::uint8_t* is_touched;
  Node* touched;
  std::size_t touches, touched_room;
  std::uint64_t pushes, edge_pushes, rewrites, stalled;
  std::uint64_t most_pushes;  // in one call of settle; the rest then counts as stalled
  // Where a call that was interrupted goes on: its level, 0 where none was, what was left of the
  // round, and the pushes before it.
  Real level;
  std::size_t round;
  std::uint64_t begun;
  void* owner;
  void (*rewrite)(void* owner, Node node);  // computes the residual of a node anew
  bool (*interrupted)(void* owner);         // whether to leave the rest for later
};
inline constexpr std::size_t kMaxWidth = 256;
// Rows are worked on in vectors of this many bytes; where columns are so few that one narrow vector
// holds them all, in narrow ones, since zeros would take half of the memory.
inline constexpr std::size_t kVectorBytes = 32, kNarrowBytes = 16;

// The matrix of a channel. A push at a node walks a column of it; its residual follows from a row.
struct Matrix {
  Lists columns, rows;
  const double* degree;  // per node
  double forgotten;      // what entries that a row has lost can weigh
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
  double* ratio;     // [width]: max |residual| / degree
  double drift;      // max |stored - true| / limit
  double untracked;  // max (|stored - true| - what the drift of the node admits) / limit
  double excess;     // max |true| / limit
};

// How much weights that decayed, or were summed in a window, can differ from exact ones, as a share
// of them.
inline constexpr double kWeightRounding = 0x1p-49;
// Evaluating a residual in float64 is off by at most this share of the sum of its terms: in a plain
// sum of up to kPlainSum terms for float32, in a compensated one elsewhere.
template <class Real>
inline constexpr double kEvaluation = sizeof(Real) == 4 ? 0x1p-40 : 0x1p-49;
inline constexpr std::uint32_t kPlainSum = 1 << 12;

template <class Real>
struct Kernels {
  // Pushes until no node is above its limit, or it is interrupted: what waits then stays queued.
  void (*settle)(Block<Real>&, const Matrix&);
  // Corrects the residuals of the nodes that moved and queues those above their limit.
  void (*correct)(Block<Real>&, const Moved*, std::size_t, const Term*);
  // Queues the nodes [first, last) that are above their limit; says of all that they moved, on
  // request.
  void (*scan)(Block<Real>&, std::size_t first, std::size_t last, bool moved);
  // The kernels below work on a range of nodes and change only its rows: ranges may be worked on at
  // the same time.
  // Evaluates the residuals in float64 and compares them; `largest` is that of the estimates of all
  // nodes, per column, as `peak` finds it.
  void (*measure)(const Block<Real>&, const Matrix&, const Range<Real>&, const double* largest,
                  Measured&);
  void (*peak)(const Block<Real>&, std::size_t first, std::size_t last, double* largest);
  // Puts residuals evaluated in float64 in the place of the stored ones, which ends their drift.
  void (*rewrite)(Block<Real>&, const Matrix&, const Range<Real>&);
  // One step of Jacobi's iteration: writes to `next`, [nodes, width], the estimates with every
  // residual pushed to its own node. Returns how many nodes were above their limit before.
  std::size_t (*sweep)(const Block<Real>&, const Matrix&, const Range<Real>&, Real* next);
};

// The kernels for the rows of a block.
template <class Real>
const Kernels<Real>& kernels(const Block<Real>& block);

}  // namespace tidegraph
