#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace ridgeline::onnx {

// Stands for the batch in dimensions, and in integers that are computed from dimensions.
constexpr int64_t kBatch = std::numeric_limits<int64_t>::min();
// Integers that are computed from dimensions may also be a small multiple of the batch, as the
// first dimension of [N * 5, 8] is. Zero if it is none.
constexpr int64_t kMostBatches = int64_t{1} << 20;
constexpr int64_t batch_multiple(int64_t integer) {
  return integer < kBatch + kMostBatches ? integer - kBatch + 1 : 0;
}
constexpr int64_t batches(int64_t multiple) { return kBatch + multiple - 1; }

// A tensor whose values are known when the graph is read: weights, and computed shapes. Floats of
// any width are kept as fp32, integers and booleans as int64.
struct Constant {
  std::vector<int64_t> dims;
  bool integer = false;
  // All elements are equal, and `floats` or `ints` holds one. `dims` may then contain kBatch.
  bool uniform = false;
  int type = 0;  // TensorProto's number of the type in the file; 0: it was computed
  std::vector<float> floats;
  std::vector<int64_t> ints;

  int64_t numel() const;  // -1 if a dimension is kBatch
  int64_t kept() const { return int64_t(floats.size() + ints.size()); }  // elements in memory
  double number(int64_t i) const {
    const size_t at = uniform ? 0 : size_t(i);
    return integer ? double(ints[at]) : double(floats[at]);
  }
  bool all_zero() const;
};

using ConstantPtr = std::shared_ptr<const Constant>;

ConstantPtr make_ints(std::vector<int64_t> dims, std::vector<int64_t> values);
ConstantPtr make_floats(std::vector<int64_t> dims, std::vector<float> values);

// "[N, 3, 32, 32]"
std::string dims_text(const std::vector<int64_t>& dims);

}  // namespace ridgeline::onnx
