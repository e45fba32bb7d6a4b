#include "ridgeline/prof/cost.h"

#include <algorithm>
#include <map>

namespace ridgeline::prof {
namespace {

// How often the ops of a span count a value, and how often a fused kernel must move it.
struct Accesses {
  int reads = 0, writes = 0;
  bool read_first = false;
};

}  // namespace

double span_flops(const Program& program, size_t begin, size_t end) {
  double total = 0;
  for (size_t i = begin; i < end; ++i) total += flops(program.ops[i]);
  return total;
}

double span_bytes(const Program& program, size_t begin, size_t end) {
  double total = 0;
  std::map<ValueId, Accesses> moves;
  for (size_t i = begin; i < end; ++i) {
    total += bytes(program.ops[i]);
    // It only waits for sums that its start has counted.
    if (std::holds_alternative<AllReduceWait>(program.ops[i])) continue;
    for (const Value& value : reads(program.ops[i])) {
      Accesses& entry = moves[value.id];
      entry.read_first |= entry.reads + entry.writes == 0;
      ++entry.reads;
    }
    for (const Value& value : writes(program.ops[i])) ++moves[value.id].writes;
  }
  if (end - begin == 1) return total;
  for (const auto& [id, entry] : moves) {
    const ValueInfo& info = program.info(id);
    // Inputs and outputs (sets, rates, losses) are accessed only in part, and by one op.
    if (info.role == Role::input || info.role == Role::output) continue;
    const bool kept = info.role != Role::temp || program.last_read(id) >= int64_t(end);
    const int least = (entry.read_first ? 1 : 0) + (entry.writes > 0 && kept ? 1 : 0);
    total -= size_of(info.value) * (entry.reads + entry.writes - least);
  }
  return std::max(0.0, total);
}

}  // namespace ridgeline::prof
