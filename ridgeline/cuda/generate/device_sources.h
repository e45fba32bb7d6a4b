#pragma once

#include <span>

namespace ridgeline::cuda::generate {

// A header of generate/device in this build, under the name by which sources include it.
struct DeviceHeader {
  const char *name, *text;
};
std::span<const DeviceHeader> device_headers();

}  // namespace ridgeline::cuda::generate
