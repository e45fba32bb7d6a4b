#pragma once

#include <span>

namespace ridgeline::cuda::generate {

// A header of generate/device as this build has it, under the name that sources include it by.
struct DeviceHeader {
  const char *name, *text;
};
std::span<const DeviceHeader> device_headers();

}  // namespace ridgeline::cuda::generate
