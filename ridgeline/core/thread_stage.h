#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace ridgeline {

// Functions that one system thread runs in turn, each on a stack of its own: a function runs until
// it calls pause(), then the next one does.
class ThreadStage {
 public:
  // Whether this build can switch stacks; sanitizers must be told, which is not done.
  static bool supported();

  ThreadStage() = default;
  ~ThreadStage();
  ThreadStage(const ThreadStage&) = delete;
  ThreadStage& operator=(const ThreadStage&) = delete;

  // Makes stacks for so many functions; false if there is no memory for them.
  bool reserve(int functions);

  // Runs f(0) ... f(functions - 1) until all have returned. Whenever all that have not returned
  // have called pause(true) since, it calls meet(). `functions` are reserved.
  void run(int functions, const std::function<void(int)>& f, const std::function<void()>& meet);

  // Called by one of these functions. `meets`: it continues after the next meet(); otherwise when
  // the others have had a turn.
  void pause(bool meets);

 private:
  struct Fiber;
  static void enter(unsigned high, unsigned low);

  std::vector<Fiber*> fibers_;
  Fiber* current_ = nullptr;
  const std::function<void(int)>* f_ = nullptr;
};

}  // namespace ridgeline
