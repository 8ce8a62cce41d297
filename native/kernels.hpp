// The inner loops of propagation. kernels.cpp is compiled once per instruction set, so this header
// holds plain data only: the linker might choose an inline function's copy that the machine cannot
// run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidegraph {

using Node = std::uint32_t;

// One adjacency list: `capacity` neighbours, then `capacity` weights per layer, then as many
// fractions of weights per layer, if there are any, then the index of a long list.
struct List {
  std::uint32_t* block = nullptr;
  std::uint32_t size = 0;
  std::uint32_t capacity = 0;
};

// Read-only lists, one after the other: the list of a node is
// neighbours[offsets[node], offsets[node + 1]). Without weights every entry weighs one, and a list
// may repeat a neighbour in consecutive entries. The list of a node that has changed is in a page
// of lists, where the size of all others is kUntouched; pages are created when needed.
struct CompactLists {
  std::size_t nodes = 0;  // the lists of later nodes are in pages only
  const std::uint64_t* offsets = nullptr;
  const Node* neighbours = nullptr;
  const float* weights = nullptr;
  const std::int32_t* fractions = nullptr;  // of the weights; may be null
  const List* const* pages = nullptr;
};
inline constexpr std::uint32_t kUntouched = 0xffffffff;
inline constexpr std::size_t kPageLists = 4096;

// The entries of a list in either form; weights.hpp reads their weights.
struct Entries {
  const Node* neighbours = nullptr;
  const float* weights = nullptr;           // null: all one
  const std::int32_t* fractions = nullptr;  // null: all zero
  std::uint32_t size = 0;
};

// The lists that a push walks, in one layer and one of the two forms. A symmetrised directed graph
// has two lists per node.
struct Lists {
  const List* lists[2] = {nullptr, nullptr};
  const CompactLists* compact[2] = {nullptr, nullptr};
  int layer = 0, layers = 1;
  bool fine[2] = {false, false};  // whether lists have room for fractions
};

// A change of one entry in a row of the matrix.
struct Term {
  Node other;
  double change;
};

// A node whose degree changed, and the correction of its residual:
//   R = on_residual * R + on_features * x + on_estimate * p
//       + gamma * sum over its terms of change * p(other).
struct Moved {
  Node node;
  // Its terms are [first, last).
  std::uint32_t first, last;
  // 1, or the factor by which the whole row was multiplied.
  double on_residual;
  double on_features, on_estimate;
  // The stopping rule for the new degree.
  double limit;
  // A bound on the rounding error of the correction.
  double noise;
  // The node was removed or has no degree: estimate and residual become zero.
  bool vanished;
};

// Features [nodes, width], stored as rows or read one row at a time.
template <class Real>
struct FeatureRows {
  const Real* kept;  // null if they are read
  void* reader;
  const Real* (*read)(void* reader, Node node);  // valid until the next call
};

// What the push loop needs of a node, in one place of memory.
template <class Real>
struct Bounds {
  // The node may stop when |residual| + drift <= limit.
  Real limit;
  // A bound on |stored - true residual|.
  Real drift;
  // While the node is queued, a positive bound on how far it is above its limit; otherwise 0.
  Real excess;
};

// The nodes that moved since the list was last emptied.
struct TouchedList {
  std::uint8_t* marks;  // per node: complete
  Node* nodes;          // the first `room` of them, and one place more to write to
  std::size_t count, room;
};

// The state of one channel on one block of columns, row-major [nodes, width], where a row is a
// multiple of kVectorBytes or of kNarrowBytes. Estimates and residuals are stored scaled:
// p = estimate / (gamma0 d^(1-beta)) and R = residual * d^beta, in units of the column's threshold.
// gamma0 and beta then drop out of every loop, and a change of a degree changes no estimate. Every
// write to a residual adds its rounding error to the drift, so that the stopping rule holds for the
// true residual too; a residual whose drift takes a large part of the limit is recomputed.
template <class Real>
struct Block {
  std::size_t nodes, width;
  Real* estimate;
  Real* residual;
  Bounds<Real>* bounds;  // per node
  FeatureRows<Real> features;
  const Real* pivot;  // per node: degree minus gamma times the self-weight
  double gamma;
  Real steepness;   // |gamma|, rounded up
  Real relaxation;  // 1 for a plain push
  double noise;     // the error of a residual computed in float64, per unit of degree

  // Queued nodes: a ring with room for more than all nodes; its size is a power of two.
  Node* queue;
  std::size_t head, queued;
  std::size_t ring;  // its size minus one

  TouchedList touched;

  std::uint64_t pushes, edge_pushes, rewrites, stalled;
  // The most pushes of one call of converge; nodes queued after those count as stalled.
  std::uint64_t most_pushes;

  // Where to resume an interrupted call: its level (0 if none was interrupted), what was left of
  // the round, and the number of pushes before the call.
  Real level;
  std::size_t round;
  std::uint64_t begun;

  void* owner;
  // Recomputes the residual of a node.
  void (*rewrite)(void* owner, Node node);
  // Returns whether to stop and leave the rest for later.
  bool (*interrupted)(void* owner);
};
inline constexpr std::size_t kMaxWidth = 256;
// Rows are processed in vectors of kVectorBytes. If one narrow vector holds all columns, rows are
// narrow: padding would take half of the memory.
inline constexpr std::size_t kVectorBytes = 32, kNarrowBytes = 16;

// The matrix of a channel. A push at a node walks a column; a residual follows from a row.
struct Matrix {
  Lists columns, rows;
  const double* degree;  // per node
  double forgotten;      // a bound on the weight of entries dropped from a row
};

// The nodes [first, last) and what else their residuals follow from. Computed when needed, which is
// seldom.
template <class Real>
struct Range {
  std::size_t first, last;
  const double* pivot;  // per node from `first` on
  const double* power;  // degree^beta
  FeatureRows<Real> features;
};

// What estimates and graph say about the residuals.
struct Measured {
  double* ratio;     // [width]: max |residual| / degree
  double drift;      // max |stored - true| / limit
  double untracked;  // max (|stored - true| - drift of the node) / limit
  double excess;     // max |true| / limit
};

// A bound on the relative error of weights that decayed or were summed in a window.
inline constexpr double kWeightRounding = 0x1p-49;
// A bound on the error of a residual evaluated in float64, relative to the sum of its terms: a
// plain sum of up to kPlainSum terms for float32, a compensated one otherwise.
template <class Real>
inline constexpr double kEvaluation = sizeof(Real) == 4 ? 0x1p-40 : 0x1p-49;
inline constexpr std::uint32_t kPlainSum = 1 << 12;

template <class Real>
struct Kernels {
  // Pushes until no node is above its limit, or until interrupted: then nodes stay queued.
  void (*converge)(Block<Real>&, const Matrix&);
  // Corrects the residuals of the nodes that moved and queues those above their limit.
  void (*correct)(Block<Real>&, const Moved*, std::size_t, const Term*);
  // Queues the nodes [first, last) that are above their limit, and marks all of them as touched if
  // `moved`.
  void (*scan)(Block<Real>&, std::size_t first, std::size_t last, bool moved);

  // The kernels below change only the rows of their range, so that ranges can run in parallel.

  // Evaluates the residuals in float64 and compares them with the stored ones. `largest` holds the
  // largest |estimate| of all nodes per column, from `peak`.
  void (*measure)(const Block<Real>&, const Matrix&, const Range<Real>&, const double* largest,
                  Measured&);
  void (*peak)(const Block<Real>&, std::size_t first, std::size_t last, double* largest);
  // Replaces the stored residuals by ones evaluated in float64, which resets their drift.
  void (*rewrite)(Block<Real>&, const Matrix&, const Range<Real>&);
  // One step of Jacobi's iteration: writes to `next`, [nodes, width], the estimates with every
  // residual pushed to its own node. Returns how many nodes were above their limit before.
  std::size_t (*sweep)(const Block<Real>&, const Matrix&, const Range<Real>&, Real* next);
};

// Returns the kernels for this machine and the rows of a block.
template <class Real>
const Kernels<Real>& kernels(const Block<Real>& block);

}  // namespace tidegraph
