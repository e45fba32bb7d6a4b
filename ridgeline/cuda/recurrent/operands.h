#pragma once

#include "ridgeline/cuda/plain/loose_bind.h"
#include "ridgeline/cuda/recurrent/cell.h"
#include "ridgeline/cuda/row.h"

// What the rows of recurrent layers share.
namespace ridgeline::cuda::recurrent {

inline Cell cell_of(CellKind kind) {
  switch (kind) {
    case CellKind::rnn_relu:
      return Cell::rnn_relu;
    case CellKind::rnn_tanh:
      return Cell::rnn_tanh;
    case CellKind::gru:
      return Cell::gru;
    case CellKind::lstm:
      break;
  }
  return Cell::lstm;
}

inline Sequence sequence_of(const RnnShape& s, int64_t direction, const Tensor& lengths) {
  return {int(s.batch),   int(s.steps),         int(s.hidden),        int(s.directions()),
          int(direction), s.reverse(direction), lengths.as<int32_t>()};
}

// Pieces of a workspace, one after the other: first only counted, then handed out.
class Pieces {
 public:
  static constexpr size_t kAlignment = 256;  // an arena's pieces start at multiples of 64

  Pieces() = default;
  explicit Pieces(std::byte* workspace)
      : base_((reinterpret_cast<uintptr_t>(workspace) + kAlignment - 1) / kAlignment * kAlignment) {
  }

  void* take(size_t bytes) {
    const uintptr_t at = base_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return base_ != 0 ? reinterpret_cast<void*>(at) : nullptr;
  }
  void* take(int64_t count, DType dtype) { return take(size_t(count) * size_of(dtype)); }
  size_t total() const { return used_ + kAlignment; }

 private:
  uintptr_t base_ = 0;
  size_t used_ = 0;
};

// A layer's step, one direction after the other: pass_of(d) makes what a direction launches, an
// object with run(stream).
template <typename PassOf>
std::unique_ptr<Step> directions_step(const Span& span, const Binding& binding, const RnnShape& s,
                                      const PassOf& pass_of) {
  std::vector<decltype(pass_of(int64_t(0)))> passes;
  for (int64_t d = 0; d < s.directions(); ++d) passes.push_back(pass_of(d));
  return launch_step(binding, describe(span.op(0)),
                     [passes = std::move(passes)](cudaStream_t stream) {
                       for (const auto& pass : passes) {
                         const cudaError_t error = pass.run(stream);
                         if (error != cudaSuccess) return error;
                       }
                       return cudaSuccess;
                     });
}

inline std::string refuse_shape(const RnnShape& s) {
  std::string reason = refuse_large({s.batch, s.steps, s.in, s.hidden});
  const double most = double(s.rows()) * double(s.directions()) * double(5 * s.hidden);
  if (reason.empty() && (most > 1e12 || s.gate_rows() > (1 << 30))) reason = "too large";
  return reason;
}

}  // namespace ridgeline::cuda::recurrent
