#pragma once

#include <algorithm>

#include "ridgeline/cuda/recurrent/persistent_operands.h"
#include "ridgeline/cuda/recurrent/split_k_weights.h"

// Helpers of the kernels that launch split-K products for the gradients of weights.
namespace ridgeline::cuda::recurrent {

// With more tiles of weights than this, the large products by a library are faster.
constexpr int kMostSplitTiles = 1000;

// The blocks of a cluster: two per SM in all.
template <typename T>
int splits_of(const SplitKWeights<T>& args, int sms) {
  return std::clamp(2 * sms / args.layer_tiles(), 1, kMostSplits);
}

inline std::string refuse_split_k(const RnnGradW& op) {
  const DType dtype = op.x.dtype;
  Values floats{op.x, op.y, op.h0, op.gate_gradients};
  for (const RnnWeights& grads : op.grads) {
    for (const Value& v : grads.values()) floats.push_back(unless_mixed(v, dtype));
  }
  const RnnShape& s = op.shape;
  std::string reason = refuse_pass(s, dtype);
  if (reason.empty()) reason = refuse_floats(floats);
  if (reason.empty()) reason = refuse_shape(s);
  if (!reason.empty()) return reason;
  const auto tiles = [](int64_t extent) { return (extent + kSplitTile - 1) / kSplitTile; };
  if (tiles(s.gate_rows()) * (tiles(s.in) + tiles(s.hidden)) > kMostSplitTiles) {
    return "the weights are not small";
  }
  return {};
}

template <typename T>
SplitKWeights<T> split_k_args(const RnnGradW& op, int64_t d, const Binding& binding) {
  const RnnShape& s = op.shape;
  const RnnWeights& grads = op.grads[size_t(d)];
  SplitKWeights<T> args{};
  args.cell = cell_of(s.cell);
  args.sequence = sequence_of(s, d, binding.read(op.lengths));
  args.in = int(s.in);
  args.x = binding.read(op.x).as<T>();
  args.y = binding.read(op.y).as<T>();
  args.h0 = states_of<T>(args.sequence)(binding.read(op.h0).as<T>());
  const int64_t vectors = gradient_vectors(s.cell) * s.hidden;
  args.gradients = binding.read(op.gate_gradients).as<T>() + d * vectors;
  args.pitch = s.directions() * vectors;
  args.dw_ih = write_mixed<T>(binding, grads.w_ih, op.x.dtype);
  args.dw_hh = write_mixed<T>(binding, grads.w_hh, op.x.dtype);
  args.db_ih = write_mixed<T>(binding, grads.b_ih, op.x.dtype);
  args.db_hh = write_mixed<T>(binding, grads.b_hh, op.x.dtype);
  args.splits = splits_of(args, cuda_runtime(binding.runtime()).sms());
  return args;
}

}  // namespace ridgeline::cuda::recurrent
