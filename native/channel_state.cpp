#include "channel_state.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace tidegraph {

namespace {

// Over-relaxation speeds up the low-pass filter on symmetric matrices; otherwise it gains nothing
// or diverges.
double relaxation(const ChannelSpec& spec, const View& view) {
  if (!view.symmetric() || spec.gamma <= 0) return 1;
  return std::min(1.5, 2 / (1 + std::sqrt(1 - spec.gamma * spec.gamma)));
}

// Rounds to a power of two, so that what depends on the value seldom changes.
double power_above(double value) { return value > 0 ? std::exp2(std::ceil(std::log2(value))) : 0; }
double power_below(double value) { return std::exp2(std::floor(std::log2(value))); }

}  // namespace

template <class Real>
void ChannelState<Real>::add_channel(const ChannelSpec& spec) {
  Channel channel;
  channel.spec = spec;
  channels.push_back(std::move(channel));
}

template <class Real>
Matrix ChannelState<Real>::matrix(std::size_t c) const {
  const View& of = view(c);
  Matrix matrix;
  matrix.columns = versions.columns(of);
  matrix.rows = versions.rows(of);
  matrix.degree = of.degrees().data();
  matrix.forgotten = versions.forgotten(of.version());
  return matrix;
}

template <class Real>
std::size_t ChannelState<Real>::bytes() const {
  std::size_t total = versions.bytes();
  for (const Channel& channel : channels) total += channel.pivot.size() * sizeof(Real);
  return total;
}

template <class Real>
void ChannelState<Real>::resize() {
  for (Channel& channel : channels) channel.pivot.resize(versions.nodes(), 0);
}

// The smallest degree a node can have before the limits are next updated.
template <class Real>
double ChannelState<Real>::lightest_degree(std::size_t c) const {
  const std::size_t version = view(c).version();
  if (versions.self_loop() > 0) return versions.self_loop() / versions.horizon(version);
  return std::ldexp(versions.lightest(), -versions.forget(version)) / versions.horizon(version);
}

template <class Real>
double ChannelState<Real>::ratio(std::size_t c, double peak) const {
  return peak * power(lightest_degree(c), channels[c].spec.beta - 1);
}

template <class Real>
double ChannelState<Real>::reachable(std::size_t c) const {
  const double rest = 1 - std::abs(channels[c].spec.gamma);
  return Precision<Real>::kReach * rest * (view(c).symmetric() ? 1 : std::min(1.0, 16 * rest));
}

template <class Real>
double ChannelState<Real>::finest(double peak) const {
  if (!(peak <= Precision<Real>::kLargestPeak)) return std::numeric_limits<double>::infinity();
  double finest = Precision<Real>::kLeastTolerance;
  for (std::size_t c = 0; c < channels.size(); ++c)
    finest = std::max(finest, ratio(c, peak) / reachable(c));
  return finest;
}

template <class Real>
double ChannelState<Real>::lightest_accepted(double peak) const {
  double lightest = kLightest;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    const double exponent = 1 - channels[c].spec.beta;
    if (exponent == 0) continue;
    const std::size_t version = view(c).version();
    const double degree = std::pow(peak / (tolerance * reachable(c)), 1 / exponent);
    lightest = std::max(lightest,
                        std::ldexp(degree, versions.forget(version)) * versions.horizon(version));
  }
  // A little more, so that rounding cannot reject later what was accepted.
  return lightest > kLightest ? lightest * (1 + 0x1p-40) : lightest;
}

template <class Real>
bool ChannelState<Real>::set_precision() {
  const Inputs now{peak, versions.lightest(), tolerance};
  if (now == inputs_) return false;
  bool changed = now.tolerance != inputs_.tolerance;
  inputs_ = now;
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
    // If a threshold barely changes an estimate, relaxation can make rounding errors diverge.
    channel.omega =
        estimate * Precision<Real>::kUlp <= 0x1p-4 * rest ? relaxation(channel.spec, view(c)) : 1;
    channel.rounds = std::min(0x1p30, std::ceil(16 * (16 + std::log2(1 + estimate)) / rest));
  }
  return changed;
}

// |r| <= theta d^(1-beta), in terms of |R|; with min(1, .) around the power, as far as the
// precision allows. Under decay d is in units of the next boundary, so that the rule holds until
// then.
template <class Real>
Real ChannelState<Real>::limit(std::size_t c, Node node) const {
  const Channel& channel = channels[c];
  const View& matrix = view(c);
  const double degree = matrix.degree(node), beta = channel.spec.beta;
  const double now = power(degree / versions.horizon(matrix.version()), 1 - beta);
  double limit = power(degree, beta) * now;
  if (!scale_by_degree && now > 1)
    limit = std::max(limit / now, std::min(limit, channel.reach * degree));
  // One ulp down, so that rounding does not loosen the promise.
  return std::nextafter(Real(tolerance * channel.keep * limit), Real(0));
}

template <class Real>
void ChannelState<Real>::set_pivots(std::size_t c) {
  for (std::size_t node = 0; node < versions.nodes(); ++node)
    channels[c].pivot[node] = Real(pivot(c, Node(node)));
}

template <class Real>
void ChannelState<Real>::prepare(std::size_t c, std::size_t first) {
  Channel& channel = channels[c];
  const View& matrix = view(c);
  const double gamma = channel.spec.gamma, beta = channel.spec.beta;
  const auto set_pivot = [&](std::size_t node) {
    channel.pivot[node] = Real(pivot(c, Node(node)));
  };
  channel.moved.clear();
  for (std::size_t node = first; node < versions.nodes(); ++node) set_pivot(node);
  const double estimate = 2 * tolerance * channel.estimate;
  // Rows that were only multiplied by a factor: their residuals follow without their neighbours.
  const double factor = versions.rescale_factor(matrix.version());
  const std::span<const Versions::RescaledRow> rescaled = versions.rescaled(matrix.version());
  for (std::size_t i = 0; i < rescaled.size(); ++i) {
    const auto [node, whole, loop_before, loop_after] = rescaled[i];
    set_pivot(node);
    if (!whole) continue;
    const auto [degree_before, degree] = matrix.rescaled_degrees()[i];
    const double scaled = factor * degree_before;
    const double before = factor * power(degree_before, beta), after = power(degree, beta);
    Moved moved{};
    moved.node = node;
    moved.on_residual = factor;
    moved.on_features = after - before;
    moved.on_estimate = -((degree - scaled) - gamma * (loop_after - factor * loop_before));
    moved.limit = limit(c, node);
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

template struct ChannelState<float>;
template struct ChannelState<double>;

}  // namespace tidegraph
