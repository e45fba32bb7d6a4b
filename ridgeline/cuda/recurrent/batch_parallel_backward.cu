#include "ridgeline/cuda/recurrent/batch_parallel_backward.cuh"
#include "ridgeline/cuda/recurrent/batch_parallel_products.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

template <typename T>
void fill(BatchParallelLayout& layout, Cell cell) {
  dispatch_cell(cell, [&]<Cell kCell>() {
    with_backward_product<T, kCell>(layout, [&]<typename Product>() {
      layout.samples = Product::kSamples;
      layout.cluster = layout.places / Product::kUnits;
      layout.shared_bytes = batch_shared_bytes<Product>();
    });
  });
}

}  // namespace

BatchParallelLayout batch_parallel_backward_layout(Cell cell, int planes, int hidden) {
  BatchParallelLayout layout;
  layout.places = batch_places(cell, planes, hidden);
  if (layout.places == 0) {
    layout.refusal = "the weights do not fit in the registers of a block or a small cluster";
  } else if (planes > 1) {
    fill<float>(layout, cell);
  } else {
    fill<__nv_bfloat16>(layout, cell);
  }
  return layout;
}

template <typename T>
cudaError_t launch_batch_parallel_backward(const PersistentBackward<T>& args,
                                           const BatchParallelLayout& layout, cudaStream_t stream) {
  return dispatch_cell(args.cell, [&]<Cell kCell>() {
    return with_backward_product<T, kCell>(layout, [&]<typename Product>() {
      PersistentBackward<T> params = args;
      return launch_batch_parallel(
          reinterpret_cast<const void*>(rnn_backward_batch_parallel_kernel<T, kCell, Product>),
          layout, Product::kThreads, args.sequence.batch, &params, stream);
    });
  });
}

template cudaError_t launch_batch_parallel_backward<__nv_bfloat16>(
    const PersistentBackward<__nv_bfloat16>&, const BatchParallelLayout&, cudaStream_t);
template cudaError_t launch_batch_parallel_backward<__half>(const PersistentBackward<__half>&,
                                                            const BatchParallelLayout&,
                                                            cudaStream_t);
template cudaError_t launch_batch_parallel_backward<float>(const PersistentBackward<float>&,
                                                           const BatchParallelLayout&,
                                                           cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
