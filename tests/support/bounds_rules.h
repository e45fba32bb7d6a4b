#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/approx.h"
#include "tests/support/bounds.h"

namespace ridgeline::test {

// Roundings of a function like tanh or exp in units of u (half an ulp): a good polynomial needs
// four.
constexpr double kUlps = 8;

inline double accumulate_roundoff(DType dtype) {
  return unit_roundoff(dtype == DType::fp64 ? DType::fp64 : DType::fp32) +
         unit_roundoff(DType::fp64);
}

// Rounding of a product's factors before it is accumulated.
inline double factor_roundoff(Precision precision) {
  switch (precision) {
    case Precision::tf32:
      return 2 * 0x1p-11;
    case Precision::fp32x3:
      // 5 for what three products of split factors leave out, 3 for sums that the tensor cores
      // truncate instead of rounding.
      return 8 * 0x1p-22;
    default:
      return 0.0;
  }
}

// Below this a store may lose everything (fp32 kernels may flush subnormal numbers to zero).
inline double smallest_normal(DType dtype) {
  return dtype == DType::fp64 ? 0x1p-1022 : dtype == DType::fp16 ? 0x1p-14 : 0x1p-126;
}

using Errors = std::vector<std::vector<double>>;

// The bound of each op. Each rule reads the values after the op ran, except for the updates, which
// change their operands: those read the values before.
struct Rules {
  const Program& program;
  const Arrays& values;
  Errors& errors;

  const double* val(const Value& value) const { return values[value].as<double>(); }
  std::vector<double>& err(const Value& value) const { return errors[size_t(value.id)]; }
  double e(const Value& value, int64_t i) const { return errors[size_t(value.id)][size_t(i)]; }
  double u(const Value& value) const { return accumulate_roundoff(value.dtype); }

  // The bound of an element whose computation may be off by `error`, after its store. A certain
  // zero (a dropped element, relu of a negative number) stays zero.
  void store(const Value& value, int64_t i, double error) const {
    const double size = std::abs(val(value)[i]) + error;
    err(value)[size_t(i)] =
        size == 0 ? 0.0 : error + unit_roundoff(value.dtype) * size + smallest_normal(value.dtype);
  }
  // As above, for a number that carries its bound; does not need the value after the op.
  void store(const Value& value, int64_t i, const Approx& number) const {
    const double size = std::abs(number.value) + number.error;
    err(value)[size_t(i)] =
        size == 0 ? 0.0
                  : number.error + unit_roundoff(value.dtype) * size + smallest_normal(value.dtype);
  }
  // An element with its bound, in the arithmetic of `value`'s type.
  Approx element(const Value& value, int64_t i) const {
    return {val(value)[i], e(value, i), u(value)};
  }
  double largest_error(const Value& value, int64_t begin, int64_t count) const {
    const auto& all = err(value);
    double most = 0;
    for (int64_t i = begin; i < begin + count; ++i) most = std::max(most, all[size_t(i)]);
    return most;
  }

  void operator()(const Gather& op) const;
  void operator()(const Linear& op) const;
  void operator()(const LinearGradX& op) const;
  void operator()(const LinearGradW& op) const;
  void operator()(const Activation& op) const;
  void operator()(const ActivationGrad& op) const;
  void operator()(const Dropout& op) const;
  void operator()(const SoftmaxXent& op) const;
  void operator()(const SoftmaxXentGrad& op) const;
  void operator()(const Mse& op) const;
  void operator()(const MseGrad& op) const;
  void operator()(const ElementwiseLoss& op) const;
  void operator()(const ElementwiseLossGrad& op) const;
  void operator()(const Softmax& op) const;
  void operator()(const Argmax& op) const;
  void operator()(const SgdUpdate& op) const;
  void operator()(const AdamUpdate& op) const;
  void operator()(const GlobalNorm& op) const;
  void operator()(const Tick&) const {}
  void operator()(const AllReduceStart& op) const;
  void operator()(const AllReduceWait&) const {}
  void operator()(const Conv2d& op) const;
  void operator()(const Conv2dGradX& op) const;
  void operator()(const Conv2dGradW& op) const;
  void operator()(const MaxPool& op) const;
  void operator()(const MaxPoolGrad& op) const;
  void operator()(const AvgPool& op) const;
  void operator()(const AvgPoolGrad& op) const;
  void operator()(const LayerNorm& op) const;
  void operator()(const LayerNormGrad& op) const;
  void operator()(const GroupNorm& op) const;
  void operator()(const GroupNormGrad& op) const;
  void operator()(const BatchNorm& op) const;
  void operator()(const BatchNormGrad& op) const;
  void operator()(const BatchNormInfer& op) const;
  void operator()(const GatherAugment& op) const;
  void operator()(const Rnn& op) const;
  void operator()(const RnnGrad& op) const;
  void operator()(const RnnGradX& op) const;
  void operator()(const RnnGradW& op) const;
  void operator()(const Embedding& op) const;
  void operator()(const EmbeddingGrad& op) const;
  void operator()(const SelectTimestep& op) const;
  void operator()(const SelectTimestepGrad& op) const;
  void operator()(const Copy& op) const;
  void operator()(const OneHotConv1d& op) const;
  void operator()(const OneHotConv1dGradW& op) const;
  void operator()(const Add& op) const;
  void operator()(const Multiply& op) const;
  void operator()(const Concat& op) const;
  void operator()(const Pad& op) const;
  void operator()(const Transpose& op) const;
  void operator()(const Upsample& op) const;
  void operator()(const UpsampleGrad& op) const;
  void operator()(const Unary& op) const;
  void operator()(const UnaryGrad& op) const;
  // Layers from outside have no reference to compare with.
  void operator()(const Custom&) const {}
  void operator()(const CustomGrad&) const {}

  // A sum of products a[i] b[i] over `count` terms `stride` apart, plus `start`.
  double product(const Value& a, int64_t a0, int64_t a_stride, const Value& b, int64_t b0,
                 int64_t b_stride, int64_t count, double start, double start_error) const;
  // The error of probability p of class c in a row of softmax(x).
  double probability(double p, const Value& x, int64_t row, int64_t c) const;
  void weighted(const SoftmaxXent& op) const;  // with class weights or smoothing
  void weighted(const SoftmaxXentGrad& op) const;
  double score_samples(const Value& x, const Value& label) const;
  void store_weight(const Value& weight, const Value& copy, int64_t i, Approx w) const;
};

}  // namespace ridgeline::test
