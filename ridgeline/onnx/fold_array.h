#pragma once

#include <optional>
#include <vector>

#include "ridgeline/onnx/constant.h"
#include "ridgeline/onnx/graph.h"

// Arrays of constants, for fold().
namespace ridgeline::onnx {

ConstantPtr with_dims(const Constant& from, std::vector<int64_t> dims);

// Returns true if an array of `dims` has at most `most` elements. An empty dimension counts as one,
// so that loops over any of them end.
bool is_sized(const std::vector<int64_t>& dims, int64_t most);

// Returns elements of `from` by their indices.
ConstantPtr picked(const Constant& from, std::vector<int64_t> dims,
                   const std::vector<int64_t>& places);

std::vector<int64_t> strides_of(const std::vector<int64_t>& dims);

// NumPy's broadcasting rule; none if the extents do not fit or make more than `most` elements.
std::optional<std::vector<int64_t>> broadcast(const std::vector<int64_t>& a,
                                              const std::vector<int64_t>& b, int64_t most);

// Returns the index in `from` of every element of an array of `dims` that it is broadcast to.
std::vector<int64_t> places_in(const Constant& from, const std::vector<int64_t>& dims);

// Calls each(index) for every element of an array of `dims`, with its index in another array that
// has these strides.
template <typename F>
void walk(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, F each) {
  int64_t count = 1, place = 0;
  for (const int64_t extent : dims) count *= extent;
  std::vector<int64_t> at(dims.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    each(place);
    for (size_t k = dims.size(); k-- > 0;) {
      place += strides[k];
      if (++at[k] < dims[k]) break;
      place -= strides[k] * dims[k];
      at[k] = 0;
    }
  }
}

// Comparisons, logic, Where, Tile, Range and reductions of constants; null as fold().
ConstantPtr fold_logic(const Node& node, const std::vector<ConstantPtr>& inputs, int64_t most);

// Powers, bounds and reductions of floats, and triangles; null as fold().
ConstantPtr fold_numbers(const Node& node, const std::vector<ConstantPtr>& inputs, int64_t most);

}  // namespace ridgeline::onnx
