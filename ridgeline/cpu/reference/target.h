#pragma once

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {

// The target of element (r, c) of x[n, out]: floats [n, columns], each shared by out / columns
// neighbours in x, or labels that stand for one-hot rows.
class Target {
 public:
  Target(const Value& value, ReferenceBinding& binding, int64_t out)
      : labels_(value.dtype == DType::int32 ? binding.read(value).as<const int32_t>() : nullptr),
        floats_(labels_ == nullptr ? binding.reads(value) : Doubles()),
        columns_(labels_ == nullptr ? value.shape[1] : out),
        shared_(out / columns_) {}

  void load() { floats_.load(); }
  bool is_label() const { return labels_ != nullptr; }
  int32_t label(int64_t r) const { return labels_[r]; }
  double operator()(int64_t r, int64_t c) const {
    if (is_label()) return labels_[r] == c ? 1.0 : 0.0;
    return floats_[r * columns_ + c / shared_];
  }

 private:
  const int32_t* labels_;
  Doubles floats_;
  int64_t columns_, shared_;
};

// The factor of each row of x[n, out] in a loss; see ops/loss.h.
class RowWeights {
 public:
  template <typename Op>
  RowWeights(const Op& op, ReferenceBinding& binding)
      : weights_(binding.reads(op.sample_weights)),
        rows_(op.sample_weights ? op.x.shape[0] / op.sample_weights.shape.numel() : 0) {}

  void load() {
    if (rows_ > 0) weights_.load();
  }
  double operator[](int64_t r) const { return rows_ > 0 ? weights_[r / rows_] : 1.0; }

 private:
  Doubles weights_;
  int64_t rows_;  // of a sample; 0: there are no weights
};

}  // namespace ridgeline::cpu
