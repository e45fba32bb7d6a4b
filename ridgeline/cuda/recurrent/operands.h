#pragma once

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/recurrent/cell.h"
#include "ridgeline/cuda/recurrent/product.h"
#include "ridgeline/cuda/workspace.h"

// Helpers that the kernels of recurrent layers share.
namespace ridgeline::cuda::recurrent {

// The traits of a kernel whose products are cuBLASLt's proposal of this number, or plain.
inline Traits product_traits(Multiplier by, int proposal) {
  return {.library = by == Multiplier::cublaslt ? Library::cublaslt : Library::none,
          .further_proposal = proposal > 0};
}

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

// The float values of an op. All have one dtype, except biases.
inline Values floats_of(const Rnn& op) {
  Values floats{op.x, op.y, op.h0, op.c0, op.hT, op.cT, op.reserve};
  for (const RnnWeights& w : op.weights) {
    for (const Value& v :
         {w.w_ih, w.w_hh, unless_mixed(w.b_ih, op.x.dtype), unless_mixed(w.b_hh, op.x.dtype)}) {
      floats.push_back(v);
    }
  }
  return floats;
}
inline Values floats_of(const RnnGrad& op) {
  return {op.y,
          op.reserve,
          op.weights[0].w_hh,
          op.weights[1].w_hh,
          op.h0,
          op.c0,
          op.dy,
          op.dhT,
          op.dcT,
          op.gate_gradients,
          op.dh0,
          op.dc0};
}

// A direction's part of a state [D, B, H]; null if there is none.
template <typename T>
auto states_of(const Sequence& sequence) {
  return [offset = sequence.state_offset()](T* all) {
    return all != nullptr ? all + offset : nullptr;
  };
}

// The step of a layer, one direction after the other: pass_of(d) makes the launches of a direction,
// an object with run(stream).
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
