#pragma once

#include "ridgeline/cuda/conv/implicit.h"

// The gradient of the filters of a convolution with several input channels, in fp32 by
// one-dimensional Winograd along the rows (ops/winograd1d.h). Its outputs are the taps of a row of
// a filter, and its filters are four neighbouring values of dy. Sums over rows, tiles and images
// are taken before the output transform. Deterministic.
namespace ridgeline::cuda {

// Why no kernel takes this shape; "" if one does.
const char* refuse_winograd1d_grad_w(const ImplicitShape& shape, size_t shared_memory);
size_t winograd1d_grad_w_workspace(const ImplicitShape& shape, int sms, size_t shared_memory);
// Writes dw[k, c, filter, filter] and, unless null, db[k].
struct GradWArgs {
  ImplicitShape shape;
  const float *x, *dy;
  float *dw, *db;
};
cudaError_t launch_conv2d_grad_w_winograd1d(const GradWArgs& args, void* workspace, int sms,
                                            size_t shared_memory, cudaStream_t stream);

}  // namespace ridgeline::cuda
