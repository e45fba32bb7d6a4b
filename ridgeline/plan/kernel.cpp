#include "ridgeline/plan/kernel.h"

namespace ridgeline {

bool Rest::dead_after(const Value& value, size_t count) const {
  return program.info(value.id).role == Role::temp &&
         program.last_read(value.id) < int64_t(begin + count);
}

}  // namespace ridgeline
