#pragma once

#include <string>
#include <string_view>

namespace ridgeline {

enum class DeviceKind { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;

  // True for the host itself: values are in host memory, and work is done when a call returns.
  bool is_host() const { return kind == DeviceKind::cpu; }
  bool operator==(const Device&) const = default;
};

std::string to_string(Device device);        // "cpu", "cuda:1"
Device parse_device(std::string_view text);  // "cpu", "cuda", "cuda:1"; throws usage

}  // namespace ridgeline
