#pragma once

#include <string>

#include "ridgeline/core/communicator.h"

namespace ridgeline {

// Sums over ranks of memory on their GPUs. A Communicator may implement this too; kernels that
// would pass it GPU pointers check for it.
class DeviceSums {
 public:
  virtual ~DeviceSums() = default;

  // Returns why it is unavailable (the message library takes host memory only), or an empty string
  // if it is available. The answer is the same on all ranks.
  virtual std::string device_refusal() const = 0;

  // to[i] = the sum of from[i] over the ranks; fp32 or fp64; `to` may be `from`. Collective. All
  // work that writes `from` or uses `to` must be finished, and both may be used on return. The
  // library calls CUDA, so this rank's GPU must be current, and the call must not be in a graph's
  // host node.
  virtual void all_reduce_device(const void* from, void* to, int64_t count, DType dtype) = 0;
};

inline bool takes_device_memory(const Communicator& ranks) {
  const auto* sums = dynamic_cast<const DeviceSums*>(&ranks);
  return sums != nullptr && sums->device_refusal().empty();
}

}  // namespace ridgeline
