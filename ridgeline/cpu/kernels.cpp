#include "ridgeline/cpu/kernels.h"

#include <iterator>
#include <utility>

#include "ridgeline/cpu/custom.h"
#include "ridgeline/cpu/onednn/kernels.h"
#include "ridgeline/cpu/reference/kernels.h"
#include "ridgeline/cpu/simd/conv_net_kernels.h"
#include "ridgeline/cpu/simd/kernels.h"
#include "ridgeline/cpu/simd/net_infer_kernels.h"

namespace ridgeline::cpu {
namespace {

void append(KernelTable& table, KernelTable more) {
  table.insert(table.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

// Returns the precisions that a CPU computes in: tf32 and fp32x3 need tensor cores.
Precisions on_cpu(Precisions precisions) {
  Precisions kept{};
  for (const Precision each :
       {Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16}) {
    if (precisions.has(each)) kept = kept | Precisions{each};
  }
  return kept;
}

}  // namespace

KernelTable kernels() {
  KernelTable table;
  append(table, blocked_kernels());
  append(table, simd_kernels());
  append(table, onednn_kernels());
  append(table, onednn_recurrent_kernels());
  append(table, custom_kernels());
  append(table, reference_kernels());
  for (Kernel& kernel : table) kernel.traits.precisions = on_cpu(kernel.traits.precisions);
  return table;
}

KernelTable inference_kernels() {
  KernelTable table = simd::net_infer_kernels();
  append(table, simd::conv_net_kernels());
  append(table, onednn_fixed_kernels());
  return table;
}

}  // namespace ridgeline::cpu
