#include <nanobind/stl/string.h>

#include "python/src/compute.h"

// The module ridgeline._core: ridgeline/ridgeline.h in Python's types. The Python files beside it
// build the package on it; its functions check only arrays.
namespace ridgeline::python {
namespace {

// Raises the class of ridgeline/_errors.py that belongs to the kind.
void raise(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::object made =
        nb::module_::import_("ridgeline._errors").attr("make")(name(error.kind()), error.what());
    PyErr_SetObject(made.type().ptr(), made.ptr());
  }
}

}  // namespace
}  // namespace ridgeline::python

NB_MODULE(_core, module) {
  using namespace ridgeline;
  python::watch_forks();
  nanobind::register_exception_translator(python::raise);
  python::add_model(module);
  python::add_predictor(module);
  python::add_function(module);
  python::add_training(module);
  // An object that outlives the interpreter, in a cycle or a thread, is no news to who uses it.
  nanobind::set_leak_warnings(false);
  module.def(
      "copied_bytes", &python::copied_bytes,
      "The bytes that were copied because arrays could not be used where they lay, since the "
      "start of the process.");
  module.def("version", &version);
}
