#include "ridgeline/cuda/conv/implicit_grads.cuh"

namespace ridgeline::cuda {

const char* refuse_implicit_grads(const ImplicitShape& shape, bool dx, size_t width,
                                  size_t shared_memory) {
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  const int bytes = int(width);
  if (!needs_grad_maps(shape, dx)) {
    return single_shared(shape, single_layout(shape, bytes, 1)) <= shared_memory
               ? ""
               : "two images do not fit in shared memory";
  }
  const GradWShares shares = grad_w_shares(shape, bytes, 1, shared_memory);
  if (shares.band == 0) return "rows of two images do not fit in shared memory";
  if (shape.groups * shares.output_blocks > 65535) return "has too many groups";
  return dx ? refuse_implicit(shape.flipped(), width, shared_memory) : "";
}

GradBytes implicit_grads_bytes(const ImplicitShape& shape, bool dx, size_t width, int sms,
                               size_t shared_memory) {
  const int bytes = int(width);
  if (!needs_grad_maps(shape, dx)) {
    return {0, SingleWorkspace(shape, single_layout(shape, bytes, sms)).total};
  }
  const GradWShares shares = grad_w_shares(shape, bytes, sms, shared_memory);
  const GradWorkspace at(shape, width, shares.groups);
  return {at.partial, at.total};
}

RIDGELINE_LAUNCH_GRADS(float)

}  // namespace ridgeline::cuda
