#include "ridgeline/cuda/conv/implicit_grad_w.cuh"

namespace ridgeline::cuda {

const char* refuse_implicit_grad_w(const ImplicitShape& shape, size_t width, size_t shared_memory) {
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  if (grad_w_shared(shape, grad_w_layout(shape, int(width), 1)) > shared_memory) {
    return "two images do not fit in shared memory";
  }
  return "";
}

size_t implicit_grad_w_workspace(const ImplicitShape& shape, size_t width, int processors) {
  return GradWWorkspace(shape, grad_w_layout(shape, int(width), processors)).total;
}

template cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradWArgs<float>&, void*, int,
                                                   cudaStream_t);

}  // namespace ridgeline::cuda
