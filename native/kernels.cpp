#include "kernels.hpp"

#include "weights.hpp"

// Compiled several times: TIDEGRAPH_KERNELS_NS names the instruction set, TIDEGRAPH_VECTOR_BYTES is
// the size of its vectors; see CMakeLists.txt.
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

// The extremes of a row, compared with the limit once at its end: no branch, no early exit.
template <class Real>
struct Extremes {
  using V = typename Vector<Real>::type;
  V high = {}, low = {};
  inline void see(V v) {
    high = v > high ? v : high;
    low = v < low ? v : low;
  }
  inline bool exceed(Real limit) const { return any((high > limit) | (low < -limit)); }
  inline Real largest() const {
    V v = high > -low ? high : -low;
    if constexpr (kLanes<Real> == 8) {
      v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
      v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
      v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
    } else if constexpr (kLanes<Real> == 4) {
      v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
      v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
    } else {
      v = larger(v, __builtin_shufflevector(v, v, 1, 0));
    }
    return v[0];
  }

 private:
  static inline V larger(V a, V b) { return a > b ? a : b; }
};

// What a write to a residual adds to its drift: the error of a rounded sum of size `sum`, and that
// of a product `sent` whose factors were rounded five times before, both with a margin. The limit
// term covers the rounding of the drift itself, which is no larger than the limit.
template <class Real>
constexpr Real kUlp = sizeof(Real) == 4 ? Real(0x1p-24) : Real(0x1p-53);
template <class Real>
inline Real write_noise(Real sum, Real sent, Real limit) {
  return Real(1.25) * kUlp<Real> * sum + Real(7.5) * kUlp<Real> * sent + kUlp<Real> * limit;
}
// A residual whose drift exceeds this share of its limit is recomputed before it is pushed.
template <class Real>
constexpr Real kDriftShare = Real(1) / 8;
constexpr std::uint64_t kPushesPerCheck = 1024;  // for an interrupt

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

// The least excess of a queued node.
template <class Real>
constexpr Real kQueued = sizeof(Real) == 4 ? Real(0x1p-126) : Real(0x1p-1022);

template <class Real>
inline void enqueue(Block<Real>& block, Node node) {
  block.queue[(block.head + block.queued++) & block.ring] = node;
}

// Returns whether a node that is not queued, with a residual of this size, is above its limit, and
// sets its excess.
template <class Real>
inline bool above(Bounds<Real>& bounds, Real size) {
  const bool is = size > bounds.limit - bounds.drift;
  bounds.excess = is ? size + kQueued<Real> : 0;
  return is;
}

template <class Real>
inline bool above(Block<Real>& block, Node node) {
  return above(block.bounds[node], extremes_of(block, node).largest());
}

// Queues a node that is above its limit, unless it is queued already.
template <class Real>
inline void queue_if_above(Block<Real>& block, Node node) {
  const Real before = block.bounds[node].excess;
  const bool is = above(block, node);
  if (before == 0 && is) enqueue(block, node);
  if (before > block.bounds[node].excess) block.bounds[node].excess = before;
}

template <class Real>
inline void touch(Block<Real>& block, Node node) {
  TouchedList& touched = block.touched;
  if (touched.marks[node]) return;
  touched.marks[node] = 1;
  touched.nodes[touched.count < touched.room ? touched.count : touched.room] = node;
  ++touched.count;
}

template <bool kToWrite>
inline void fetch(const void* memory, std::size_t bytes) {
  for (std::size_t byte = 0; byte < bytes; byte += 64)
    __builtin_prefetch(static_cast<const char*>(memory) + byte, kToWrite);
}

inline bool is_compact(const Lists& lists) { return lists.compact[0] || lists.compact[1]; }

// The entries of a node in the first or second list. Pushes are compiled for each form: a branch
// per push costs some percent on a stream of small steps.
template <bool kCompact>
inline Entries entries_at(const Lists& lists, int which, Node node) {
  const auto entries_of = [&](const List& list) -> Entries {
    const std::size_t capacity = list.capacity, layer = std::size_t(lists.layer);
    const std::uint32_t* const weights = list.block + capacity * (1 + layer);
    const std::uint32_t* const fractions = weights + capacity * std::size_t(lists.layers);
    return {list.block, reinterpret_cast<const float*>(weights),
            lists.fine[which] ? reinterpret_cast<const std::int32_t*>(fractions) : nullptr,
            list.size};
  };
  if constexpr (!kCompact) {
    if (!lists.lists[which]) return {};
    return entries_of(lists.lists[which][node]);
  }
  if (!lists.compact[which]) return {};
  const CompactLists& base = *lists.compact[which];
  const List* const page = base.pages[node / kPageLists];
  if (page && page[node % kPageLists].size != kUntouched)
    return entries_of(page[node % kPageLists]);
  if (node >= base.nodes) return {};
  const std::uint64_t first = base.offsets[node], last = base.offsets[node + 1];
  return {base.neighbours + first, base.weights ? base.weights + first : nullptr,
          base.fractions ? base.fractions + first : nullptr, std::uint32_t(last - first)};
}

inline Entries entries_in(const Lists& lists, int which, Node node) {
  return is_compact(lists) ? entries_at<true>(lists, which, node)
                           : entries_at<false>(lists, which, node);
}

// Returns the value or 0 without a branch, which would be unpredictable.
template <class Real>
struct BitsOf;
template <>
struct BitsOf<float> {
  using type = std::uint32_t;
};
template <>
struct BitsOf<double> {
  using type = std::uint64_t;
};
template <class Real>
inline Real value_if(unsigned wanted, Real value) {
  typename BitsOf<Real>::type bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  bits &= typename BitsOf<Real>::type(0) - wanted;
  __builtin_memcpy(&value, &bits, sizeof bits);
  return value;
}

// Adds weight * q to the residual of every neighbour and queues those that cross their limit.
// Fields are copied to locals, since a store through a vector may alias them. Queueing has no
// branch, since whether a neighbour crosses its limit is unpredictable: the entry behind the last
// is always written, and counted only if the neighbour crosses.
template <bool kCompact, class Real>
inline void spread(Block<Real>& block, const Lists& graph, Node node,
                   const typename Vector<Real>::type* q, Real largest_q) {
  using V = typename Vector<Real>::type;
  constexpr std::uint32_t kAhead = 8;
  const std::size_t vectors = block.width / kLanes<Real>, ring = block.ring, head = block.head;
  V* const residual = reinterpret_cast<V*>(block.residual);
  Bounds<Real>* const bounds = block.bounds;
  Node* const queue = block.queue;
  std::size_t queued = block.queued;
  const auto walk = [&](const Node* neighbours, std::uint32_t size,
                        auto weight_of) __attribute__((always_inline)) {
    for (std::uint32_t e = 0; e < size; ++e) {
      if (e + kAhead < size) {
        fetch<true>(residual + neighbours[e + kAhead] * vectors, vectors * sizeof(V));
        fetch<true>(bounds + neighbours[e + kAhead], sizeof(Bounds<Real>));
      }
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
      // |sum| is at most limit + excess, so only whether it crosses has to be computed.
      const Bounds<Real> of = bounds[other];
      const Real sent = weight * largest_q, excess = of.excess + sent + kQueued<Real>;
      const Real drift = of.drift + write_noise(of.limit + excess, sent, of.limit);
      const unsigned was_queued = of.excess > 0;
      const unsigned is_queued = was_queued | extremes.exceed(of.limit - drift);
      queue[(head + queued) & ring] = other;
      queued += is_queued ^ was_queued;
      bounds[other].drift = drift;
      bounds[other].excess = value_if(is_queued, excess);
    }
    block.edge_pushes += size;
  };
  for (int which = 0; which < 2; ++which) {
    const Entries list = entries_at<kCompact>(graph, which, node);
    if (list.size == 0) continue;
    const float* const weights = list.weights;
    if (sizeof(Real) == 8 && list.fractions)
      walk(list.neighbours, list.size, [&](std::uint32_t e) { return Real(weight_at(list, e)); });
    else if (weights || !kCompact)
      walk(list.neighbours, list.size, [weights](std::uint32_t e) { return Real(weights[e]); });
    else
      walk(list.neighbours, list.size, [](std::uint32_t) { return Real(1); });
  }
  block.queued = queued;
}

// One push. The residual loses exactly what the addition to the estimate achieved in the working
// precision; what the estimate could not take up stays in the residual.
template <bool kCompact, class Real>
__attribute__((always_inline)) inline void push(Block<Real>& block, const Lists& graph, Node node) {
  using V = typename Vector<Real>::type;
  const std::size_t vectors = block.width / kLanes<Real>;
  V* const p = row(block.estimate, block, node);
  V* const r = row(block.residual, block, node);
  V q[kMaxWidth / kLanes<Real>];
  const Real pivot = block.pivot[node], relaxed = block.relaxation / pivot;
  block.bounds[node].excess = 0;
  if (pivot <= 0) return;  // lost its last edge while queued: its result is exact
  const Real gamma = Real(block.gamma);
  Extremes<Real> after, gained;
  for (std::size_t c = 0; c < vectors; ++c) {
    const V old = p[c], rest = r[c];
    const V sum = old + rest * relaxed;
    const V pushed = sum - old;
    const V left = rest - pivot * pushed;
    p[c] = sum;
    r[c] = left;
    q[c] = gamma * pushed;
    after.see(left);
    gained.see(pushed);
  }
  ++block.pushes;
  Bounds<Real>& bounds = block.bounds[node];
  const Real left = after.largest(), largest = gained.largest();
  if (largest == 0) {  // too small to change the estimate
    block.stalled += left > bounds.limit - bounds.drift;
    return;
  }
  touch(block, node);
  // The residual before was at most what was pushed plus what is left.
  bounds.drift += write_noise(left, left + pivot * largest, bounds.limit);
  spread<kCompact>(block, graph, node, q, block.steepness * largest);
  // Over-relaxation and rounding may leave this node above its limit.
  if (above(bounds, left)) enqueue(block, node);
}

template <class Real>
inline Node pop(Block<Real>& block) {
  const Node node = block.queue[block.head];
  block.head = (block.head + 1) & block.ring;
  --block.queued;
  return node;
}

// Calls visit(neighbour, weight) for the entries of a row or column, and ahead(neighbour) some
// entries earlier.
template <class Visit, class Ahead>
inline void for_entries(const Lists& lists, Node node, Visit visit, Ahead ahead) {
  constexpr std::uint32_t kAhead = 16;
  for (int which = 0; which < 2; ++which) {
    const Entries list = entries_in(lists, which, node);
    for (std::uint32_t e = 0; e < list.size; ++e) {
      if (e + kAhead < list.size) ahead(list.neighbours[e + kAhead]);
      visit(list.neighbours[e], weight_at(list, e));
    }
  }
}

inline std::size_t entries_of(const Lists& lists, Node node) {
  return std::size_t(entries_in(lists, 0, node).size) + entries_in(lists, 1, node).size;
}

// Evaluates the residual of a node in float64: d^beta x - pivot p + gamma sum_j w(i,j) p(j).
// Returns the features, which are valid until the next are read.
template <class Real>
inline const Real* true_residual(const Block<Real>& block, const Matrix& matrix,
                                 const Range<Real>& range, std::size_t node, double* sum) {
  const std::size_t width = block.width;
  const Real* const p = block.estimate + node * width;
  const Real* const x = features_of(range.features, width, Node(node));
  for (std::size_t c = 0; c < width; ++c) sum[c] = 0;
  const auto row_of = [&](Node other) { return block.estimate + std::size_t(other) * width; };
  const auto ahead = [&](Node other) { fetch<false>(row_of(other), width * sizeof(Real)); };
  if (sizeof(Real) == 4 && entries_of(matrix.rows, Node(node)) <= kPlainSum) {
    for_entries(
        matrix.rows, Node(node),
        [&](Node other, double weight) {
          const Real* const q = row_of(other);
          for (std::size_t c = 0; c < width; ++c) sum[c] += weight * double(q[c]);
        },
        ahead);
  } else {
    double lost[kMaxWidth];
    for (std::size_t c = 0; c < width; ++c) lost[c] = 0;
    for_entries(
        matrix.rows, Node(node),
        [&](Node other, double weight) {
          const Real* const q = row_of(other);
          for (std::size_t c = 0; c < width; ++c) {
            const double more = weight * double(q[c]) - lost[c], total = sum[c] + more;
            lost[c] = (total - sum[c]) - more;
            sum[c] = total;
          }
        },
        ahead);
  }
  const double on_features = range.power[node - range.first];
  const double pivot = range.pivot[node - range.first];
  for (std::size_t c = 0; c < width; ++c)
    sum[c] = on_features * double(x[c]) + (block.gamma * sum[c] - pivot * double(p[c]));
  return x;
}

template <class Real>
void rewrite(Block<Real>& block, const Matrix& matrix, const Range<Real>& range) {
  for (std::size_t node = range.first; node < range.last; ++node) {
    if (matrix.degree[node] <= 0) continue;  // its result is exact
    double sum[kMaxWidth];
    true_residual(block, matrix, range, node, sum);
    Real* const r = block.residual + node * block.width;
    for (std::size_t c = 0; c < block.width; ++c) r[c] = Real(sum[c]);
    block.bounds[node].drift = 2 * kUlp<Real> * extremes_of(block, Node(node)).largest() +
                               Real(1.0001 * block.noise * matrix.degree[node]);
  }
}

// In the working precision: the residuals are rewritten in float64 afterwards.
template <class Real>
std::size_t sweep(const Block<Real>& block, const Matrix& matrix, const Range<Real>& range,
                  Real* next) {
  using V = typename Vector<Real>::type;
  constexpr std::uint32_t kAhead = 16;
  const std::size_t vectors = block.width / kLanes<Real>;
  const V* const estimate = reinterpret_cast<const V*>(block.estimate);
  const Real gamma = Real(block.gamma);
  std::size_t above = 0;
  for (std::size_t node = range.first; node < range.last; ++node) {
    V* const out = reinterpret_cast<V*>(next) + node * vectors;
    if (matrix.degree[node] <= 0) {  // its result is exact
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
      if (sizeof(Real) == 8 && list.fractions)
        gather(list, [&](std::uint32_t e) { return Real(weight_at(list, e)); });
      else if (list.weights)
        gather(list, [&](std::uint32_t e) { return Real(list.weights[e]); });
      else
        gather(list, [](std::uint32_t) { return Real(1); });
    }
    const V* const p = estimate + node * vectors;
    const V* const x =
        reinterpret_cast<const V*>(features_of(range.features, block.width, Node(node)));
    const Real on_features = Real(range.power[node - range.first]);
    const Real pivot = Real(range.pivot[node - range.first]), step = 1 / pivot;
    Extremes<Real> extremes;
    for (std::size_t c = 0; c < vectors; ++c) {
      const V residual = on_features * x[c] + (gamma * sum[c] - pivot * p[c]);
      extremes.see(residual);
      out[c] = p[c] + step * residual;
    }
    above += extremes.exceed(block.bounds[node].limit);
  }
  return above;
}

template <class Real>
inline bool interrupted(const Block<Real>& block) {
  return block.pushes % kPushesPerCheck == 0 && block.interrupted(block.owner);
}

// Recomputes the residual of a node if its drift takes too much of the limit; returns whether.
template <class Real>
inline bool rewrite_drifted(Block<Real>& block, Node node) {
  const Bounds<Real>& bounds = block.bounds[node];
  if (bounds.drift <= kDriftShare<Real> * bounds.limit) return false;
  block.rewrite(block.owner, node);
  ++block.rewrites;
  return true;
}

// Returns a power of two: how far above its limit the farthest of a sample of queued nodes is.
template <class Real>
Real highest_level(const Block<Real>& block) {
  constexpr std::size_t kSample = 64;
  Real level = 1;
  for (std::size_t i = 0; i < block.queued; i += 1 + block.queued / kSample) {
    const Node node = block.queue[(block.head + i) & block.ring];
    const Extremes<Real> extremes = extremes_of(block, node);
    while (extremes.exceed(2 * level * block.bounds[node].limit)) level *= 2;
  }
  return level;
}

// Large residuals first: while many nodes are queued, those within `level` times their limit wait,
// so that what their neighbours are about to send them goes out in one push instead of two. Saves a
// sixth of the work on snapshots. Resumes an interrupted call as if it had not been interrupted.
template <bool kCompact, class Real>
void converge_over(Block<Real>& block, const Matrix& matrix) {
  constexpr std::size_t kMany = 64;
  bool resumed = block.level > 0;
  Real level = resumed ? block.level : block.queued > kMany ? highest_level(block) : 1;
  std::size_t round = resumed ? block.round : block.queued;
  if (!resumed) block.begun = block.pushes;
  block.level = 0;
  const auto pause = [&] {
    if (resumed || !interrupted(block)) return resumed = false;
    block.level = level;
    block.round = round;
    return true;
  };
  for (; level > 1; level /= 2, round = block.queued) {
    for (; round; --round) {
      if (pause()) return;
      const Node node = pop(block);
      rewrite_drifted(block, node);
      if (extremes_of(block, node).exceed(level * block.bounds[node].limit))
        push<kCompact>(block, matrix.columns, node);
      else if (above(block, node))
        enqueue(block, node);
    }
  }
  while (block.queued && block.pushes - block.begun < block.most_pushes) {
    if (pause()) return;
    const Node node = pop(block);
    if (!rewrite_drifted(block, node) || above(block, node))
      push<kCompact>(block, matrix.columns, node);
  }
  block.stalled += block.queued;
  while (block.queued) block.bounds[pop(block)].excess = 0;
}

template <class Real>
void converge(Block<Real>& block, const Matrix& matrix) {
  is_compact(matrix.columns) ? converge_over<true>(block, matrix)
                             : converge_over<false>(block, matrix);
}

template <class Real>
void correct(Block<Real>& block, const Moved* moved, std::size_t count, const Term* terms) {
  const std::size_t width = block.width;
  // Estimates must not change before every residual has been corrected.
  for (std::size_t m = 0; m < count; ++m) {
    const Moved& move = moved[m];
    Real* const r = block.residual + std::size_t(move.node) * width;
    const Real* const p = block.estimate + std::size_t(move.node) * width;
    const Real* const x = features_of(block.features, width, move.node);
    double sum[kMaxWidth];
    for (std::size_t c = 0; c < width; ++c)
      sum[c] = move.on_residual * double(r[c]) + move.on_features * double(x[c]) +
               move.on_estimate * double(p[c]);
    for (std::uint32_t t = move.first; t < move.last; ++t) {
      const Real* const other = block.estimate + std::size_t(terms[t].other) * width;
      const double change = block.gamma * terms[t].change;
      for (std::size_t c = 0; c < width; ++c) sum[c] += change * double(other[c]);
    }
    for (std::size_t c = 0; c < width; ++c) r[c] = Real(sum[c]);
    Bounds<Real>& bounds = block.bounds[move.node];
    bounds.limit = Real(move.limit);
    bounds.drift = Real(move.on_residual) * bounds.drift +
                   write_noise(extremes_of(block, move.node).largest(), Real(0), bounds.limit) +
                   Real(1.0001 * move.noise);
    touch(block, move.node);
  }
  for (std::size_t m = 0; m < count; ++m) {
    const Moved& move = moved[m];
    if (move.vanished) {
      const std::size_t first = std::size_t(move.node) * width;
      for (std::size_t c = 0; c < width; ++c)
        block.residual[first + c] = block.estimate[first + c] = 0;
      block.bounds[move.node].drift = 0;
    }
    queue_if_above(block, move.node);
  }
}

template <class Real>
void scan(Block<Real>& block, std::size_t first, std::size_t last, bool moved) {
  for (std::size_t node = first; node < last; ++node) {
    queue_if_above(block, Node(node));
    if (moved) touch(block, Node(node));
  }
}

// Returns the larger of the two. NaN wins, so that a certificate cannot miss it.
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
  const double gamma = block.gamma < 0 ? -block.gamma : block.gamma;
  for (std::size_t node = range.first; node < range.last; ++node) {
    const double degree = matrix.degree[node];
    if (degree <= 0) continue;  // its result is exact
    double sum[kMaxWidth];
    const Real* const x = true_residual(block, matrix, range, node, sum);
    const Real* const r = block.residual + node * width;
    const double limit = double(block.bounds[node].limit),
                 admitted = double(block.bounds[node].drift);
    // The errors of the sum in float64, of weights that differ from the user's, of dropped edges,
    // and of features stored in the working precision.
    const double of_sum =
        ((kEvaluation<Real> + kWeightRounding) * degree + matrix.forgotten) * (1 + gamma);
    const double of_features =
        range.power[node - range.first] *
        (double(kUlp<Real> + (sizeof(Real) == 4 ? 0 : kUlp<Real>)) + matrix.forgotten / degree);
    for (std::size_t c = 0; c < width; ++c) {
      const double size = sum[c] < 0 ? -sum[c] : sum[c];
      const double feature = x[c] < 0 ? -double(x[c]) : double(x[c]);
      const double ratio = (size + of_sum * largest[c] + of_features * feature) / degree;
      measured.ratio[c] = larger(measured.ratio[c], ratio);
      double off = double(r[c]) - sum[c];
      off = off < 0 ? -off : off;
      if (limit <= 0) continue;
      measured.drift = larger(measured.drift, off / limit);
      measured.untracked = larger(measured.untracked, (off - admitted) / limit);
      measured.excess = larger(measured.excess, size / limit);
    }
  }
}

}  // namespace

extern const Kernels<float> kernels_float{converge<float>, correct<float>, scan<float>,
                                          measure<float>,  peak<float>,    rewrite<float>,
                                          sweep<float>};
extern const Kernels<double> kernels_double{converge<double>, correct<double>, scan<double>,
                                            measure<double>,  peak<double>,    rewrite<double>,
                                            sweep<double>};

}  // namespace tidegraph::TIDEGRAPH_KERNELS_NS
