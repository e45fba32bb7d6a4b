#pragma once

#include "python/src/arrays.h"

namespace ridgeline::python {

// Call it before anything that may start threads or use a GPU: throws in a process that was forked
// after such a call, because threads do not survive there.
void about_to_compute();
void watch_forks();

DeviceOptions device_options(const std::string& device, int threads, bool tune, int64_t batch);

// Memory for float32 outputs: `out` if it is an array of this shape, on the host or on `gpu`, else
// new memory there. `owner` has the queue, and lives as long as the memory.
class Answers {
 public:
  Answers(nb::handle out, std::span<const int64_t> shape, int gpu, nb::handle owner,
          const GpuQueue* queue);

  float* data() const { return data_; }
  nb::object object() { return std::move(object_); }

 private:
  float* data_ = nullptr;
  std::optional<Held> held_;
  nb::object object_;
};

// Returns a NumPy array with the float32 numbers at an address of the queue's device.
nb::object downloaded(const GpuQueue& queue, intptr_t address, const std::vector<int64_t>& shape);

// Each adds one class or one function to the module.
void add_model(nb::module_& module);
void add_predictor(nb::module_& module);
void add_function(nb::module_& module);
void add_training(nb::module_& module);

}  // namespace ridgeline::python
