#include "ridgeline/core/device.h"

#include <charconv>

#include "ridgeline/core/error.h"

namespace ridgeline {

std::string to_string(Device device) {
  return device.kind == DeviceKind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return {};
  if (text == "cuda") return {DeviceKind::cuda, 0};
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 5, end, index);
    if (error == std::errc{} && stop == end && index >= 0) return {DeviceKind::cuda, index};
  }
  throw_error(ErrorKind::usage, "'{}' is not a device; use auto, cpu, cuda or cuda:N", text);
}

}  // namespace ridgeline
