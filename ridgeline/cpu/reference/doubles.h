#pragma once

#include <cstdint>

#include "ridgeline/core/tensor.h"

namespace ridgeline::cpu {

// Rounds `value` once to T. Half types go through a float rounded to odd, which prevents double
// rounding.
template <typename T>
T round_to(double value);
template <>
double round_to<double>(double value);
template <>
float round_to<float>(double value);
template <>
Bf16 round_to<Bf16>(double value);
template <>
Fp16 round_to<Fp16>(double value);

// A float operand of any dtype, as doubles in borrowed memory: load() before the loops, store()
// after them. A reference kernel reads everything before it writes anything, so its operands may
// alias. An absent operand is empty and false.
class Doubles {
 public:
  Doubles() = default;
  Doubles(const Tensor& tensor, double* values)
      : tensor_(tensor), size_(tensor.data != nullptr ? tensor.numel() : 0), values_(values) {}

  explicit operator bool() const { return tensor_.data != nullptr; }
  int64_t size() const { return size_; }
  double* data() { return values_; }
  double& operator[](int64_t i) { return values_[i]; }
  double operator[](int64_t i) const { return values_[i]; }

  void load();
  void store();

 private:
  Tensor tensor_{};
  int64_t size_ = 0;
  double* values_ = nullptr;
};

}  // namespace ridgeline::cpu
