#include "ridgeline/cuda/recurrent/batch_parallel_forward.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

// x that is staged in shared memory beside the two buffers, which need no more than 17 KB.
constexpr size_t kMostInputBytes = 30 << 10;
constexpr int kMmaInputPlaces = 32;

// Calls f<Product> with the product of a layout.
template <typename T, Cell kCell, typename F>
auto with_product(const BatchParallelLayout& layout, const F& f) {
  if constexpr (sizeof(T) == 4) {
    if (layout.places == 64) {
      return f.template operator()<FmaForwardProduct<kCell, 64, 64, 1>>();
    }
    if (layout.places == 128) {
      constexpr int kUnits = fma_units(kCell, 128);
      return f.template operator()<FmaForwardProduct<kCell, kUnits, 128, 128 / kUnits>>();
    }
    return f.template operator()<FmaForwardProduct<kCell, fma_units(kCell, 256), 256, 2>>();
  } else {
    const auto with_inputs = [&]<int kChunks>() {
      if (layout.takes_x) return f.template operator()<MmaForwardProduct<T, kCell, kChunks, 1>>();
      return f.template operator()<MmaForwardProduct<T, kCell, kChunks, 0>>();
    };
    if constexpr (cell_gates(kCell) == 1) {
      if (layout.places == 256) return with_inputs.template operator()<8>();
    } else {
      if (layout.places == 64) return with_inputs.template operator()<2>();
    }
    return with_inputs.template operator()<4>();
  }
}

template <typename T>
void fill(BatchParallelLayout& layout, Cell cell) {
  dispatch_cell(cell, [&]<Cell kCell>() {
    with_product<T, kCell>(layout, [&]<typename Product>() {
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
  layout.takes_x = planes == 1 && in <= kMmaInputPlaces && staged <= kMostInputBytes;
  if (planes > 1) {
    fill<float>(layout, cell);
  } else {
    fill<__nv_bfloat16>(layout, cell);
  }
  if (layout.takes_x) layout.shared_bytes += staged;
  return layout;
}

template <typename T>
cudaError_t launch_batch_parallel_forward(const BatchParallelForward<T>& args,
                                          const BatchParallelLayout& layout, cudaStream_t stream) {
  return dispatch_cell(args.pass.cell, [&]<Cell kCell>() {
    return with_product<T, kCell>(layout, [&]<typename Product>() {
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
