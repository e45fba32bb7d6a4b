// The kernel with 16-bit factors. Two images in one large block serve small batches best (34 us for
// 100 images on an H200, 97 us for 1,000). Two blocks per SM, one in its first layer while the
// other is in its second, serve large batches best (0.74 ms for 10,000).
#include "ridgeline/cuda/conv/fused_conv2.cuh"

namespace ridgeline::cuda {

template <typename T>
cudaError_t launch_fused_conv2(const FusedConv2Shape&, const FusedConv2Args<T>& args, int variant,
                               int sms, cudaStream_t stream) {
  using Shape = FusedConv2<72, 72, 7, 12, 7, 24>;
  switch (variant) {
    case 0:
      return launch_fused_conv2_of<T, Shape, 2, 15, 3, 1>(args, sms, stream);
    case 1:
      return launch_fused_conv2_of<T, Shape, 2, 11, 4, 1>(args, sms, stream);
    default:
      return launch_fused_conv2_of<T, Shape, 1, 8, 3, 2>(args, sms, stream);
  }
}

template <typename T>
std::string fused_conv2_variant(int variant) {
  constexpr const char* kNames[] = {"2 images, 15 warps a block", "2 images, 11 warps a block",
                                    "1 image, 8 warps a block, 2 blocks an SM"};
  return kNames[variant];
}
template std::string fused_conv2_variant<__nv_bfloat16>(int);
template std::string fused_conv2_variant<__half>(int);

template cudaError_t launch_fused_conv2(const FusedConv2Shape&,
                                        const FusedConv2Args<__nv_bfloat16>&, int, int,
                                        cudaStream_t);
template cudaError_t launch_fused_conv2(const FusedConv2Shape&, const FusedConv2Args<__half>&, int,
                                        int, cudaStream_t);

size_t fused_conv2_shared_memory(size_t factor) {
  using Shape = FusedConv2<72, 72, 7, 12, 7, 24>;
  return factor == 4 ? FusedConv2Memory<float, Shape, 1>::kTotal
                     : FusedConv2Memory<__half, Shape, 2>::kTotal;
}

bool has_fused_conv2(const FusedConv2Shape& shape) {
  return shape == FusedConv2Shape{72, 72, 7, 12, 7, 24};
}

}  // namespace ridgeline::cuda
