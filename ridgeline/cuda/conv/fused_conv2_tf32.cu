// The kernel with 32-bit factors. The second layer's weights fill most of the shared memory, so an
// SM has room for one image.
#include "ridgeline/cuda/conv/fused_conv2.cuh"

namespace ridgeline::cuda {

template <>
cudaError_t launch_fused_conv2(const FusedConv2Shape&, const FusedConv2Args<float>& args,
                               int variant, int sms, cudaStream_t stream) {
  using Shape = FusedConv2<72, 72, 7, 12, 7, 24>;
  switch (variant) {
    case 0:
      return launch_fused_conv2_of<float, Shape, 1, 11, 2, 1>(args, sms, stream);
    case 1:
      return launch_fused_conv2_of<float, Shape, 1, 8, 3, 1>(args, sms, stream);
    default:
      return launch_fused_conv2_of<float, Shape, 1, 6, 4, 1>(args, sms, stream);
  }
}

template <>
std::string fused_conv2_variant<float>(int variant) {
  constexpr const char* kNames[] = {"1 image, 11 warps a block", "1 image, 8 warps a block",
                                    "1 image, 6 warps a block"};
  return kNames[variant];
}

}  // namespace ridgeline::cuda
