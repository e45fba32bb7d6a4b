#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "ridgeline/core/tensor.h"

namespace ridgeline::cpu {

// `value` rounded once to T. Halves go through a float rounded to odd, which keeps the second
// rounding from seeing a tie that was none.
template <typename T>
T round_to(double value);

// A float operand of any dtype, as doubles: load() before the loops, store() after them. A
// reference row reads everything before it writes anything, so its operands may alias. An absent
// operand is empty and false.
class Doubles {
 public:
  explicit Doubles(const Tensor& tensor);

  explicit operator bool() const { return tensor_.data != nullptr; }
  int64_t size() const { return size_; }
  double* data() { return values_.get(); }
  double& operator[](int64_t i) { return values_[size_t(i)]; }
  double operator[](int64_t i) const { return values_[size_t(i)]; }

  void load();
  void store();

 private:
  struct Free {
    void operator()(double* values) const { std::free(values); }
  };

  Tensor tensor_;
  int64_t size_;
  std::unique_ptr<double[], Free> values_;  // zeros; untouched until the row runs
};

}  // namespace ridgeline::cpu
