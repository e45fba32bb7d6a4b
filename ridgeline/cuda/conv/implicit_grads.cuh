#pragma once

// Launches the gradients of a convolution on tensor cores.

#include "ridgeline/cuda/conv/grad_maps.cuh"
#include "ridgeline/cuda/conv/grad_w_maps.cuh"
#include "ridgeline/cuda/conv/grad_w_sum.cuh"
#include "ridgeline/cuda/conv/single_grad_w.cuh"

namespace ridgeline::cuda {

// Instantiated with the forward launches.
extern template cudaError_t launch_implicit(const ImplicitArgs<float>&, const PooledOutput<float>&,
                                            const uint32_t*, cudaStream_t);
extern template cudaError_t launch_implicit(const ImplicitArgs<__nv_bfloat16>&,
                                            const PooledOutput<__nv_bfloat16>&, const uint32_t*,
                                            cudaStream_t);
extern template cudaError_t launch_implicit(const ImplicitArgs<__half>&,
                                            const PooledOutput<__half>&, const uint32_t*,
                                            cudaStream_t);

// The parts of the workspace, typed.
template <typename T>
struct GradWorkspaceSlices {
  GradWShares shares;
  T *dz, *x;
  uint32_t* packed_filters;
  float *bias, *partial;

  explicit GradWorkspaceSlices(const ImplicitGradsArgs<T>& args)
      : shares(grad_w_shares(args.shape, sizeof(T), args.sms, args.shared_memory)) {
    const GradWorkspace at(args.shape, sizeof(T), shares.groups);
    auto* bytes = static_cast<std::byte*>(args.workspace);
    dz = reinterpret_cast<T*>(bytes + at.dz), x = reinterpret_cast<T*>(bytes + at.x);
    packed_filters = reinterpret_cast<uint32_t*>(bytes + at.packed_filters);
    bias = reinterpret_cast<float*>(bytes + at.bias);
    partial = reinterpret_cast<float*>(bytes + at.partial);
  }
};

template <typename T>
cudaError_t launch_conv2d_grad_maps(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  if (!needs_grad_maps(args.shape, args.dx != nullptr)) return cudaSuccess;
  const GradWorkspaceSlices<T> at(args);
  return launch_grad_maps<T>(
      {args.shape, args.x, args.dy, args.w, at.dz, at.x, at.packed_filters, at.bias}, stream);
}

template <typename T>
cudaError_t launch_conv2d_grad_x_maps(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  const GradWorkspaceSlices<T> at(args);
  return launch_implicit<T>({args.shape.flipped(), at.dz, nullptr, {}, args.dx, true, true}, {},
                            at.packed_filters, stream);
}

template <typename T, int kTiles, int kFilter>
cudaError_t launch_grad_w_maps(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  const ImplicitShape& shape = args.shape;
  const GradWorkspaceSlices<T> at(args);
  const GradWShares& s = at.shares;
  const auto kernel = conv2d_grad_w_maps_kernel<T, kTiles, kFilter>;
  const cudaError_t error = allow_shared(kernel, s.shared);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(s.channel_blocks * kFilter), unsigned(s.groups),
                  unsigned(shape.groups * s.output_blocks));
  kernel<<<grid, kGradWThreads, size_t(s.shared), stream>>>(shape, at.dz, at.x, s, at.partial);
  const int taps = shape.group_c() * kFilter * kFilter;
  const GradMaps maps(shape, sizeof(T));
  return launch_grad_w_sum<T>(
      {at.partial, s.groups, int64_t(taps) * shape.k},
      {at.bias, shape.n * maps.parts, maps.k, shape.group_k(), maps.group_k}, taps, shape.k,
      args.dw, args.db, stream);
}

template <typename T, int kFilter>
cudaError_t launch_grad_w(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  if (!needs_grad_maps(args.shape, args.dx != nullptr)) {
    return launch_single_grad_w<T, kFilter>(args, static_cast<std::byte*>(args.workspace), args.sms,
                                            stream);
  }
  return grad_w_row_tiles(args.shape) == 2 ? launch_grad_w_maps<T, 2, kFilter>(args, stream)
                                           : launch_grad_w_maps<T, 4, kFilter>(args, stream);
}

template <typename T>
cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  switch (args.shape.filter) {
    case 3:
      return launch_grad_w<T, 3>(args, stream);
    case 5:
      return launch_grad_w<T, 5>(args, stream);
    default:
      return launch_grad_w<T, 7>(args, stream);
  }
}

#define RIDGELINE_LAUNCH_GRADS(T)                                                            \
  template cudaError_t launch_conv2d_grad_maps(const ImplicitGradsArgs<T>&, cudaStream_t);   \
  template cudaError_t launch_conv2d_grad_x_maps(const ImplicitGradsArgs<T>&, cudaStream_t); \
  template cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradsArgs<T>&, cudaStream_t);

}  // namespace ridgeline::cuda
