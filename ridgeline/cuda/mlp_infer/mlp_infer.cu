#include <algorithm>

#include "ridgeline/cuda/gemm/launch.h"
#include "ridgeline/cuda/mlp_infer/mlp_infer.cuh"

namespace ridgeline::cuda {
namespace {

template <typename T, int kRows>
__global__ __launch_bounds__(kInferThreads, 1) void mlp_infer_cluster_kernel(
    const __grid_constant__ MlpInferArgs args, int cluster, int second, int sums) {
#if __CUDA_ARCH__ >= 900  // clusters; the layout's users refuse older GPUs
  extern __shared__ __align__(128) char shared[];
  MlpInference<T, kRows>(args, cluster, second, sums, shared).run();
#endif
}

template <typename T, int kRows>
cudaError_t launch(const MlpInferArgs& args, const MlpInferLayout& layout, cudaStream_t stream) {
  const auto kernel = mlp_infer_cluster_kernel<T, kRows>;
  if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    layout.shared_bytes)) {
    return e;
  }
  LaunchConfig config(layout.blocks, kInferThreads, layout.shared_bytes, layout.cluster,
                      /*overlap_previous=*/true);
  const cudaLaunchConfig_t launched = config.on(stream);
  return cudaLaunchKernelEx(&launched, kernel, args, layout.cluster, layout.second, layout.sums);
}

template <typename T>
cudaError_t launch_rows(const MlpInferArgs& args, const MlpInferLayout& layout,
                        cudaStream_t stream) {
  switch (layout.rows) {
    case 16:
      return launch<T, 16>(args, layout, stream);
    case 32:
      return launch<T, 32>(args, layout, stream);
    default:
      return launch<T, 64>(args, layout, stream);
  }
}

}  // namespace

MlpInferLayout mlp_infer_layout(MlpInferType type, const std::vector<int>& widths, int n, int rows,
                                int processors) {
  MlpInferLayout layout;
  const int width = type == MlpInferType::tf32 ? 4 : 2;
  const size_t layers = widths.size() - 1;
  layout.rows = rows;
  int bytes[2] = {};
  for (size_t l = 0; l < layers; ++l) {
    bytes[l % 2] = std::max(bytes[l % 2], rows * infer_stride(widths[l], width));
  }
  bytes[layers % 2] = std::max(bytes[layers % 2], rows * (kMlpInferClasses + 1) * 4);
  layout.second = (bytes[0] + 127) / 128 * 128;
  layout.sums = (layout.second + bytes[1] + 127) / 128 * 128;
  const int sum_stride = rows == 64 ? kInferSumStride<64> : kInferSumStride<32>;
  layout.shared_bytes = layout.sums + kInferWarps * rows * sum_stride * 4;
  for (size_t l = 1; l <= layers; ++l) layout.shared_bytes += infer_padded(widths[l]) * 4;
  // As many blocks a cluster as there are processors for, and units for.
  const int clusters = (n + rows - 1) / rows;
  const int widest = *std::max_element(widths.begin() + 1, widths.end());
  layout.cluster = 1;
  while (layout.cluster < 8 && 2 * layout.cluster * clusters <= processors &&
         16 * layout.cluster <= widest) {
    layout.cluster *= 2;
  }
  layout.blocks = clusters * layout.cluster;
  constexpr int kMostShared = 227 * 1024;
  if (layout.shared_bytes > kMostShared) layout.refusal = "activations do not fit on chip";
  return layout;
}

cudaError_t launch_mlp_infer(MlpInferType type, const MlpInferArgs& args,
                             const MlpInferLayout& layout, cudaStream_t stream) {
  switch (type) {
    case MlpInferType::bf16:
      return launch_rows<__nv_bfloat16>(args, layout, stream);
    case MlpInferType::fp16:
      return launch_rows<__half>(args, layout, stream);
    case MlpInferType::tf32:
      break;
  }
  return launch_rows<float>(args, layout, stream);
}

}  // namespace ridgeline::cuda
