#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <vector>

#include "ridgeline/ridgeline.h"

namespace ridgeline::python {

namespace nb = nanobind;

// An array of the caller where it lies: anything with DLPack or the buffer protocol on the CPU. It
// keeps the owner alive.
class Borrowed {
 public:
  // Throws TypeError or ValueError that names the argument, what came and what is wanted. Memory
  // that is not in row-major order is copied first, by NumPy.
  Borrowed(nb::handle object, const char* argument);

  const Array& array() const { return array_; }
  int64_t samples() const { return array_.shape.empty() ? 0 : array_.shape.front(); }

 private:
  nb::ndarray<nb::ro> held_;
  Array array_;
};

// Memory for answers that the caller may give; throws as Borrowed for another type, shape, order or
// memory that cannot be written.
template <typename T>
T* writable(nb::handle object, const char* argument, const std::vector<int64_t>& shape);

// A NumPy array that owns its memory.
template <typename T>
nb::object new_array(const std::vector<int64_t>& shape, T*& data);
// A NumPy array with a copy of the values.
nb::object copied_array(const Array& array);

// The bytes that were copied only to get arrays into row-major order, since the start.
int64_t copied_bytes();

std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace ridgeline::python
