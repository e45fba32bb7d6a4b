#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/compute.h"

namespace ridgeline::python {
namespace {

void* pointer(intptr_t address) { return reinterpret_cast<void*>(address); }

// A model with gradients. Memory is passed by address: ridgeline.torch, the caller, has checked
// types, shapes and devices.
nb::list weights(nb::object self) {
  const auto& function = nb::cast<Differentiable&>(self);
  nb::list all;
  for (size_t i = 0; i < function.weights().size(); ++i) {
    const NamedArray& each = function.weights()[i];
    all.append(
        nb::make_tuple(each.name, view_array(each.values, self), bool(function.trained()[i])));
  }
  return all;
}

void forward(Differentiable& self, intptr_t x, int64_t n, intptr_t y, int64_t step, bool training) {
  about_to_compute();
  const nb::gil_scoped_release unlocked;
  self.forward(pointer(x), n, pointer(y), step, training);
}

void backward(Differentiable& self, intptr_t x, intptr_t dy, int64_t n, intptr_t dx,
              const std::vector<intptr_t>& grads, int64_t step, bool training) {
  about_to_compute();
  std::vector<void*> memory;
  for (const intptr_t each : grads) memory.push_back(pointer(each));
  const nb::gil_scoped_release unlocked;
  self.backward(pointer(x), pointer(dy), n, pointer(dx), memory, step, training);
}

}  // namespace

void add_function(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Differentiable>(module, "Function", "A model with gradients; ridgeline.torch uses it.")
      .def(
          "__init__",
          [](Differentiable* self, const Model& model, const std::string& device, int threads,
             bool tune) {
            about_to_compute();
            const nb::gil_scoped_release unlocked;
            new (self) Differentiable(model, device_options(device, threads, tune, 1));
          },
          "model"_a, "device"_a = "auto", "threads"_a = 0, "tune"_a = true)
      .def("weights", &weights)
      .def("forward", &forward, "x"_a, "n"_a, "y"_a, "step"_a, "training"_a)
      .def("backward", &backward, "x"_a, "dy"_a, "n"_a, "dx"_a, "grads"_a, "step"_a, "training"_a)
      .def("double", [](const Differentiable& self) { return self.type() == ArrayType::float64; })
      .def("input_shape", &Differentiable::input_shape)
      .def("outputs", &Differentiable::outputs)
      .def("gpu", [](Differentiable& self) { return self.queue().gpu(); })
      .def("wait_for",
           [](Differentiable& self, intptr_t stream) { self.queue().wait_for(pointer(stream)); })
      .def("let_wait",
           [](Differentiable& self, intptr_t stream) { self.queue().let_wait(pointer(stream)); })
      .def("synchronize", [](Differentiable& self) { self.queue().synchronize(); });
}

}  // namespace ridgeline::python
