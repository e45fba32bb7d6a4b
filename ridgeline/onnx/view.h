#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ridgeline/core/shape.h"

namespace ridgeline::onnx {

// How a value of the graph lies in a value of ours, [batch, features]. Reshapes and transposes of a
// graph change views and need no layer as long as what follows can read the view.
struct View {
  std::vector<int64_t> dims;  // kBatch at `batch_axis`
  size_t batch_axis = 0;
  // order[i]: where element i of a sample, counted as the graph does without the batch, lies in
  // ours. Empty: in the same place.
  std::vector<int64_t> order{};

  bool in_order() const { return order.empty(); }
  bool batch_first() const { return batch_axis == 0; }
  std::vector<int64_t> sample() const;  // dims without the batch
  int64_t features() const;
};

View batch_first_view(const Shape& sample);

// What Reshape makes of it: `wanted` has 0 for a dimension that is kept, -1 for one that follows
// from the others, and kBatch (or the number that the file calls the batch) for the batch. None if
// the batch does not stay a dimension of its own.
std::optional<View> reshaped(const View& view, std::vector<int64_t> wanted, int64_t file_batch,
                             bool zero_is_kept = true);
// perm[i]: the axis that becomes axis i.
View transposed(const View& view, std::span<const int64_t> perm);

// Axes of ONNX count from the end where they are negative. None: out of range.
std::optional<size_t> axis_of(int64_t axis, size_t rank);

}  // namespace ridgeline::onnx
