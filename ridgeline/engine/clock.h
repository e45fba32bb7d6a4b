#pragma once

#include <chrono>

namespace ridgeline::engine {

// Measures the seconds since its construction.
class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace ridgeline::engine
