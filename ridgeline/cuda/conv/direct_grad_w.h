#pragma once

#include "ridgeline/cuda/conv/implicit.h"

// The filters' gradient of a convolution of several input channels by fp32 multiply-adds: products
// and sums as exact as fp32 is. Deterministic.
namespace ridgeline::cuda {

// Why no kernel takes this shape; "" when one does.
const char* refuse_direct_grad_w(const ImplicitShape& shape, size_t shared_memory);
size_t direct_grad_w_workspace(const ImplicitShape& shape, int sms);

// dw[k, c, filter, filter] and, unless null, db[k], both written.
struct DirectGradWArgs {
  ImplicitShape shape;
  const float *x, *dy;
  float *dw, *db;
};
cudaError_t launch_conv2d_grad_w_direct(const DirectGradWArgs& args, void* workspace, int sms,
                                        cudaStream_t stream);

}  // namespace ridgeline::cuda
