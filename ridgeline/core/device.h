#pragma once

#include <string>
#include <string_view>

namespace ridgeline {

enum class DeviceKind { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

std::string to_string(Device device);        // "cpu", "cuda:1"
Device parse_device(std::string_view text);  // "cpu", "cuda", "cuda:1"; throws usage

}  // namespace ridgeline
