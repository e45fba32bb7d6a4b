#include "ridgeline/onnx/view.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ridgeline/core/error.h"
#include "ridgeline/onnx/constant.h"

namespace ridgeline::onnx {
namespace {

int64_t product(std::span<const int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

// Fills in the one -1 of `dims` so that their product is `count`. Returns false if that is
// impossible.
bool settle(std::span<int64_t> dims, int64_t count) {
  int64_t known = 1;
  int64_t* open = nullptr;
  for (int64_t& extent : dims) {
    if (extent == -1) {
      if (open != nullptr) return false;
      open = &extent;
    } else if (extent < 1) {
      return false;
    } else {
      known = checked_mul(known, extent, "the shape of a Reshape");
    }
  }
  if (open == nullptr) return known == count;
  *open = count / known;
  return *open * known == count;
}

void check_moved(int64_t count) {
  constexpr int64_t kMost = int64_t{1} << 22;
  if (count > kMost) {
    throw_error(ErrorKind::model, "a transpose of {} numbers a sample; at most {} are taken", count,
                kMost);
  }
}

// Two transposes that cancel leave the order unchanged.
void drop_identity(std::vector<int64_t>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != int64_t(i)) return;
  }
  order.clear();
}

// Applies a Reshape that merges the batch with the dimensions before or after it, of which there
// are so many elements. The merged extent is a multiple of the batch, or open.
std::optional<View> with_merged(const View& view, const std::vector<int64_t>& wanted,
                                int64_t before, int64_t after) {
  for (size_t at = 0; at < wanted.size(); ++at) {
    const auto is_extent = [&](int64_t each) { return each > 0; };
    const std::span<const int64_t> outer = std::span(wanted).first(at);
    const std::span<const int64_t> inner = std::span(wanted).subspan(at + 1);
    if (!std::ranges::all_of(outer, is_extent) || !std::ranges::all_of(inner, is_extent)) continue;
    int64_t left = 1, right = 1;
    for (const int64_t each : outer) left = checked_mul(left, each, "the shape of a Reshape");
    for (const int64_t each : inner) right = checked_mul(right, each, "the shape of a Reshape");
    if (before % left != 0 || after % right != 0) continue;
    if (left != before && right != after) continue;
    const int64_t parts = before / left * (after / right);
    if (wanted[at] != -1 && batch_multiple(wanted[at]) != parts) continue;
    View made = view;
    made.dims = wanted;
    made.dims[at] = kBatch;
    made.batch_axis = at;
    made.merged = parts;
    made.merged_before = right == after;
    return made;
  }
  return std::nullopt;
}

}  // namespace

std::vector<int64_t> View::sample() const {
  std::vector<int64_t> without = dims;
  without.erase(without.begin() + ptrdiff_t(batch_axis));
  return without;
}

int64_t View::features() const { return merged * product(sample()); }

View batch_first_view(const Shape& sample) {
  View view;
  view.dims.push_back(kBatch);
  view.dims.insert(view.dims.end(), sample.dims().begin(), sample.dims().end());
  return view;
}

std::optional<View> reshaped(const View& view, std::vector<int64_t> wanted, int64_t file_batch,
                             bool zero_is_kept) {
  const std::span<const int64_t> dims = view.dims;
  const int64_t own = product(dims.subspan(view.batch_axis + 1));
  const int64_t before =
      product(dims.first(view.batch_axis)) * (view.merged_before ? view.merged : 1);
  const int64_t after = own * (view.merged_before ? 1 : view.merged);
  const bool keeps_merged =
      zero_is_kept && view.merged > 1 && view.batch_axis == 0 && !wanted.empty() && wanted[0] == 0;
  for (size_t i = 0; zero_is_kept && i < wanted.size(); ++i) {
    if (wanted[i] == 0 && i < dims.size()) wanted[i] = dims[i];
  }
  if (keeps_merged) {
    View made = view;
    made.dims = wanted;
    if (!settle(std::span<int64_t>(made.dims).subspan(1), own)) return std::nullopt;
    return made;
  }
  // If a dimension is named as the batch, it is the batch; else it may be the open dimension, or
  // one of the file's batch size.
  const auto fits = [&](size_t at) -> std::optional<View> {
    View made = view;
    made.dims = wanted;
    made.dims[at] = kBatch;
    made.batch_axis = at;
    made.merged = 1;
    made.merged_before = false;
    const std::span<int64_t> all = made.dims;
    if (settle(all.first(at), before) && settle(all.subspan(at + 1), after)) {
      return made;
    }
    return std::nullopt;
  };
  const auto named = std::ranges::find(wanted, kBatch);
  if (named != wanted.end()) return fits(size_t(named - wanted.begin()));
  for (const int64_t sign : {file_batch, int64_t{-1}}) {
    for (size_t at = 0; sign != 0 && at < wanted.size(); ++at) {
      if (wanted[at] != sign) continue;
      if (auto made = fits(at)) return made;
    }
  }
  if (before != 1) return with_merged(view, wanted, before, after);
  // The first dimension may be the batch times the first dimensions of a sample.
  if (wanted.empty()) return std::nullopt;
  View made = view;
  made.batch_axis = 0;
  made.merged_before = false;
  made.dims = wanted;
  made.dims[0] = kBatch;
  const std::span<int64_t> part = std::span<int64_t>(made.dims).subspan(1);
  const int64_t total = after;
  made.merged = batch_multiple(wanted[0]);
  if (made.merged == 0 && file_batch > 0 && wanted[0] > 0 && wanted[0] % file_batch == 0) {
    made.merged = wanted[0] / file_batch;
  }
  if (made.merged == 0 && wanted[0] == -1 && std::ranges::find(part, -1) == part.end()) {
    int64_t count = 1;
    for (const int64_t extent : part) {
      if (extent < 1) return std::nullopt;
      count = checked_mul(count, extent, "the shape of a Reshape");
    }
    made.merged = total % count == 0 ? total / count : 0;
  }
  if (made.merged < 1 || total % made.merged != 0 || !settle(part, total / made.merged)) {
    return with_merged(view, wanted, before, after);
  }
  return made;
}

View unmerged(const View& view) {
  View made = view;
  if (view.merged == 1) return made;
  const size_t at = view.batch_axis + (view.merged_before ? 0 : 1);
  made.dims.insert(made.dims.begin() + ptrdiff_t(at), view.merged);
  if (view.merged_before) ++made.batch_axis;
  made.merged = 1;
  made.merged_before = false;
  return made;
}

View merged_again(const View& view, bool before) {
  View made = view;
  const size_t at = before ? view.batch_axis - 1 : view.batch_axis + 1;
  made.merged = view.dims[at];
  made.merged_before = before;
  made.dims.erase(made.dims.begin() + ptrdiff_t(at));
  if (before) --made.batch_axis;
  return made;
}

View transposed(const View& view, std::span<const int64_t> perm) {
  const size_t rank = view.dims.size();
  View made;
  made.dims.resize(rank);
  std::vector<size_t> from;  // the sample's axes in their new order
  bool moved = false;
  size_t last = 0;
  for (size_t i = 0; i < rank; ++i) {
    const auto axis = size_t(perm[i]);
    made.dims[i] = view.dims[axis];
    if (axis == view.batch_axis) {
      made.batch_axis = i;
      continue;
    }
    // An axis of one element may be anywhere.
    if (view.dims[axis] != 1) {
      moved = moved || axis < last;
      last = axis;
    }
    from.push_back(axis);
  }
  made.order = view.order;
  if (!moved) return made;
  std::vector<int64_t> stride(rank, 0);
  int64_t step = 1;
  for (size_t axis = rank; axis-- > 0;) {
    if (axis == view.batch_axis) continue;
    stride[axis] = step;
    step *= view.dims[axis];
  }
  check_moved(step);
  made.order.assign(size_t(step), 0);
  std::vector<int64_t> at(from.size(), 0);
  int64_t place = 0;
  for (int64_t& each : made.order) {
    each = view.order.empty() ? place : view.order[size_t(place)];
    for (size_t k = from.size(); k-- > 0;) {
      place += stride[from[k]];
      if (++at[k] < view.dims[from[k]]) break;
      place -= stride[from[k]] * view.dims[from[k]];
      at[k] = 0;
    }
  }
  drop_identity(made.order);
  return made;
}

View flipped(const View& view, size_t axis) {
  const int64_t extent = view.dims[axis], count = view.features();
  check_moved(count);
  int64_t inner = 1;
  for (size_t i = axis + 1; i < view.dims.size(); ++i) {
    if (i != view.batch_axis) inner *= view.dims[i];
  }
  View made = view;
  made.order.resize(size_t(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i / inner % extent;
    const int64_t from = i + (extent - 1 - 2 * at) * inner;
    made.order[size_t(i)] = view.order.empty() ? from : view.order[size_t(from)];
  }
  drop_identity(made.order);
  return made;
}

View with_rank(View view, size_t rank) {
  const size_t more = rank > view.dims.size() ? rank - view.dims.size() : 0;
  view.dims.insert(view.dims.begin(), more, 1);
  view.batch_axis += more;
  return view;
}

std::optional<size_t> axis_of(int64_t axis, size_t rank) {
  const auto count = int64_t(rank);
  if (axis < 0) axis += count;
  if (axis < 0 || axis >= count) return std::nullopt;
  return size_t(axis);
}

}  // namespace ridgeline::onnx
