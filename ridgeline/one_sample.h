#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ridgeline/core/runtime.h"
#include "ridgeline/plan/layer_chain.h"

// Device functions for a few samples at low latency; registry.cpp names the backends.
namespace ridgeline {

// Host memory that the runtime's device copies from and to directly: pinned for a GPU.
std::shared_ptr<std::byte> host_memory(Runtime& runtime, size_t bytes);

// Returns a net that answers for one sample at a time, if the device has a kernel for that and the
// chain fits it; else null, with the reason in `why_not`.
std::unique_ptr<OneSampleNet> make_one_sample_net(Runtime& runtime, const LayerChain& chain,
                                                  const OneSampleOptions& options,
                                                  std::string& why_not);

}  // namespace ridgeline
