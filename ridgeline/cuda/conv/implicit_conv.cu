#include <algorithm>

#include "ridgeline/cuda/conv/implicit.cuh"

namespace ridgeline::cuda {

const char* refuse_implicit(const ImplicitShape& shape, size_t width, size_t shared_memory) {
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  if (shape.groups * group_blocks(shape, kImplicitOutputs) > 65535) return "has too many groups";
  if (size_t(implicit_shared(shape, int(width), false)) > shared_memory) {
    return "image and filters do not fit in shared memory";
  }
  return "";
}

size_t implicit_workspace(const ImplicitShape& shape, size_t width) {
  const auto blocks = size_t(shape.groups * group_blocks(shape, kImplicitOutputs));
  return blocks * size_t(shape.filter) * size_t(implicit_stage(shape, int(width)));
}

#define RIDGELINE_LAUNCH_IMPLICIT(T)                                                             \
  template cudaError_t launch_implicit<T>(const ImplicitArgs<T>&, const PooledOutput<T>&,        \
                                          const uint32_t*, cudaStream_t);                        \
  template cudaError_t launch_conv2d_implicit<T>(const ImplicitArgs<T>&, const PooledOutput<T>&, \
                                                 void*, cudaStream_t);
RIDGELINE_LAUNCH_IMPLICIT(float)
RIDGELINE_LAUNCH_IMPLICIT(__nv_bfloat16)
RIDGELINE_LAUNCH_IMPLICIT(__half)

}  // namespace ridgeline::cuda
