#include "ridgeline/cuda/recurrent/batch_parallel_forward.cuh"
#include "ridgeline/cuda/recurrent/batch_parallel_products.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

// x that is staged in shared memory beside the two buffers and a classifier's head, which need no
// more than 18 KB.
constexpr size_t kMostInputBytes = 30 << 10;
constexpr int kMmaInputPlaces = 32;

template <typename T>
void fill(BatchParallelLayout& layout, Cell cell) {
  dispatch_cell(cell, [&]<Cell kCell>() {
    with_forward_product<T, kCell>(layout, [&]<typename Product>() {
      layout.samples = Product::kSamples;
      layout.cluster = layout.places / Product::kUnits;
      layout.shared_bytes = batch_shared_bytes<Product>();
    });
  });
}

}  // namespace

BatchParallelLayout batch_parallel_forward_layout(Cell cell, int planes, int steps, int in,
                                                  int hidden) {
  BatchParallelLayout layout;
  layout.places = batch_places(cell, planes, hidden);
  if (layout.places == 0) {
    layout.refusal = "the weights do not fit in the registers of a block or a small cluster";
    return layout;
  }
  const size_t staged = size_t(steps) * 2 * kMmaInputPlaces * 2;
  if (planes > 1) {
    fill<float>(layout, cell);
  } else {
    fill<__nv_bfloat16>(layout, cell);
    layout.takes_x = layout.cluster == 1 && in <= kMmaInputPlaces && staged <= kMostInputBytes;
  }
  if (layout.takes_x) layout.shared_bytes += staged;
  return layout;
}

template <typename T>
cudaError_t launch_batch_parallel_forward(const BatchParallelForward<T>& args,
                                          const BatchParallelLayout& layout, cudaStream_t stream) {
  return dispatch_cell(args.pass.cell, [&]<Cell kCell>() {
    return with_forward_product<T, kCell>(layout, [&]<typename Product>() {
      BatchParallelForward<T> params = args;
      return launch_batch_parallel(
          reinterpret_cast<const void*>(rnn_forward_batch_parallel_kernel<T, kCell, Product>),
          layout, Product::kThreads, args.pass.sequence.batch, &params, stream);
    });
  });
}

template cudaError_t launch_batch_parallel_forward<__nv_bfloat16>(
    const BatchParallelForward<__nv_bfloat16>&, const BatchParallelLayout&, cudaStream_t);
template cudaError_t launch_batch_parallel_forward<__half>(const BatchParallelForward<__half>&,
                                                           const BatchParallelLayout&,
                                                           cudaStream_t);
template cudaError_t launch_batch_parallel_forward<float>(const BatchParallelForward<float>&,
                                                          const BatchParallelLayout&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
