#include "ridgeline/cpu/rows.h"

#include <iterator>
#include <utility>

#include "ridgeline/cpu/onednn/rows.h"
#include "ridgeline/cpu/reference/rows.h"
#include "ridgeline/cpu/simd/rows.h"

namespace ridgeline::cpu {
namespace {

void append(Table& table, Table more) {
  table.insert(table.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

}  // namespace

Table rows() {
  Table table;
  append(table, simd_rows());
  append(table, onednn_rows());
  append(table, onednn_recurrent_rows());
  append(table, reference_rows());
  return table;
}

}  // namespace ridgeline::cpu
