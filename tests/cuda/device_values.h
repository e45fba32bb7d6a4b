#pragma once

#include <map>

#include "ridgeline/plan/plan.h"
#include "tests/support/arrays.h"

namespace ridgeline::test {

// Memory of a runtime for every outside value of a program, filled from host arrays.
class DeviceValues {
 public:
  DeviceValues(Runtime& runtime, const Program& program, const Arrays& arrays)
      : runtime_(runtime), program_(program) {
    for (const ValueInfo& info : program.values) {
      if (info.role == Role::temp) continue;
      const Tensor& host = arrays[info.value];
      DeviceBuffer& buffer =
          buffers_.emplace(info.value.id, DeviceBuffer(runtime, std::max<size_t>(1, host.bytes())))
              .first->second;
      runtime.upload(buffer.data(), host.data, host.bytes());
    }
  }

  Externals externals() const {
    Externals all;
    for (const auto& [id, buffer] : buffers_) {
      const Value& value = program_.info(id).value;
      all[id] = {buffer.data(), value.dtype, value.shape, runtime_.device()};
    }
    return all;
  }

  // The current contents of the outside values; temporaries stay poisoned.
  Arrays read() const {
    Arrays arrays(program_);
    for (const auto& [id, buffer] : buffers_) {
      const Tensor& host = arrays.at(id);
      runtime_.download(host.data, buffer.data(), host.bytes());
    }
    return arrays;
  }

 private:
  Runtime& runtime_;
  const Program& program_;
  std::map<ValueId, DeviceBuffer> buffers_;
};

}  // namespace ridgeline::test
