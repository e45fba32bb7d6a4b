#include "ridgeline/cpu/kernels.h"

#include <iterator>
#include <utility>

#include "ridgeline/cpu/custom.h"
#include "ridgeline/cpu/onednn/kernels.h"
#include "ridgeline/cpu/reference/kernels.h"
#include "ridgeline/cpu/simd/kernels.h"
#include "ridgeline/cpu/simd/net_infer_kernels.h"

namespace ridgeline::cpu {
namespace {

void append(KernelTable& table, KernelTable more) {
  table.insert(table.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

}  // namespace

KernelTable kernels() {
  KernelTable table;
  append(table, simd_kernels());
  append(table, onednn_kernels());
  append(table, onednn_recurrent_kernels());
  append(table, custom_kernels());
  append(table, reference_kernels());
  return table;
}

KernelTable inference_kernels() { return simd::net_infer_kernels(); }

}  // namespace ridgeline::cpu
