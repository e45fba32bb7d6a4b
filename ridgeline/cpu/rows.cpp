#include "ridgeline/cpu/rows.h"

#include <iterator>
#include <utility>

#include "ridgeline/cpu/onednn/rows.h"
#include "ridgeline/cpu/reference/rows.h"
#if __has_include("ridgeline/cpu/simd/rows.h")
#include "ridgeline/cpu/simd/rows.h"
#define RIDGELINE_HAVE_SIMD 1
#endif

namespace ridgeline::cpu {
namespace {

void append(Table& table, Table more) {
  table.insert(table.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

}  // namespace

Table rows() {
  Table table;
#ifdef RIDGELINE_HAVE_SIMD
  append(table, simd_rows());
#endif
  append(table, onednn_rows());
  append(table, reference_rows());
  return table;
}

}  // namespace ridgeline::cpu
