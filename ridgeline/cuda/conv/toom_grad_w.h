#pragma once

#include "ridgeline/cuda/conv/direct_grad_w.h"

// The filters' gradient of a convolution of several input channels in fp32 with fewer
// multiplications along the rows (ops/toom.h): the taps of a row of a filter are the outputs, four
// neighbouring numbers of dy what they are convolved with. Sums over rows, tiles and images are
// taken before the transform back. Deterministic.
namespace ridgeline::cuda {

// Why no kernel takes this shape; "" when one does.
const char* refuse_toom_grad_w(const ImplicitShape& shape, size_t shared_memory);
size_t toom_grad_w_workspace(const ImplicitShape& shape, int processors, size_t shared_memory);
cudaError_t launch_conv2d_grad_w_toom(const DirectGradWArgs& args, void* workspace, int processors,
                                      size_t shared_memory, cudaStream_t stream);

}  // namespace ridgeline::cuda
