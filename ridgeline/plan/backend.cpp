#include "ridgeline/plan/backend.h"

#include "ridgeline/core/buffer.h"

namespace ridgeline {

std::shared_ptr<std::byte> Backend::host_memory(size_t bytes) const {
  auto buffer = std::make_shared<Buffer>(bytes);
  return {buffer, buffer->data()};
}

std::unique_ptr<OneSampleNet> Backend::make_one_sample_net(Runtime& runtime, const LayerChain&,
                                                           const OneSampleOptions&,
                                                           std::string& why_not) const {
  why_not = to_string(runtime.device()) + " has no kernel for it";
  return nullptr;
}

}  // namespace ridgeline
