#include <algorithm>

#include "ridgeline/cuda/conv/implicit.cuh"

namespace ridgeline::cuda {

const char* refuse_implicit(const ImplicitShape& shape, size_t width, size_t shared_memory) {
  if (shape.k > 64) return "takes up to 64 output channels";
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  if (size_t(implicit_shared(shape, int(width))) > shared_memory) {
    return "image and filters do not fit in shared memory";
  }
  return "";
}

size_t implicit_workspace(const ImplicitShape& shape, size_t width) {
  const ImplicitMap map(shape, int(width));
  const int pairs = implicit_outputs(shape.k) / 16;
  return size_t(shape.filter) * size_t(implicit_steps(shape.filter, map.c, int(width))) *
         size_t(pairs) * 512;
}

#define RIDGELINE_LAUNCH_IMPLICIT(T)                                                             \
  template cudaError_t launch_conv2d_implicit<T>(const ImplicitArgs<T>&, const PooledOutput<T>&, \
                                                 void*, cudaStream_t);
RIDGELINE_LAUNCH_IMPLICIT(float)
RIDGELINE_LAUNCH_IMPLICIT(__nv_bfloat16)
RIDGELINE_LAUNCH_IMPLICIT(__half)

}  // namespace ridgeline::cuda
