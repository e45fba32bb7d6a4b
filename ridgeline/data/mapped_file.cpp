#include "ridgeline/data/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "ridgeline/core/error.h"

namespace ridgeline::data {
namespace {

// The mappings of this process. A signal handler belongs to the whole process and gets only an
// address, so this table must be global.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> shrunk{false};
};
constexpr size_t kMostMappings = 64;
std::array<Slot, kMostMappings> slots;
struct sigaction before;  // the previous handler

uintptr_t page_size() {
  static const auto size = uintptr_t(::sysconf(_SC_PAGESIZE));
  return size;
}

// Replaces the pages that no longer have a file behind them by zeros, starting with the accessed
// one. Addresses that are not ours go to the previous handler.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int kept = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    const uintptr_t begin = slot.begin.load(), end = slot.end.load();
    if (address < begin || address >= end) continue;
    const uintptr_t page = address / page_size() * page_size();
    slot.shrunk.store(true);
    void* const zeros = ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) break;
    errno = kept;
    return;
  }
  errno = kept;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    ::sigaction(SIGBUS, &before, nullptr);  // the access is repeated, and ends the program
  }
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    (void)page_size();  // must not be computed first in a handler
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &before);
  });
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::map(const InputFile& file) {
  if (file.size() <= 0) return nullptr;
  size_t place = 0;
  while (place < slots.size() && slots[place].taken.exchange(true)) ++place;
  if (place == slots.size()) return nullptr;
  Slot& slot = slots[place];
  install_handler();
  const auto size = size_t(file.size());
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (data == MAP_FAILED) {
    slot.taken.store(false);
    return nullptr;
  }
  const auto begin = reinterpret_cast<uintptr_t>(data);
  slot.shrunk.store(false);
  slot.end.store((begin + size + page_size() - 1) / page_size() * page_size());
  slot.begin.store(begin);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(Descriptor(::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0)),
                     {static_cast<const std::byte*>(data), size}, file.name(), place));
}

MappedFile::~MappedFile() {
  Slot& slot = slots[slot_];
  slot.end.store(0);
  slot.begin.store(0);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  slot.taken.store(false);
}

void MappedFile::check() const {
  // The missing part of the last page that is left reads as zeros, without a signal.
  struct stat status {};
  const bool shorter =
      ::fstat(file_.get(), &status) == 0 && status.st_size < int64_t(bytes_.size());
  if (!shorter && !slots[slot_].shrunk.load()) return;
  throw_error(ErrorKind::data,
              "{}: shrank while it was read: it had {} bytes; is it being rewritten?", name_,
              bytes_.size());
}

}  // namespace ridgeline::data
