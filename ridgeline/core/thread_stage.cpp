#include "ridgeline/core/thread_stage.h"

#include <sched.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

namespace ridgeline {
namespace {

// Kernels keep tiles of up to some hundred KiB on the stack. Pages are only used once touched.
constexpr size_t kStackBytes = 2 << 20, kGuardBytes = 64 << 10;

}  // namespace

struct ThreadStage::Fiber {
  enum class State { ready, meeting, ended };
  ucontext_t here, host;
  std::byte* memory = nullptr;  // the stack, behind a guard that ends the process if it overflows
  State state = State::ended;
  ThreadStage* stage = nullptr;
  int index = 0;
};

bool ThreadStage::supported() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

ThreadStage::~ThreadStage() {
  for (Fiber* fiber : fibers_) {
    munmap(fiber->memory, kGuardBytes + kStackBytes);
    delete fiber;
  }
}

bool ThreadStage::reserve(int functions) {
  while (int(fibers_.size()) < functions) {
    void* const memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return false;
    auto* const fiber = new (std::nothrow) Fiber;
    if (fiber == nullptr || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
      munmap(memory, kGuardBytes + kStackBytes);
      delete fiber;
      return false;
    }
    fiber->memory = static_cast<std::byte*>(memory);
    fiber->stage = this;
    fiber->index = int(fibers_.size());
    fibers_.push_back(fiber);
  }
  return true;
}

// makecontext passes ints: the address of the fiber in two halves.
void ThreadStage::enter(unsigned high, unsigned low) {
  auto* const fiber = reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low);
  (*fiber->stage->f_)(fiber->index);
  fiber->state = Fiber::State::ended;
  // Returning continues at uc_link, the host.
}

void ThreadStage::run(int functions, const std::function<void(int)>& f,
                      const std::function<void()>& meet) {
  using State = Fiber::State;
  f_ = &f;
  for (int i = 0; i < functions; ++i) {
    Fiber& fiber = *fibers_[size_t(i)];
    getcontext(&fiber.here);
    fiber.here.uc_stack.ss_sp = fiber.memory + kGuardBytes;
    fiber.here.uc_stack.ss_size = kStackBytes;
    fiber.here.uc_link = &fiber.host;
    const auto address = reinterpret_cast<uintptr_t>(&fiber);
    makecontext(&fiber.here, reinterpret_cast<void (*)()>(&ThreadStage::enter), 2,
                unsigned(address >> 32), unsigned(address));
    fiber.state = State::ready;
  }
  while (true) {
    int ready = 0, meeting = 0;
    for (int i = 0; i < functions; ++i) {
      Fiber& fiber = *fibers_[size_t(i)];
      if (fiber.state == State::ready) {
        current_ = &fiber;
        swapcontext(&fiber.host, &fiber.here);
        current_ = nullptr;
      }
      ready += fiber.state == State::ready;
      meeting += fiber.state == State::meeting;
    }
    if (ready > 0) {
      sched_yield();  // they wait for others, perhaps of other system threads
    } else if (meeting > 0) {
      meet();
      for (int i = 0; i < functions; ++i) {
        Fiber& fiber = *fibers_[size_t(i)];
        if (fiber.state == State::meeting) fiber.state = State::ready;
      }
    } else {
      return;
    }
  }
}

void ThreadStage::pause(bool meets) {
  Fiber& fiber = *current_;
  fiber.state = meets ? Fiber::State::meeting : Fiber::State::ready;
  swapcontext(&fiber.here, &fiber.host);
}

}  // namespace ridgeline
