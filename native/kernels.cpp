#include "kernels.hpp"

// Compiled several times with TIDEGRAPH_KERNELS_NS naming the instruction set; see CMakeLists.txt.
#ifndef TIDEGRAPH_KERNELS_NS
#define TIDEGRAPH_KERNELS_NS generic
#endif

namespace tidegraph::TIDEGRAPH_KERNELS_NS {
namespace {

template <class Real>
struct Vector;
template <>
struct Vector<float> {
  typedef float type __attribute__((vector_size(32), may_alias));
};
template <>
struct Vector<double> {
  typedef double type __attribute__((vector_size(32), may_alias));
};
typedef long long Bits __attribute__((vector_size(32)));

template <class V>
inline bool any(V mask) {
#ifdef __AVX__
  return __builtin_ia32_movmskps256(reinterpret_cast<Vector<float>::type>(mask)) != 0;
#else
  const Bits bits = reinterpret_cast<Bits>(mask);
  return (bits[0] | bits[1] | bits[2] | bits[3]) != 0;
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
  block.touched[block.touches++] = node;
}

inline void fetch(const void* memory, std::size_t bytes) {
  for (std::size_t byte = 0; byte < bytes; byte += 64)
    __builtin_prefetch(static_cast<const char*>(memory) + byte, 1);
}

// Adds weight * q to the residual of every neighbour and queues those that cross their limit.
// Fields are copied to locals, since a store through a vector may alias them. Queueing is written
// without a branch, since whether a neighbour crosses its limit is a coin toss: the entry behind
// the last is always written, and counted only when it is wanted.
template <class Real>
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
  for (const List* lists : graph.lists) {
    if (!lists) continue;
    const List list = lists[node];
    const float* const weights = reinterpret_cast<const float*>(
        list.block + std::size_t(list.capacity) * std::size_t(1 + graph.layer));
    for (std::uint32_t e = 0; e < list.size; ++e) {
      if (e + kAhead < list.size)
        fetch(residual + list.block[e + kAhead] * vectors, vectors * sizeof(V));
      const Node other = list.block[e];
      const Real weight = Real(weights[e]);
      V* const target = residual + other * vectors;
      Extremes<Real> extremes;
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
    block.edge_pushes += list.size;
  }
  block.queued = queued;
}
static_assert(kQueued == 1, "spread() writes a truth value as the mark");

// One push. The estimate gains what the addition achieved in the precision at hand and the residual
// loses exactly that; a step too small for the estimate to feel stays in the residual. Columns
// whose step is below four half-ulps wait: rounding could otherwise turn relaxation into
// over-shooting, and the loop would not end.
template <class Real>
inline void push(Block<Real>& block, const Lists& graph, Node node) {
  using V = typename Vector<Real>::type;
  constexpr Real kFeel = sizeof(Real) == 4 ? Real(0x1p-22) : Real(0x1p-51);
  const std::size_t vectors = block.width / kLanes<Real>;
  V* const p = row(block.estimate, block, node);
  V* const r = row(block.residual, block, node);
  V q[kMaxWidth / kLanes<Real>];
  const Real pivot = block.pivot[node], per_gain = Real(1 / block.gain);
  const Real relaxed = Real(block.omega * block.gain) / pivot, gamma = Real(block.gamma);
  Extremes<Real> before, after;
  for (std::size_t c = 0; c < vectors; ++c) {
    const V old = p[c], rest = r[c];
    const V step = rest * relaxed;
    const V floor = old * kFeel;
    const auto felt = ((step > floor) & (step > -floor)) | ((step < floor) & (step < -floor));
    const V sum = felt ? old + step : old;
    const V pushed = (sum - old) * per_gain;
    const V left = rest - pivot * pushed;
    p[c] = sum;
    r[c] = left;
    q[c] = gamma * pushed;
    before.see(rest);
    after.see(left);
  }
  ++block.pushes;
  touch(block, node);
  spread(block, graph, node, q);
  // Over-relaxation, or a pivot that rounding did not match, may leave this node above its limit.
  const Real limit = block.limit[node];
  if (after.exceed(limit)) {
    V worst_before = before.high > -before.low ? before.high : -before.low;
    V worst_after = after.high > -after.low ? after.high : -after.low;
    if (any((worst_after > limit) & (worst_after < Real(0.9) * worst_before)))
      offer(block, node, true);
    else
      ++block.stalled;
  }
}

// Rows and list of the node that is `ahead` places back in the queue: it is random access that the
// loop waits for.
template <class Real>
inline void fetch_ahead(const Block<Real>& block, const Lists& graph) {
  constexpr std::size_t kRows = 2, kList = 4;
  const auto at = [&](std::size_t ahead) {
    const std::size_t slot = block.head + ahead;
    return block.queue[slot >= block.nodes ? slot - block.nodes : slot];
  };
  if (block.queued <= kList) return;
  __builtin_prefetch(graph.lists[0] + at(kList));
  const Node node = at(kRows);
  fetch(row(block.residual, block, node), block.width * sizeof(Real));
  fetch(row(block.estimate, block, node), block.width * sizeof(Real));
  __builtin_prefetch(graph.lists[0][node].block);
}

template <class Real>
inline Node pop(Block<Real>& block) {
  const Node node = block.queue[block.head];
  block.head = block.head + 1 == block.nodes ? 0 : block.head + 1;
  --block.queued;
  block.marks[node] &= std::uint8_t(~kQueued);
  return node;
}

// Large residuals first: while much is to be done, nodes within `level` times their limit wait, so
// that what their neighbours are about to send them goes out in one push instead of two. Saves a
// quarter of the work on snapshots.
template <class Real>
void settle_large(Block<Real>& block, const Lists& graph) {
  constexpr std::size_t kSample = 64;
  constexpr Real kStep = 2;
  Real level = 1;
  for (std::size_t i = 0; i < block.queued; i += 1 + block.queued / kSample) {
    const std::size_t slot = block.head + i;
    const Node node = block.queue[slot >= block.nodes ? slot - block.nodes : slot];
    const Extremes<Real> extremes = extremes_of(block, node);
    while (extremes.exceed(2 * level * block.limit[node])) level *= 2;
  }
  for (; level > 1; level /= kStep) {
    for (std::size_t round = block.queued; round; --round) {
      fetch_ahead(block, graph);
      const Node node = pop(block);
      if (extremes_of(block, node).exceed(level * block.limit[node]))
        push(block, graph, node);
      else
        offer(block, node, true);
    }
  }
}

template <class Real>
void settle(Block<Real>& block, const Lists& graph) {
  constexpr std::size_t kMany = 64;
  if (block.queued > kMany) settle_large(block, graph);
  while (block.queued) {
    fetch_ahead(block, graph);
    const Node node = pop(block);
    if (above(block, node)) push(block, graph, node);
  }
}

// What the estimate of a node whose degree grew manyfold becomes.
template <class Real>
inline Real shrunk(Real estimate, double shrink) {
  return Real(double(estimate) * shrink);
}

template <class Real>
void correct(Block<Real>& block, const Lists& graph, const Moved* moved, std::size_t count,
             const Term* terms, double per_term) {
  const std::size_t width = block.width;
  // The estimates must stay as they are until every residual has been corrected with them.
  for (std::size_t m = 0; m < count; ++m) {
    const Moved& move = moved[m];
    Real* const r = block.residual + std::size_t(move.node) * width;
    const Real* const p = block.estimate + std::size_t(move.node) * width;
    const Real* const x = block.features + std::size_t(move.node) * width;
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
      spread(block, graph, move.node, q);
    }
  }
  for (std::size_t m = 0; m < count; ++m) offer(block, moved[m].node, above(block, moved[m].node));
}

template <class Real>
void scan(Block<Real>& block, std::size_t first, std::size_t last) {
  for (std::size_t node = first; node < last; ++node)
    offer(block, Node(node), above(block, Node(node)));
}

// residual(j) = d^beta x - (d p - gamma sum_i w(j,i) p(i)) / gamma0, all in natural units.
template <class Real>
void measure(Block<Real>& block, const Measure& m) {
  const std::size_t width = block.width;
  const double to_natural = 1 / m.estimate_unit;
  double drift = 0, excess = 0;
  for (std::size_t c = 0; c < width; ++c) m.ratio[c] = 0;
  for (std::size_t node = 0; node < block.nodes; ++node) {
    const double degree = m.degree[node];
    if (degree <= 0) continue;  // settled exactly
    double sum[kMaxWidth], size[kMaxWidth];
    const Real* const p = block.estimate + node * width;
    const Real* const x = block.features + node * width;
    const double own = block.gamma * m.self[node] - degree;
    for (std::size_t c = 0; c < width; ++c) {
      sum[c] = own * double(p[c]);
      size[c] = (2 * degree) * (p[c] < 0 ? -double(p[c]) : double(p[c]));
    }
    std::uint64_t terms = 8;
    for (const List* lists : m.rows.lists) {
      if (!lists) continue;
      const List& list = lists[node];
      const float* const weights = reinterpret_cast<const float*>(
          list.block + std::size_t(list.capacity) * std::size_t(1 + m.rows.layer));
      for (std::uint32_t e = 0; e < list.size; ++e) {
        const Real* const other = block.estimate + std::size_t(list.block[e]) * width;
        const double weight = block.gamma * double(weights[e]);
        for (std::size_t c = 0; c < width; ++c) {
          const double part = weight * double(other[c]);
          sum[c] += part;
          size[c] += part < 0 ? -part : part;
        }
      }
      terms += list.size;
    }
    // What evaluating the sum in float64 and keeping the features in the working precision may
    // hide.
    const double rounding =
        double(terms) * 0x1p-53 * to_natural / (m.gamma0 < 0 ? -m.gamma0 : m.gamma0);
    const double power = m.power[node], scale = to_natural / m.gamma0;
    const double feature_rounding = power * (sizeof(Real) == 4 ? 0x1p-24 : 0x1p-52);
    Real* const r = block.residual + node * width;
    const double limit = double(block.limit[node]);
    for (std::size_t c = 0; c < width; ++c) {
      const double natural = power * double(x[c]) + sum[c] * scale;
      const double magnitude = natural < 0 ? -natural : natural;
      const double feature = x[c] < 0 ? -double(x[c]) : double(x[c]);
      const double ratio = (magnitude + rounding * size[c] + feature_rounding * feature) / degree;
      m.ratio[c] = ratio > m.ratio[c] ? ratio : m.ratio[c];
      const double stored = natural * m.residual_unit;
      double off = (double(r[c]) - stored) / limit;
      off = off < 0 ? -off : off;
      drift = off > drift ? off : drift;
      const double over = (stored < 0 ? -stored : stored) / limit;
      excess = over > excess ? over : excess;
      if (m.rewrite) r[c] = Real(stored);
    }
    if (m.rewrite) offer(block, Node(node), above(block, Node(node)));
  }
  *m.drift = drift;
  *m.excess = excess;
}

}  // namespace

extern const Kernels<float> kernels_float{settle<float>, correct<float>, scan<float>,
                                          measure<float>};
extern const Kernels<double> kernels_double{settle<double>, correct<double>, scan<double>,
                                            measure<double>};

}  // namespace tidegraph::TIDEGRAPH_KERNELS_NS
