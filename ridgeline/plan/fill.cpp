#include "ridgeline/plan/fill.h"

#include <algorithm>

namespace ridgeline {

// Activations of a large batch take gigabytes: a GPU doubles what it already has, which is faster
// than copies from the host.
void fill_repeating(Runtime& runtime, std::byte* data, size_t bytes,
                    std::span<const std::byte> block) {
  if (block.empty()) return;
  size_t done = std::min(bytes, block.size());
  runtime.upload(data, block.data(), done);
  const bool doubles = !runtime.device().is_host();
  while (done < bytes) {
    const size_t part = std::min(doubles ? done : block.size(), bytes - done);
    runtime.upload(data + done, doubles ? data : block.data(), part);
    done += part;
  }
}

}  // namespace ridgeline
