// 32-bit factors: the second layer's weights fill most of the shared memory, so a multiprocessor
// has room for one image.
#include "ridgeline/cuda/conv/twice.cuh"

namespace ridgeline::cuda {

template <>
cudaError_t launch_conv_pool_twice(const TwiceShape&, const TwiceArgs<float>& args, int variant,
                                   int processors, cudaStream_t stream) {
  using Shape = Twice<72, 72, 7, 12, 7, 24>;
  switch (variant) {
    case 0:
      return launch_twice<float, Shape, 1, 11, 2, 1>(args, processors, stream);
    case 1:
      return launch_twice<float, Shape, 1, 8, 3, 1>(args, processors, stream);
    default:
      return launch_twice<float, Shape, 1, 6, 4, 1>(args, processors, stream);
  }
}

}  // namespace ridgeline::cuda
