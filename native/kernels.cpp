#include "kernels.hpp"

// Compiled several times with TIDEGRAPH_KERNELS_NS naming the instruction set and the size of its
// vectors, TIDEGRAPH_VECTOR_BYTES; see CMakeLists.txt.
#ifndef TIDEGRAPH_KERNELS_NS
#define TIDEGRAPH_KERNELS_NS generic
#endif
#ifndef TIDEGRAPH_VECTOR_BYTES
#define TIDEGRAPH_VECTOR_BYTES 32
#endif

namespace tidegraph::TIDEGRAPH_KERNELS_NS {
namespace {

template <class Real>
struct Vector;
constexpr std::size_t kBytes = TIDEGRAPH_VECTOR_BYTES;
template <class Real>
constexpr std::size_t kLanes = kBytes / sizeof(Real);
template <>
struct Vector<float> {
  typedef float type __attribute__((vector_size(TIDEGRAPH_VECTOR_BYTES), may_alias));
};
template <>
struct Vector<double> {
  typedef double type __attribute__((vector_size(TIDEGRAPH_VECTOR_BYTES), may_alias));
};
typedef long long Bits __attribute__((vector_size(TIDEGRAPH_VECTOR_BYTES)));

template <class V>
inline bool any(V mask) {
#if defined(__AVX__) && TIDEGRAPH_VECTOR_BYTES == 32
  return __builtin_ia32_movmskps256(reinterpret_cast<Vector<float>::type>(mask)) != 0;
#elif defined(__SSE__) && TIDEGRAPH_VECTOR_BYTES == 16
  return __builtin_ia32_movmskps(reinterpret_cast<Vector<float>::type>(mask)) != 0;
#else
  const Bits bits = reinterpret_cast<Bits>(mask);
  long long found = 0;
  for (std::size_t i = 0; i < kBytes / sizeof(long long); ++i) found |= bits[i];
  return found != 0;
#endif
}

// Running extremes of the values of a row, compared with the limit once at its end: no branch, no
// early exit.
template <class Real>
struct Extremes {
  using V = typename Vector<Real>::type;
  V high = {}, low = {};
  inline void see(V v) {
    high = v > high ? v : high;
    low = v < low ? v : low;
  }
  inline bool exceed(Real limit) const { return any((high > limit) | (low < -limit)); }
};

template <class Real>
inline typename Vector<Real>::type* row(Real* base, const Block<Real>& block, Node node) {
  return reinterpret_cast<typename Vector<Real>::type*>(base + std::size_t(node) * block.width);
}

template <class Real>
inline const Real* features_of(const FeatureRows<Real>& features, std::size_t width, Node node) {
  if (features.kept) return features.kept + std::size_t(node) * width;
  return features.read(features.reader, node);
}

template <class Real>
inline Extremes<Real> extremes_of(const Block<Real>& block, Node node) {
  const std::size_t vectors = block.width / kLanes<Real>;
  const auto* r = row(block.residual, block, node);
  Extremes<Real> extremes;
  for (std::size_t c = 0; c < vectors; ++c) extremes.see(r[c]);
  return extremes;
}

template <class Real>
inline bool above(const Block<Real>& block, Node node) {
  return extremes_of(block, node).exceed(block.limit[node]);
}

template <class Real>
inline void offer(Block<Real>& block, Node node, bool wanted) {
  if (!wanted || (block.marks[node] & kQueued)) return;
  const std::size_t slot = block.head + block.queued++;
  block.queue[slot >= block.nodes ? slot - block.nodes : slot] = node;
  block.marks[node] |= kQueued;
}

template <class Real>
inline void touch(Block<Real>& block, Node node) {
  if (block.marks[node] & kTouched) return;
  block.marks[node] |= kTouched;
  block.touched[block.touches < block.touched_room ? block.touches : block.touched_room] = node;
  ++block.touches;
}

template <bool kToWrite>
inline void fetch(const void* memory, std::size_t bytes) {
  for (std::size_t byte = 0; byte < bytes; byte += 64)
    __builtin_prefetch(static_cast<const char*>(memory) + byte, kToWrite);
}

inline bool is_compact(const Lists& lists) { return lists.compact[0] || lists.compact[1]; }

// The entries of a node in the first or second of the lists. Pushes are compiled for one form at a
// time: on a stream of small steps a question per push costs some percent.
template <bool kCompact>
inline Entries entries_at(const Lists& lists, int which, Node node) {
  const auto weights_of = [&](const List& list) {
    return reinterpret_cast<const float*>(list.block + std::size_t(list.capacity) *
                                                           std::size_t(1 + lists.layer));
  };
  if constexpr (!kCompact) {
    if (!lists.lists[which]) return {};
    const List& list = lists.lists[which][node];
    return {list.block, weights_of(list), list.size};
  }
  if (!lists.compact[which]) return {};
  const CompactLists& base = *lists.compact[which];
  const List* const page = base.pages[node / kPageLists];
  if (page && page[node % kPageLists].size != kUntouched) {
    const List& list = page[node % kPageLists];
    return {list.block, weights_of(list), list.size};
  }
  if (node >= base.nodes) return {};
  const std::uint64_t first = base.offsets[node], last = base.offsets[node + 1];
  return {base.neighbours + first, base.weights ? base.weights + first : nullptr,
          std::uint32_t(last - first)};
}

inline Entries entries_in(const Lists& lists, int which, Node node) {
  return is_compact(lists) ? entries_at<true>(lists, which, node)
                           : entries_at<false>(lists, which, node);
}

// Adds weight * q to the residual of every neighbour and queues those that cross their limit.
// Fields are copied to locals, since a store through a vector may alias them. Queueing is written
// without a branch, since whether a neighbour crosses its limit is a coin toss: the entry behind
// the last is always written, and counted only when it is wanted.
template <bool kCompact, class Real>
inline void spread(Block<Real>& block, const Lists& graph, Node node,
                   const typename Vector<Real>::type* q) {
  using V = typename Vector<Real>::type;
  constexpr std::uint32_t kAhead = 8;
  const std::size_t vectors = block.width / kLanes<Real>, nodes = block.nodes, head = block.head;
  V* const residual = reinterpret_cast<V*>(block.residual);
  const Real* const limit = block.limit;
  std::uint8_t* const marks = block.marks;
  Node* const queue = block.queue;
  std::size_t queued = block.queued;
  const auto walk = [&](const Node* neighbours, std::uint32_t size,
                        auto weight_of) __attribute__((always_inline)) {
    for (std::uint32_t e = 0; e < size; ++e) {
      if (e + kAhead < size)
        fetch<true>(residual + neighbours[e + kAhead] * vectors, vectors * sizeof(V));
      const Node other = neighbours[e];
      const Real weight = weight_of(e);
      V* const target = residual + other * vectors;
      Extremes<Real> extremes;
#pragma GCC unroll 2
      for (std::size_t c = 0; c < vectors; ++c) {
        const V sum = target[c] + weight * q[c];
        target[c] = sum;
        extremes.see(sum);
      }
      const unsigned crosses = extremes.exceed(limit[other]), mark = marks[other];
      std::size_t slot = head + queued;
      slot = slot >= nodes ? slot - nodes : slot;
      queue[queued == nodes ? nodes : slot] =
          other;  // a full queue holds every node: nothing is wanted
      queued += crosses & ~mark & kQueued;
      marks[other] = std::uint8_t(mark | crosses);
    }
    block.edge_pushes += size;
  };
  for (int which = 0; which < 2; ++which) {
    const Entries list = entries_at<kCompact>(graph, which, node);
    if (list.size == 0) continue;
    if (const float* const weights = list.weights; weights || !kCompact)
      walk(list.neighbours, list.size, [weights](std::uint32_t e) { return Real(weights[e]); });
    else
      walk(list.neighbours, list.size, [](std::uint32_t) { return Real(1); });
  }
  block.queued = queued;
}
static_assert(kQueued == 1, "spread() writes a truth value as the mark");

// One push. The estimate gains what the addition achieved in the precision at hand and the residual
// loses exactly that; a step too small for the estimate to feel stays in the residual. Where steps
// come down to single ulps, rounding can turn relaxation into over-shooting that never ends:
// the careful form lets columns wait whose step is below four half-ulps.
template <bool kCareful, bool kCompact, class Real>
inline void push(Block<Real>& block, const Lists& graph, Node node) {
  using V = typename Vector<Real>::type;
  constexpr Real kFeel = sizeof(Real) == 4 ? Real(0x1p-22) : Real(0x1p-51);
  const std::size_t vectors = block.width / kLanes<Real>;
  V* const p = row(block.estimate, block, node);
  V* const r = row(block.residual, block, node);
  V q[kMaxWidth / kLanes<Real>];
  const Real pivot = block.pivot[node], relaxed = block.relaxed_gain / pivot;
  if (pivot <= 0) return;  // lost its last edge while it waited: settled exactly
  const Real per_gain = block.per_gain, gamma = Real(block.gamma);
  Extremes<Real> after;
  bool moved = !kCareful;
  for (std::size_t c = 0; c < vectors; ++c) {
    const V old = p[c], rest = r[c];
    V step = rest * relaxed;
    if constexpr (kCareful) {
      const V floor = old * kFeel;
      const auto felt = ((step > floor) & (step > -floor)) | ((step < floor) & (step < -floor));
      step = felt ? step : V{};
      moved |= any(felt);
    }
    const V sum = old + step;
    const V pushed = (sum - old) * per_gain;
    const V left = rest - pivot * pushed;
    p[c] = sum;
    r[c] = left;
    q[c] = gamma * pushed;
    after.see(left);
  }
  ++block.pushes;
  touch(block, node);
  spread<kCompact>(block, graph, node, q);
  // Over-relaxation and rounding may leave this node above its limit.
  const bool again = after.exceed(block.limit[node]);
  offer(block, node, again && moved);
  block.stalled += again && !moved;
}

template <class Real>
inline Node pop(Block<Real>& block) {
  const Node node = block.queue[block.head];
  block.head = block.head + 1 == block.nodes ? 0 : block.head + 1;
  --block.queued;
  block.marks[node] &= std::uint8_t(~kQueued);
  return node;
}

// Calls visit(neighbour, weight) for the entries of a row or column, and foresee(neighbour) some
// entries before.
template <class Visit, class Foresee>
inline void for_entries(const Lists& lists, Node node, Visit visit, Foresee foresee) {
  constexpr std::uint32_t kAhead = 16;
  for (int which = 0; which < 2; ++which) {
    const Entries list = entries_in(lists, which, node);
    for (std::uint32_t e = 0; e < list.size; ++e) {
      if (e + kAhead < list.size) foresee(list.neighbours[e + kAhead]);
      visit(list.neighbours[e], list.weights ? list.weights[e] : 1.0f);
    }
  }
}

inline std::size_t entries_of(const Lists& lists, Node node) {
  return std::size_t(entries_in(lists, 0, node).size) + entries_in(lists, 1, node).size;
}

// The residual of a node from the estimates: d^beta x - (pivot p - gamma sum_j w(i,j) p(j)) / gain,
// evaluated in float64 and in stored units. Returns the features, valid until the next are read.
template <class Real>
inline const Real* true_residual(const Block<Real>& block, const Matrix& matrix,
                                 const Range<Real>& range, std::size_t node, double* sum) {
  const std::size_t width = block.width;
  const Real* const p = block.estimate + node * width;
  const Real* const x = features_of(range.features, width, Node(node));
  for (std::size_t c = 0; c < width; ++c) sum[c] = 0;
  const auto row_of = [&](Node other) { return block.estimate + std::size_t(other) * width; };
  for_entries(
      matrix.rows, Node(node),
      [&](Node other, float weight) {
        const Real* const q = row_of(other);
        const double w = double(weight);
        for (std::size_t c = 0; c < width; ++c) sum[c] += w * double(q[c]);
      },
      [&](Node other) { fetch<false>(row_of(other), width * sizeof(Real)); });
  const double on_features = range.power[node - range.first] * matrix.residual_unit;
  const double pivot = range.pivot[node - range.first];
  const double per_gain = 1 / block.gain;
  for (std::size_t c = 0; c < width; ++c)
    sum[c] = on_features * double(x[c]) + (block.gamma * sum[c] - pivot * double(p[c])) * per_gain;
  return x;
}

template <class Real>
void rewrite(Block<Real>& block, const Matrix& matrix, const Range<Real>& range) {
  for (std::size_t node = range.first; node < range.last; ++node) {
    if (matrix.degree[node] <= 0) continue;  // settled exactly
    double sum[kMaxWidth];
    true_residual(block, matrix, range, node, sum);
    Real* const r = block.residual + node * block.width;
    for (std::size_t c = 0; c < block.width; ++c) r[c] = Real(sum[c]);
  }
}

// In the precision at hand: what is lost here shows when the residuals are rewritten afterwards.
template <class Real>
std::size_t sweep(const Block<Real>& block, const Matrix& matrix, const Range<Real>& range,
                  Real* next) {
  using V = typename Vector<Real>::type;
  constexpr std::uint32_t kAhead = 16;
  const std::size_t vectors = block.width / kLanes<Real>;
  const V* const estimate = reinterpret_cast<const V*>(block.estimate);
  const Real gamma = Real(block.gamma), per_gain = block.per_gain;
  std::size_t above = 0;
  for (std::size_t node = range.first; node < range.last; ++node) {
    V* const out = reinterpret_cast<V*>(next) + node * vectors;
    if (matrix.degree[node] <= 0) {  // settled exactly
      for (std::size_t c = 0; c < vectors; ++c) out[c] = V{};
      continue;
    }
    V sum[kMaxWidth / kLanes<Real>];
    for (std::size_t c = 0; c < vectors; ++c) sum[c] = V{};
    const auto gather = [&](const Entries list, auto weight_of) __attribute__((always_inline)) {
      for (std::uint32_t e = 0; e < list.size; ++e) {
        if (e + kAhead < list.size)
          fetch<false>(estimate + list.neighbours[e + kAhead] * vectors, vectors * sizeof(V));
        const V* const p = estimate + list.neighbours[e] * vectors;
        const Real weight = weight_of(e);
        for (std::size_t c = 0; c < vectors; ++c) sum[c] += weight * p[c];
      }
    };
    for (int which = 0; which < 2; ++which) {
      const Entries list = entries_in(matrix.rows, which, Node(node));
      if (list.weights)
        gather(list, [&](std::uint32_t e) { return Real(list.weights[e]); });
      else
        gather(list, [](std::uint32_t) { return Real(1); });
    }
    const V* const p = estimate + node * vectors;
    const V* const x =
        reinterpret_cast<const V*>(features_of(range.features, block.width, Node(node)));
    const Real on_features = Real(range.power[node - range.first] * matrix.residual_unit);
    const Real pivot = Real(range.pivot[node - range.first]), step = Real(block.gain) / pivot;
    Extremes<Real> extremes;
    for (std::size_t c = 0; c < vectors; ++c) {
      const V residual = on_features * x[c] + (gamma * sum[c] - pivot * p[c]) * per_gain;
      extremes.see(residual);
      out[c] = p[c] + step * residual;
    }
    above += extremes.exceed(block.limit[node]);
  }
  return above;
}

// Large residuals first: while much is to be done, nodes within `level` times their limit wait, so
// that what their neighbours are about to send them goes out in one push instead of two. Saves a
// sixth of the work on snapshots.
template <bool kCompact, class Real>
void settle_large(Block<Real>& block, const Matrix& matrix) {
  constexpr std::size_t kSample = 64;
  Real level = 1;
  for (std::size_t i = 0; i < block.queued; i += 1 + block.queued / kSample) {
    const std::size_t slot = block.head + i;
    const Node node = block.queue[slot >= block.nodes ? slot - block.nodes : slot];
    const Extremes<Real> extremes = extremes_of(block, node);
    while (extremes.exceed(2 * level * block.limit[node])) level *= 2;
  }
  for (; level > 1; level /= 2) {
    for (std::size_t round = block.queued; round; --round) {
      const Node node = pop(block);
      if (extremes_of(block, node).exceed(level * block.limit[node]))
        push<false, kCompact>(block, matrix.columns, node);
      else
        offer(block, node, true);
    }
  }
}

template <bool kCompact, class Real>
void settle_over(Block<Real>& block, const Matrix& matrix) {
  // Far more pushes per node than convergence can need: the precision is exhausted.
  constexpr std::uint64_t kPatience = 1000;
  constexpr std::size_t kMany = 64;
  const std::uint64_t before = block.pushes;
  if (block.queued > kMany) settle_large<kCompact>(block, matrix);
  while (block.queued && block.pushes - before < kPatience * (block.touches + kMany))
    push<false, kCompact>(block, matrix.columns, pop(block));
  while (block.queued) {
    const Node node = pop(block);
    if (above(block, node)) push<true, kCompact>(block, matrix.columns, node);
  }
}

template <class Real>
void settle(Block<Real>& block, const Matrix& matrix) {
  is_compact(matrix.columns) ? settle_over<true>(block, matrix) : settle_over<false>(block, matrix);
}

// What the estimate of a node whose degree grew manyfold becomes.
template <class Real>
inline Real shrunk(Real estimate, double shrink) {
  return Real(double(estimate) * shrink);
}

template <class Real>
void correct(Block<Real>& block, const Matrix& matrix, const Moved* moved, std::size_t count,
             const Term* terms, double per_term) {
  const std::size_t width = block.width;
  // The estimates must stay as they are until every residual has been corrected with them.
  for (std::size_t m = 0; m < count; ++m) {
    const Moved& move = moved[m];
    Real* const r = block.residual + std::size_t(move.node) * width;
    const Real* const p = block.estimate + std::size_t(move.node) * width;
    const Real* const x = features_of(block.features, width, move.node);
    double sum[kMaxWidth];
    for (std::size_t c = 0; c < width; ++c)
      sum[c] = double(r[c]) + move.on_features * double(x[c]) + move.on_estimate * double(p[c]);
    for (std::uint32_t t = move.first; t < move.last; ++t) {
      const Real* const other = block.estimate + std::size_t(terms[t].other) * width;
      const double change = per_term * terms[t].change;
      for (std::size_t c = 0; c < width; ++c) sum[c] += change * double(other[c]);
    }
    if (move.shrink != 1) {
      const double per_gain = move.pivot / block.gain;
      for (std::size_t c = 0; c < width; ++c)
        sum[c] -= per_gain * (double(shrunk(p[c], move.shrink)) - double(p[c]));
    }
    for (std::size_t c = 0; c < width; ++c) r[c] = Real(sum[c]);
    touch(block, move.node);
  }
  for (std::size_t m = 0; m < count; ++m) {
    const Moved& move = moved[m];
    Real* const r = block.residual + std::size_t(move.node) * width;
    Real* const p = block.estimate + std::size_t(move.node) * width;
    if (move.vanished) {
      for (std::size_t c = 0; c < width; ++c) r[c] = p[c] = 0;
    } else if (move.shrink != 1) {
      typename Vector<Real>::type q[kMaxWidth / kLanes<Real>];
      Real* const parts = reinterpret_cast<Real*>(q);
      for (std::size_t c = 0; c < width; ++c) {
        const Real estimate = shrunk(p[c], move.shrink);
        parts[c] = Real((double(estimate) - double(p[c])) * block.gamma / block.gain);
        p[c] = estimate;
      }
      is_compact(matrix.columns) ? spread<true>(block, matrix.columns, move.node, q)
                                 : spread<false>(block, matrix.columns, move.node, q);
    }
  }
  for (std::size_t m = 0; m < count; ++m) offer(block, moved[m].node, above(block, moved[m].node));
}

template <class Real>
void scan(Block<Real>& block, std::size_t first, std::size_t last, bool moved) {
  for (std::size_t node = first; node < last; ++node) {
    offer(block, Node(node), above(block, Node(node)));
    if (moved) touch(block, Node(node));
  }
}

// The larger of the two; a value that is not a number wins, so that a certificate cannot miss it.
inline double larger(double a, double b) { return a != a || b <= a ? a : b; }

template <class Real>
void peak(const Block<Real>& block, std::size_t first, std::size_t last, double* largest) {
  for (std::size_t node = first; node < last; ++node)
    for (std::size_t c = 0; c < block.width; ++c) {
      const double p = double(block.estimate[node * block.width + c]), size = p < 0 ? -p : p;
      largest[c] = larger(largest[c], size);
    }
}

template <class Real>
void measure(const Block<Real>& block, const Matrix& matrix, const Range<Real>& range,
             const double* largest, Measured& measured) {
  const std::size_t width = block.width;
  const double to_natural = 1 / matrix.residual_unit,
               gain = block.gain < 0 ? -block.gain : block.gain;
  const double gamma = block.gamma < 0 ? -block.gamma : block.gamma;
  for (std::size_t node = range.first; node < range.last; ++node) {
    const double degree = matrix.degree[node];
    if (degree <= 0) continue;  // settled exactly
    double sum[kMaxWidth];
    const Real* const x = true_residual(block, matrix, range, node, sum);
    const Real* const r = block.residual + node * width;
    const double limit = double(block.limit[node]);
    // What evaluating the sum in float64, and keeping the features in the working precision, may
    // hide.
    const double terms = double(entries_of(matrix.rows, Node(node)) + 8);
    const double of_sum = terms * 0x1p-52 * (1 + gamma) * degree / gain;
    const double of_features = range.power[node - range.first] * matrix.residual_unit *
                               (sizeof(Real) == 4 ? 0x1p-24 : 0x1p-52);
    for (std::size_t c = 0; c < width; ++c) {
      const double size = sum[c] < 0 ? -sum[c] : sum[c];
      const double feature = x[c] < 0 ? -double(x[c]) : double(x[c]);
      const double ratio =
          (size + of_sum * largest[c] + of_features * feature) * to_natural / degree;
      measured.ratio[c] = larger(measured.ratio[c], ratio);
      double off = (double(r[c]) - sum[c]) / limit;
      off = off < 0 ? -off : off;
      measured.drift = larger(measured.drift, off);
      measured.excess = larger(measured.excess, size / limit);
    }
  }
}

}  // namespace

extern const Kernels<float> kernels_float{settle<float>,  correct<float>, scan<float>,
                                          measure<float>, peak<float>,    rewrite<float>,
                                          sweep<float>};
extern const Kernels<double> kernels_double{settle<double>,  correct<double>, scan<double>,
                                            measure<double>, peak<double>,    rewrite<double>,
                                            sweep<double>};

}  // namespace tidegraph::TIDEGRAPH_KERNELS_NS
