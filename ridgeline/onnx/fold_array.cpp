#include "ridgeline/onnx/fold_array.h"

#include <algorithm>

namespace ridgeline::onnx {

ConstantPtr with_dims(const Constant& from, std::vector<int64_t> dims) {
  auto made = std::make_shared<Constant>(from);
  made->dims = std::move(dims);
  return made;
}

bool is_sized(const std::vector<int64_t>& dims, int64_t most) {
  int64_t count = 1;
  for (const int64_t extent : dims) {
    if (extent < 0 || extent > most / count) return false;
    count *= std::max<int64_t>(1, extent);
  }
  return true;
}

ConstantPtr picked(const Constant& from, std::vector<int64_t> dims,
                   const std::vector<int64_t>& places) {
  auto made = std::make_shared<Constant>();
  made->dims = std::move(dims);
  made->integer = from.integer;
  for (const int64_t place : places) {
    if (from.integer) {
      made->ints.push_back(from.ints[size_t(place)]);
    } else {
      made->floats.push_back(from.floats[size_t(place)]);
    }
  }
  return made;
}

std::vector<int64_t> strides_of(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    step *= dims[i];
  }
  return strides;
}

std::optional<std::vector<int64_t>> broadcast(const std::vector<int64_t>& a,
                                              const std::vector<int64_t>& b, int64_t most) {
  std::vector<int64_t> dims(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t left = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t right = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (left == kBatch || right == kBatch) return std::nullopt;
    if (left != right && left != 1 && right != 1) return std::nullopt;
    dims[dims.size() - 1 - i] = left == 1 ? right : left;
  }
  if (!is_sized(dims, most)) return std::nullopt;
  return dims;
}

std::vector<int64_t> places_in(const Constant& from, const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 0);
  const std::vector<int64_t> own =
      from.uniform ? std::vector<int64_t>(from.dims.size(), 0) : strides_of(from.dims);
  const size_t skipped = dims.size() - from.dims.size();
  for (size_t i = 0; i < own.size(); ++i) {
    strides[skipped + i] = from.dims[i] == 1 || from.uniform ? 0 : own[i];
  }
  std::vector<int64_t> places;
  walk(dims, strides, [&](int64_t place) { places.push_back(place); });
  return places;
}

}  // namespace ridgeline::onnx
