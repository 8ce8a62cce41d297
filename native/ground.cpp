#include "ground.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace tidegraph {

namespace {

// Over-relaxation speeds up the low-pass filter where the matrix is symmetric; elsewhere it gains
// nothing or diverges.
double relaxation(const ChannelSpec& spec, const View& view) {
  if (!view.symmetric() || spec.gamma <= 0) return 1;
  return std::min(1.5, 2 / (1 + std::sqrt(1 - spec.gamma * spec.gamma)));
}

// Up or down to a power of two, so that what depends on it seldom changes.
double power_above(double value) { return value > 0 ? std::exp2(std::ceil(std::log2(value))) : 0; }
double power_below(double value) { return std::exp2(std::floor(std::log2(value))); }

}  // namespace

template <class Real>
void Ground<Real>::add_channel(const ChannelSpec& spec) {
  Channel channel;
  channel.spec = spec;
  channels.push_back(std::move(channel));
}

template <class Real>
Matrix Ground<Real>::matrix(std::size_t c) const {
  const View& of = view(c);
  Matrix matrix;
  matrix.columns = versions.columns(of);
  matrix.rows = versions.rows(of);
  matrix.degree = of.degrees().data();
  matrix.forgotten = versions.forgotten(of.version());
  return matrix;
}

template <class Real>
std::size_t Ground<Real>::bytes() const {
  std::size_t total = versions.bytes();
  for (const Channel& channel : channels) total += channel.pivot.size() * sizeof(Real);
  return total;
}

template <class Real>
void Ground<Real>::resize() {
  for (Channel& channel : channels) channel.pivot.resize(versions.nodes(), 0);
}

// The smallest degree a node can have, at the latest moment before the rule is looked at again.
template <class Real>
double Ground<Real>::lightest_degree(std::size_t c) const {
  const std::size_t version = view(c).version();
  if (versions.self_loop() > 0) return versions.self_loop() / versions.horizon(version);
  return std::ldexp(versions.lightest(), -versions.forget(version)) / versions.horizon(version);
}

template <class Real>
double Ground<Real>::ratio(std::size_t c, double peak) const {
  return peak * power(lightest_degree(c), channels[c].spec.beta - 1);
}

template <class Real>
double Ground<Real>::reachable(std::size_t c) const {
  const double rest = 1 - std::abs(channels[c].spec.gamma);
  return Precision<Real>::kReach * rest * (view(c).symmetric() ? 1 : std::min(1.0, 16 * rest));
}

template <class Real>
double Ground<Real>::finest(double peak) const {
  if (!(peak <= Precision<Real>::kLargestPeak)) return std::numeric_limits<double>::infinity();
  double finest = Precision<Real>::kLeastTolerance;
  for (std::size_t c = 0; c < channels.size(); ++c)
    finest = std::max(finest, ratio(c, peak) / reachable(c));
  return finest;
}

template <class Real>
double Ground<Real>::lightest_accepted(double peak) const {
  double lightest = kLightest;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    const double exponent = 1 - channels[c].spec.beta;
    if (exponent == 0) continue;
    const std::size_t version = view(c).version();
    const double degree = std::pow(peak / (tolerance * reachable(c)), 1 / exponent);
    lightest = std::max(lightest,
                        std::ldexp(degree, versions.forget(version)) * versions.horizon(version));
  }
  // A little more, so that rounding cannot refuse afterwards what was accepted.
  return lightest > kLightest ? lightest * (1 + 0x1p-40) : lightest;
}

template <class Real>
bool Ground<Real>::set_precision() {
  const Seen now{peak, versions.lightest(), tolerance};
  if (now == seen) return false;
  bool changed = now.tolerance != seen.tolerance;
  seen = now;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    Channel& channel = channels[c];
    const double gamma = std::abs(channel.spec.gamma), rest = 1 - gamma;
    const double lightest = lightest_degree(c);
    const double ratio =
        power_above(peak) * power(power_below(lightest), channel.spec.beta - 1) / tolerance;
    if (ratio == channel.ratio && !changed) continue;
    changed = true;
    channel.ratio = ratio;
    channel.reach = ratio / reachable(c);
    const double least = power(lightest, 1 - channel.spec.beta);
    const double per_degree =
        scale_by_degree || least <= 1 ? 1 : std::max(1 / least, std::min(1.0, channel.reach));
    const double estimate = channel.estimate = (ratio + per_degree) / rest;
    channel.noise = tolerance * (kEvaluation<Real> * (1 + gamma) * 2 * estimate + 0x1p-51 * ratio);
    const double forgotten = versions.forgotten(view(c).version()) / lightest;
    const double outside =
        (2 * Precision<Real>::kUlp + Precision<Real>::kReading + forgotten) * (ratio + per_degree) +
        (2 * kEvaluation<Real> + kWeightRounding + forgotten) * (1 + gamma) * estimate;
    channel.keep = 1 - std::min(outside, 0.5);
    // Where an estimate feels a threshold only just, relaxation can turn rounding into steps that
    // lead away.
    channel.omega =
        estimate * Precision<Real>::kUlp <= 0x1p-4 * rest ? relaxation(channel.spec, view(c)) : 1;
    channel.rounds = std::min(0x1p30, std::ceil(16 * (16 + std::log2(1 + estimate)) / rest));
  }
  return changed;
}

// |r| <= theta d^(1-beta), or with min(1, .) around the power as far as the precision goes, as |R|.
// Under decay d counts in units of the next boundary, so that the rule holds until it is looked at
// again.
template <class Real>
Real Ground<Real>::limit(std::size_t c, Node node) const {
  const Channel& channel = channels[c];
  const View& matrix = view(c);
  const double degree = matrix.degree(node), beta = channel.spec.beta;
  const double now = power(degree / versions.horizon(matrix.version()), 1 - beta);
  double limit = power(degree, beta) * now;
  if (!scale_by_degree && now > 1)
    limit = std::max(limit / now, std::min(limit, channel.reach * degree));
  // One ulp down: rounding must not loosen the promise.
  return std::nextafter(Real(tolerance * channel.keep * limit), Real(0));
}

template <class Real>
void Ground<Real>::set_pivots(std::size_t c) {
  for (std::size_t node = 0; node < versions.nodes(); ++node)
    channels[c].pivot[node] = Real(pivot(c, Node(node)));
}

template <class Real>
void Ground<Real>::prepare(std::size_t c, std::size_t first) {
  Channel& channel = channels[c];
  const View& matrix = view(c);
  const double gamma = channel.spec.gamma, beta = channel.spec.beta;
  const auto set_pivot = [&](std::size_t node) {
    channel.pivot[node] = Real(pivot(c, Node(node)));
  };
  channel.moved.clear();
  for (std::size_t node = first; node < versions.nodes(); ++node) set_pivot(node);
  const double estimate = 2 * tolerance * channel.estimate;
  // Rows that were only multiplied by a factor: the residual follows without their neighbours.
  const double factor = versions.factor(matrix.version());
  const std::span<const Versions::Swept> swept = versions.swept(matrix.version());
  for (std::size_t i = 0; i < swept.size(); ++i) {
    set_pivot(swept[i].node);
    if (!swept[i].whole) continue;
    const double scaled = factor * matrix.swept_degrees()[i].before,
                 degree = matrix.swept_degrees()[i].after;
    const double before = factor * power(matrix.swept_degrees()[i].before, beta),
                 after = power(degree, beta);
    Moved moved{};
    moved.node = swept[i].node;
    moved.on_residual = factor;
    moved.on_features = after - before;
    moved.on_estimate =
        -((degree - scaled) - gamma * (swept[i].loop_after - factor * swept[i].loop_before));
    moved.limit = limit(c, moved.node);
    moved.noise = 0x1p-49 * ((before + after) * peak + (scaled + degree) * estimate);
    channel.moved.push_back(moved);
  }
  for (const View::Degree& degree : matrix.moved()) {
    set_pivot(degree.node);
    Moved moved{};
    moved.node = degree.node;
    moved.on_residual = 1;
    moved.first = degree.first;
    moved.last = degree.last;
    const double before = power(degree.before, beta), after = power(degree.after, beta);
    moved.on_features = after - before;
    moved.on_estimate = -(degree.after - degree.before);
    moved.limit = limit(c, degree.node);
    moved.vanished = degree.after <= 0 || versions.removed(degree.node);
    double terms = degree.before + degree.after;
    for (std::uint32_t t = degree.first; t < degree.last; ++t)
      terms += std::abs(matrix.terms()[t].change);
    moved.noise =
        0x1p-52 * (degree.last - degree.first + 8) * ((before + after) * peak + terms * estimate);
    channel.moved.push_back(moved);
  }
  correction_rows += channel.moved.size() + matrix.terms().size();
}

template struct Ground<float>;
template struct Ground<double>;

}  // namespace tidegraph
