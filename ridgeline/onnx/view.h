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
  // The graph's batch dimension counts this many parts of each sample, of the dimension after it: a
  // Reshape of [N, 5, 8] to [N * 5, 8] merges 5. `dims` are those of a part.
  int64_t merged = 1;
  // The merged dimension was the one before the batch, as in [5, N, 8] and [5 * N, 8].
  bool merged_before = false;

  bool in_order() const { return order.empty(); }
  bool batch_first() const { return batch_axis == 0; }
  std::vector<int64_t> sample() const;  // dims without the batch
  int64_t features() const;
};

View batch_first_view(const Shape& sample);

// Applies Reshape: `wanted` has 0 for a dimension that is kept, -1 for one that follows from the
// others, and kBatch (or the file's batch size) for the batch. None if the batch is neither a
// dimension of its own nor merged with the first dimensions of a sample.
std::optional<View> reshaped(const View& view, std::vector<int64_t> wanted, int64_t file_batch,
                             bool zero_is_kept = true);
// Returns [N, merged, ...] or [merged, N, ...] for a view that merges, and back.
View unmerged(const View& view);
View merged_again(const View& view, bool before);
// perm[i] is the axis that becomes axis i.
View transposed(const View& view, std::span<const int64_t> perm);

// Reverses the order of the elements along an axis of the sample.
View flipped(const View& view, size_t axis);

// Puts dimensions of one element before the others, as broadcasting does.
View with_rank(View view, size_t rank);

// Converts an ONNX axis, which counts from the end if negative. None: out of range.
std::optional<size_t> axis_of(int64_t axis, size_t rank);

}  // namespace ridgeline::onnx
