#pragma once

#include <string>

#include "ridgeline/core/communicator.h"

namespace ridgeline {

// Sums over ranks of memory of their GPUs. A Communicator may be one; kernels that would hand a
// GPU's pointers to it look for it.
class DeviceSums {
 public:
  virtual ~DeviceSums() = default;

  // Why there are none (the library that carries messages takes the host's memory alone); empty
  // where there are. All ranks have them or none.
  virtual std::string device_refusal() const = 0;

  // to[i] = the sum of from[i] over the ranks; fp32 or fp64; `to` may be `from`. Collective. What
  // writes `from` and uses `to` must have ended, and both may be used on return. The library calls
  // CUDA, so the thread must have this rank's GPU as its device and be in no host step of a graph.
  virtual void all_reduce_device(const void* from, void* to, int64_t count, DType dtype) = 0;
};

inline bool takes_device_memory(const Communicator& ranks) {
  const auto* sums = dynamic_cast<const DeviceSums*>(&ranks);
  return sums != nullptr && sums->device_refusal().empty();
}

}  // namespace ridgeline
