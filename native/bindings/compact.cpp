#include "compact.hpp"

#include "arrays.hpp"
#include "bind.hpp"

namespace tidegraph {

void bind_compact(nb::module_& module) {
  using Ids32 = In<std::uint32_t>;
  const auto pairs = [](const Ids32& src, const Ids32& dst, const MaybeWeights& weight) {
    if (src.size() != dst.size() || (weight && weight->size() != src.size()))
      throw EventError("the columns of the pairs differ in length");
    return Pairs{view(src), view(dst), view(weight)};
  };
  const auto window = [](std::uint32_t first, const In<std::uint64_t>& begin,
                         const Out<std::uint32_t, 1>& neighbours,
                         const std::optional<Out<double, 1>>& weights) {
    Window made{first, view(begin), {neighbours.data(), neighbours.size()}, {}};
    if (weights) made.weights = {weights->data(), weights->size()};
    if (begin.size() == 0 || made.begin.back() > neighbours.size() ||
        (weights && weights->size() != neighbours.size()))
      throw EventError("the arrays of the window do not match each other");
    return made;
  };
  module.def(
      "count_entries",
      [pairs](const Ids32& src, const Ids32& dst, int ends, const Out<std::uint32_t, 1>& lengths,
              int threads) {
        count_entries(pairs(src, dst, std::nullopt), Ends(ends), threads,
                      {lengths.data(), lengths.size()});
      },
      "src"_a.noconvert(), "dst"_a.noconvert(), "ends"_a, "lengths"_a.noconvert(), "threads"_a,
      release());
  module.def(
      "fill_lists",
      [pairs, window](const Ids32& src, const Ids32& dst, const MaybeWeights& weight, int ends,
                      std::uint32_t first, const In<std::uint64_t>& begin,
                      const Out<std::uint32_t, 1>& neighbours,
                      const std::optional<Out<double, 1>>& weights,
                      const Out<std::uint32_t, 1>& filled, int threads) {
        fill_lists(pairs(src, dst, weight), Ends(ends), threads,
                   window(first, begin, neighbours, weights), {filled.data(), filled.size()});
      },
      "src"_a.noconvert(), "dst"_a.noconvert(), "weight"_a.noconvert().none(), "ends"_a, "first"_a,
      "begin"_a.noconvert(), "neighbours"_a.noconvert(), "weights"_a.noconvert().none(),
      "filled"_a.noconvert(), "threads"_a, release());
  module.def(
      "sort_lists",
      [window](const In<std::uint64_t>& begin, const Out<std::uint32_t, 1>& neighbours,
               const std::optional<Out<double, 1>>& weights,
               int threads) { return sort_lists(window(0, begin, neighbours, weights), threads); },
      "begin"_a.noconvert(), "neighbours"_a.noconvert(), "weights"_a.noconvert().none(),
      "threads"_a, release());
  module.def(
      "merge_lists",
      [window](const In<std::uint64_t>& begin, const Out<std::uint32_t, 1>& neighbours,
               const Out<double, 1>& weights, bool weighted, const Out<std::uint32_t, 1>& lengths) {
        const Window lists = window(0, begin, neighbours, weights);
        return merge_lists(lists, weighted ? lists.weights : std::span<double>(),
                           {lengths.data(), lengths.size()});
      },
      "begin"_a.noconvert(), "neighbours"_a.noconvert(), "weights"_a.noconvert(), "weighted"_a,
      "lengths"_a.noconvert(), release());
}

}  // namespace tidegraph
