#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ridgeline/core/shape.h"

namespace ridgeline::onnx {

// The layout of a value of the graph within a value of ours, [batch, features]. Reshapes and
// transposes of a graph change views and need no layer as long as the next layer can read the view.
struct View {
  std::vector<int64_t> dims;  // kBatch at `batch_axis`
  size_t batch_axis = 0;
  // order[i] is the position in ours of element i of a sample, counted as in the graph without the
  // batch. Empty: the same position.
  std::vector<int64_t> order{};

  bool in_order() const { return order.empty(); }
  bool batch_first() const { return batch_axis == 0; }
  std::vector<int64_t> sample() const;  // dims without the batch
  int64_t features() const;
};

View batch_first_view(const Shape& sample);

// Applies Reshape: `wanted` has 0 for a dimension that is kept, -1 for one that follows from the
// others, and kBatch (or the file's batch size) for the batch. None if the batch does not stay a
// dimension of its own.
std::optional<View> reshaped(const View& view, std::vector<int64_t> wanted, int64_t file_batch,
                             bool zero_is_kept = true);
// perm[i] is the axis that becomes axis i.
View transposed(const View& view, std::span<const int64_t> perm);

// Converts an ONNX axis, which counts from the end if negative. None: out of range.
std::optional<size_t> axis_of(int64_t axis, size_t rank);

}  // namespace ridgeline::onnx
