// 16-bit factors. Two images in one large block serve small batches best (34 us for 100 images on
// an H200, 97 for 1,000); two blocks a multiprocessor, one in its first layer while the other is in
// its second, large ones (0.74 ms for 10,000).
#include "ridgeline/cuda/conv/twice.cuh"

namespace ridgeline::cuda {

template <typename T>
cudaError_t launch_conv_pool_twice(const TwiceShape&, const TwiceArgs<T>& args, int variant,
                                   int processors, cudaStream_t stream) {
  using Shape = Twice<72, 72, 7, 12, 7, 24>;
  switch (variant) {
    case 0:
      return launch_twice<T, Shape, 2, 15, 3, 1>(args, processors, stream);
    case 1:
      return launch_twice<T, Shape, 2, 11, 4, 1>(args, processors, stream);
    default:
      return launch_twice<T, Shape, 1, 8, 3, 2>(args, processors, stream);
  }
}

template cudaError_t launch_conv_pool_twice(const TwiceShape&, const TwiceArgs<__nv_bfloat16>&, int,
                                            int, cudaStream_t);
template cudaError_t launch_conv_pool_twice(const TwiceShape&, const TwiceArgs<__half>&, int, int,
                                            cudaStream_t);

size_t twice_shared_memory(size_t factor) {
  using Shape = Twice<72, 72, 7, 12, 7, 24>;
  return factor == 4 ? TwiceMemory<float, Shape, 1>::kTotal : TwiceMemory<__half, Shape, 2>::kTotal;
}

bool has_twice(const TwiceShape& shape) { return shape == TwiceShape{72, 72, 7, 12, 7, 24}; }

}  // namespace ridgeline::cuda
