#include "ridgeline/cpu/onednn/kernels.h"

#ifdef RIDGELINE_HAVE_ONEDNN
#include "ridgeline/cpu/onednn/layout.h"
#endif

namespace ridgeline::cpu {

KernelTable onednn_kernels() {
  KernelTable table;
#ifdef RIDGELINE_HAVE_ONEDNN
  for (const auto family : {blocked_conv_kernels, onednn_linear_kernels, onednn_conv_kernels,
                            onednn_pool_kernels, onednn_norm_kernels}) {
    for (Kernel& kernel : family()) table.push_back(std::move(kernel));
  }
  for (Kernel& kernel : reorder_kernels()) table.push_back(std::move(kernel));
#endif
  return table;
}

KernelTable blocked_kernels() {
#ifdef RIDGELINE_HAVE_ONEDNN
  return blocked_norm_kernels();
#else
  return {};
#endif
}

KernelTable onednn_fixed_kernels() {
  KernelTable table;
#ifdef RIDGELINE_HAVE_ONEDNN
  for (const auto family : {onednn_fixed_linear_kernels, onednn_fixed_conv_kernels}) {
    for (Kernel& kernel : family()) table.push_back(std::move(kernel));
  }
#endif
  return table;
}

}  // namespace ridgeline::cpu
