// Chooses among the kernels compiled per instruction set and size of vectors, so that one wheel is
// fast on new processors and runs on old ones.
#include "kernels.hpp"

namespace tidegraph {

#if TIDEGRAPH_X86
#define TIDEGRAPH_LEVELS(X) X(v2) X(v3) X(v2_narrow) X(v3_narrow)
#else
#define TIDEGRAPH_LEVELS(X) X(generic) X(generic_narrow)
#endif
#define TIDEGRAPH_DECLARE(level)               \
  namespace level {                            \
  extern const Kernels<float> kernels_float;   \
  extern const Kernels<double> kernels_double; \
  }
TIDEGRAPH_LEVELS(TIDEGRAPH_DECLARE)

namespace {

template <class Real>
const Kernels<Real>& choose(const Kernels<float>& single, const Kernels<double>& twice) {
  if constexpr (sizeof(Real) == sizeof(float))
    return (void)twice, single;
  else
    return (void)single, twice;
}

}  // namespace

template <class Real>
const Kernels<Real>& kernels(const Block<Real>& block) {
  const bool narrow = block.width * sizeof(Real) % kVectorBytes != 0;
#if TIDEGRAPH_X86
  static const bool modern = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (modern && narrow) return choose<Real>(v3_narrow::kernels_float, v3_narrow::kernels_double);
  if (modern) return choose<Real>(v3::kernels_float, v3::kernels_double);
  if (narrow) return choose<Real>(v2_narrow::kernels_float, v2_narrow::kernels_double);
  return choose<Real>(v2::kernels_float, v2::kernels_double);
#else
  if (narrow) return choose<Real>(generic_narrow::kernels_float, generic_narrow::kernels_double);
  return choose<Real>(generic::kernels_float, generic::kernels_double);
#endif
}

template const Kernels<float>& kernels(const Block<float>& block);
template const Kernels<double>& kernels(const Block<double>& block);

}  // namespace tidegraph
