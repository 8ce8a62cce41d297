// NumPy arrays as spans: never copied, never cast.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "events.hpp"

namespace tidegraph {

namespace nb = nanobind;
using namespace nb::literals;
using release = nb::call_guard<nb::gil_scoped_release>;

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using InMatrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T, int N>
using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

template <class T>
std::span<const T> view(const In<T>& array) {
  return {array.data(), array.shape(0)};
}
template <class T>
std::span<const T> view(const std::optional<In<T>>& array) {
  return array ? view(*array) : std::span<const T>();
}
inline std::span<const double> view(const std::optional<InMatrix<double>>& array) {
  return array ? std::span<const double>(array->data(), array->size()) : std::span<const double>();
}

// Returns an array that owns the values.
template <class T>
Array<T> own(std::vector<T> values) {
  auto* const kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept,
                    [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return Array<T>(kept->data(), {kept->size()}, owner);
}

using Ids = In<std::int64_t>;
using MaybeIds = std::optional<Ids>;
using MaybeWeights = std::optional<In<double>>;
using MaybeOps = std::optional<In<std::uint8_t>>;

inline Rows rows_of(const Ids& src, const Ids& dst, const MaybeWeights& weight, const MaybeOps& op,
                    const MaybeIds& t) {
  Rows rows{view(src), view(dst), view(weight), view(op), view(t)};
  const auto fits = [&](std::size_t size) { return size == 0 || size == rows.src.size(); };
  if (rows.dst.size() != rows.src.size() || !fits(rows.weight.size()) || !fits(rows.op.size()) ||
      !fits(rows.t.size()))
    throw EventError("the columns of the rows differ in length");
  return rows;
}

}  // namespace tidegraph
