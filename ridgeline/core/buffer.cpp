#include "ridgeline/core/buffer.h"

#include <sys/mman.h>

#include <cstdint>

namespace ridgeline {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Below this, a few huge pages that are mostly empty would cost more than they save.
constexpr size_t kLarge = 8 * kHugePage;

}  // namespace

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  const size_t padded = align_up(bytes) + kAlignment;
  const auto fail = [&] {
    throw_error(ErrorKind::device, "out of memory: {} bytes of host memory", padded);
  };
  if (padded < kLarge) {
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded)));
    if (!data_) fail();
    std::memset(data_.get(), 0, padded);
    return;
  }
  // Pages from the system are zero already, and a huge one costs one page fault instead of 512.
  const size_t length = padded + kHugePage;
  void* const pages =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) fail();
  const auto begin = reinterpret_cast<uintptr_t>(pages);
  auto* const memory = static_cast<std::byte*>(pages) + (align_up(begin, kHugePage) - begin);
#ifdef MADV_HUGEPAGE
  madvise(memory, padded, MADV_HUGEPAGE);  // only a hint
#endif
  data_ = std::unique_ptr<std::byte, Free>(memory, Free{pages, length});
}

void Buffer::Free::operator()(std::byte* memory) const {
  if (pages != nullptr) {
    munmap(pages, bytes);
  } else {
    std::free(memory);
  }
}

}  // namespace ridgeline
