#include "ground.hpp"

#include <algorithm>
#include <utility>

namespace tidegraph {

namespace {

// A degree that grows by more than this when its self-loop is renewed makes its node's estimate
// shrink in `correct`.
constexpr double kSteep = 4;

// Over-relaxation speeds up the low-pass filter where the matrix is symmetric; elsewhere it gains
// nothing or diverges.
double relaxation(const ChannelSpec& spec, const View& view) {
  if (!view.symmetric() || spec.gamma <= 0) return 1;
  return std::min(1.5, 2 / (1 + std::sqrt(1 - spec.gamma * spec.gamma)));
}

// unit * share as a whole number and the rest, without losing digits of the rest to a large unit.
struct Exponent {
  double whole, rest;
  Exponent(std::int64_t unit, double share) {
    const double product = double(unit) * share, lost = std::fma(double(unit), share, -product);
    whole = std::round(product);
    rest = (product - whole) + lost;
  }
};

}  // namespace

template <class Real>
void Ground<Real>::add_channel(const ChannelSpec& spec) {
  Channel channel;
  channel.spec = spec;
  channel.omega = relaxation(spec, versions.views()[spec.view]);
  channels.push_back(std::move(channel));
}

template <class Real>
Matrix Ground<Real>::matrix(std::size_t c) const {
  const View& of = view(c);
  Matrix matrix;
  matrix.columns = versions.columns(of);
  matrix.rows = versions.rows(of);
  matrix.degree = of.degrees().data();
  matrix.residual_unit = channels[c].residual_unit;
  return matrix;
}

template <class Real>
std::size_t Ground<Real>::bytes() const {
  std::size_t total = versions.bytes();
  for (const Channel& channel : channels)
    total += (channel.limit.size() + channel.pivot.size()) * sizeof(Real);
  return total;
}

template <class Real>
void Ground<Real>::resize() {
  for (Channel& channel : channels) {
    channel.limit.resize(versions.nodes(), 0);
    channel.pivot.resize(versions.nodes(), 0);
  }
}

// Under decay all degrees carry a common factor 2^-unit that P does not see but p and R do. Its
// whole powers of two are multiplied into the arrays (see shift), what is left is kept here.
template <class Real>
void Ground<Real>::set_units(std::size_t c) {
  Channel& channel = channels[c];
  const std::int64_t unit = versions.unit(view(c).version());
  channel.estimate_unit = std::exp2(-Exponent(unit, 1 - channel.spec.beta).rest);
  channel.residual_unit = std::exp2(Exponent(unit, channel.spec.beta).rest);
}

template <class Real>
typename Ground<Real>::Shift Ground<Real>::shift(std::size_t c, std::int64_t from) const {
  const std::int64_t to = versions.unit(view(c).version());
  const double beta = channels[c].spec.beta;
  const auto whole = [&](double share) {
    return int(Exponent(to, share).whole - Exponent(from, share).whole);
  };
  return {whole(1 - beta), -whole(beta)};
}

// |r| <= theta d^(1-beta), or with min(1, .) around the power, as |R|. Under decay d counts in
// units of the next boundary, so that the rule holds until it is looked at again.
template <class Real>
void Ground<Real>::set_limit(std::size_t c, Node node) {
  Channel& channel = channels[c];
  const View& matrix = view(c);
  const double degree = matrix.degree(node), beta = channel.spec.beta;
  const double now = power(degree / versions.horizon(matrix.version()), 1 - beta);
  const double factor = scale_by_degree ? now : std::min(1.0, now);
  // One ulp down: rounding must not loosen the promise.
  const double limit = tolerance * channel.residual_unit * power(degree, beta) * factor;
  channel.limit[node] = std::nextafter(Real(limit), Real(0));
  channel.pivot[node] = Real(pivot(c, node));
}

template <class Real>
void Ground<Real>::set_limits(std::size_t c) {
  for (std::size_t node = 0; node < versions.nodes(); ++node) set_limit(c, Node(node));
}

template <class Real>
void Ground<Real>::prepare(std::size_t c, std::size_t first, bool renewed) {
  Channel& channel = channels[c];
  const View& matrix = view(c);
  const auto& [_, gamma0, gamma, beta] = channel.spec;
  channel.moved.clear();
  for (std::size_t node = first; node < versions.nodes(); ++node) set_limit(c, Node(node));
  for (const View::Degree& degree : matrix.moved()) {
    set_limit(c, degree.node);
    Moved moved;
    moved.node = degree.node;
    moved.first = degree.first;
    moved.last = degree.last;
    moved.on_features =
        channel.residual_unit * (power(degree.after, beta) - power(degree.before, beta));
    moved.on_estimate =
        -(degree.after - degree.before) / gamma0 * channel.residual_unit / channel.estimate_unit;
    moved.shrink = renewed && degree.before > 0 && degree.after > kSteep * degree.before
                       ? power(degree.before / degree.after, 1 - beta)
                       : 1;
    moved.pivot = pivot(c, degree.node);
    moved.vanished = degree.after <= 0 || versions.removed(degree.node);
    channel.moved.push_back(moved);
  }
  correction_rows += channel.moved.size() + matrix.terms().size();
}

template struct Ground<float>;
template struct Ground<double>;

}  // namespace tidegraph
