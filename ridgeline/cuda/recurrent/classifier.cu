#include "ridgeline/cuda/recurrent/batch_parallel_backward.cuh"
#include "ridgeline/cuda/recurrent/batch_parallel_forward.cuh"
#include "ridgeline/cuda/recurrent/batch_parallel_products.cuh"
#include "ridgeline/cuda/recurrent/classifier.h"
#include "ridgeline/cuda/recurrent/classifier_head.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

template <typename T, typename Forward>
using HeadOf = HeadOfBlock<T, Forward::kSamples, Forward::kPlaces, Forward::kThreads>;

// The head's memory comes first, and that of both passes, one after the other, behind it.
template <typename T, typename Forward>
constexpr size_t kHeadBytes = (sizeof(typename HeadOf<T, Forward>::Memory) + 15) / 16 * 16;

template <typename T, Cell kCell, typename Forward>
__global__ void __launch_bounds__(Forward::kThreads, 1)
    rnn_classifier_kernel(const __grid_constant__ Classifier<T> args) {
#if __CUDA_ARCH__ >= 900  // the kernels refuse other GPUs
  extern __shared__ __align__(16) unsigned char shared[];
  auto& head_memory = *reinterpret_cast<typename HeadOf<T, Forward>::Memory*>(shared);
  void* memory = shared + kHeadBytes<T, Forward>;
  float state;
  {
    BatchForward<T, kCell, Forward> forward(args.forward, memory);
    state = forward.run(args.head.step);
    forward.sync();
  }
  BatchBackward<T, kCell, typename Forward::Backward, true> backward(args.backward, memory);
  if (backward.has) {
    backward.send(&head_memory.states[backward.local][backward.unit], state);
  }
  backward.prepare();  // and synchronises
  const HeadOf<T, Forward> head(args.head, head_memory, backward.first_sample, backward.s.batch,
                                backward.s.hidden);
  head.run(backward.rank == 0);
  backward.one(args.head.step, backward.has ? head.gradient(backward.local, backward.unit) : 0.0f);
  backward.run();
  backward.sync();  // no block of a cluster exits while others write to it
#endif
}

template <typename T>
size_t shared_bytes(Cell cell, const BatchParallelLayout& layout) {
  return dispatch_cell(cell, [&]<Cell kCell>() {
    return with_forward_product<T, kCell>(layout, [&]<typename Forward>() {
      const size_t backward = batch_shared_bytes<typename Forward::Backward>();
      return kHeadBytes<T, Forward> +
             (layout.shared_bytes > backward ? layout.shared_bytes : backward);
    });
  });
}

}  // namespace

BatchParallelLayout classifier_layout(Cell cell, int planes, int steps, int in, int hidden) {
  BatchParallelLayout layout = batch_parallel_forward_layout(cell, planes, steps, in, hidden);
  if (!layout.refusal.empty()) return layout;
  layout.shared_bytes =
      planes > 1 ? shared_bytes<float>(cell, layout) : shared_bytes<__nv_bfloat16>(cell, layout);
  if (layout.shared_bytes > kMostPlainShared) layout.refusal = "the sequences are too long";
  return layout;
}

template <typename T>
cudaError_t launch_classifier(const Classifier<T>& args, const BatchParallelLayout& layout,
                              cudaStream_t stream) {
  return dispatch_cell(args.backward.cell, [&]<Cell kCell>() {
    return with_forward_product<T, kCell>(layout, [&]<typename Forward>() {
      Classifier<T> params = args;
      return launch_batch_parallel(
          reinterpret_cast<const void*>(rnn_classifier_kernel<T, kCell, Forward>), layout,
          Forward::kThreads, args.backward.sequence.batch, &params, stream);
    });
  });
}

template cudaError_t launch_classifier<__nv_bfloat16>(const Classifier<__nv_bfloat16>&,
                                                      const BatchParallelLayout&, cudaStream_t);
template cudaError_t launch_classifier<__half>(const Classifier<__half>&,
                                               const BatchParallelLayout&, cudaStream_t);
template cudaError_t launch_classifier<float>(const Classifier<float>&, const BatchParallelLayout&,
                                              cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
