#include "ridgeline/cpu/onednn/rows.h"

#ifdef RIDGELINE_HAVE_ONEDNN
#include "ridgeline/cpu/onednn/layout.h"
#endif

namespace ridgeline::cpu {

Table onednn_rows() {
  Table table;
#ifdef RIDGELINE_HAVE_ONEDNN
  for (const auto family :
       {onednn_linear_rows, onednn_conv_rows, onednn_pool_rows, onednn_norm_rows}) {
    for (Impl& row : family()) table.push_back(std::move(row));
  }
  table.push_back(reorder_row());
#endif
  return table;
}

}  // namespace ridgeline::cpu
