#include <algorithm>

#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/recurrent/persistent_operands.h"
#include "ridgeline/cuda/recurrent/split_k_weights.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

// With more tiles of weights than this per SM the large products by a library are faster.
constexpr int kMostTilesPerSm = 8;

template <typename T>
SplitKWeights<T> shape_of(const RnnGradW& op, int sms) {
  SplitKWeights<T> args{};
  args.cell = cell_of(op.shape.cell);
  args.sequence.hidden = int(op.shape.hidden);
  args.in = int(op.shape.in);
  args.splits = std::clamp(2 * sms / args.tiles(), 1, kMostSplits);
  return args;
}

Cover covers(const RemainingOps& rest) {
  const auto* op = rest.get<RnnGradW>(0);
  if (op == nullptr) return no_such_op(RnnGradW::kName);
  const DType dtype = op->x.dtype;
  Values floats{op->x, op->y, op->h0, op->gate_gradients};
  for (const RnnWeights& grads : op->grads) {
    for (const Value& v : grads.values()) floats.push_back(unless_mixed(v, dtype));
  }
  std::string reason = refuse_pass(op->shape, dtype);
  if (reason.empty()) reason = refuse_floats(floats);
  if (reason.empty()) reason = refuse_shape(op->shape);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const int sms = cuda_runtime(rest.runtime).sms();
  if (op->shape.gate_rows() > (1 << 16) || op->shape.in > (1 << 16) ||
      shape_of<float>(*op, sms).tiles() > kMostTilesPerSm * sms) {
    reason = "the weights are not small";
  }
  return cover_unless(std::move(reason), 1);
}

// One direction.
template <typename T>
struct Launch {
  SplitKWeights<T> args;
  cudaError_t run(cudaStream_t stream) const { return launch_split_k_weights(args, stream); }
};

template <typename T>
Launch<T> launch_of(const RnnGradW& op, int64_t d, const Binding& binding) {
  const RnnShape& s = op.shape;
  const RnnWeights& grads = op.grads[size_t(d)];
  SplitKWeights<T> args = shape_of<T>(op, cuda_runtime(binding.runtime()).sms());
  args.sequence = sequence_of(s, d, binding.read(op.lengths));
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
  return {args};
}

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const auto& op = span.get<RnnGradW>(0);
  return dispatch_type(op.x.dtype, [&](auto type) {
    return directions_step(span, binding, op.shape,
                           [&](int64_t d) { return launch_of<decltype(type)>(op, d, binding); });
  });
}

}  // namespace

KernelTable rnn_split_k_kernels() {
  return {cuda_kernel("cuda.rnn_grad_w.split_k", covers, prepare,
                      {.precisions = kPassPrecisions, .least_arch = 90, .only_arch = true})};
}

}  // namespace ridgeline::cuda
