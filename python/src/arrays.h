#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/ridgeline.h"

namespace ridgeline::python {

namespace nb = nanobind;

constexpr int kMostDims = 8;

// An array of the caller where it lies.
struct View {
  void* data = nullptr;
  std::string type;  // "float32", as NumPy calls it
  int bits = 0;
  int gpu = -1;  // -1: host memory
  bool read_only = false;
  int rank = 0;
  std::array<int64_t, kMostDims> shape{}, strides{};  // strides count elements

  int64_t elements() const;
  size_t bytes() const { return size_t(elements()) * size_t(bits / 8); }
  bool row_major() const;
  std::string shape_text() const;
};

// Holds an array of the caller that has the buffer protocol, __dlpack__, __cuda_array_interface__
// or __array_interface__, and its owner with it. Where the array lies on a GPU, its producer makes
// `queue` wait for what it has asked of the GPU so far; without a queue the host waits.
class Held {
 public:
  Held(nb::handle object, const char* argument, const GpuQueue* queue, bool writable);
  ~Held();
  Held(Held&& other) noexcept;
  Held& operator=(Held&&) = delete;

  const View& view() const { return view_; }
  void byte_strides(Py_ssize_t* strides) const;

 private:
  bool take_buffer(nb::handle object, bool writable);
  bool take_dlpack(nb::handle object, const char* argument, const GpuQueue* queue, bool writable);
  bool take_interface(nb::handle object, const char* argument, const char* protocol,
                      const GpuQueue* queue);

  View view_;
  Py_buffer buffer_{};
  bool has_buffer_ = false;
  nb::ndarray<nb::ro> array_;
  nb::object owner_;
};

// Samples, targets or weights of the caller. Throws TypeError or ValueError that names the
// argument, what came and what is wanted. Host memory that is not in row-major order is copied
// first.
class Borrowed {
 public:
  Borrowed(nb::handle object, const char* argument, const GpuQueue* queue = nullptr);

  const Array& array() const { return array_; }
  int64_t samples() const { return array_.shape.empty() ? 0 : array_.shape.front(); }

 private:
  Held held_;
  std::unique_ptr<std::byte[]> copy_;
  Array array_;
};

// The type of an array as the library has it; throws TypeError for one that it does not take.
ArrayType type_of(const View& view, const char* argument);

// Memory for answers that the caller may give, on the host or on `gpu`; throws as Borrowed for
// another type, shape, order or place, and for memory that cannot be written.
void check_writable(const Held& held, const char* argument, const char* type,
                    std::span<const int64_t> shape, int gpu);

// A NumPy array that owns its memory.
template <typename T>
nb::object new_array(const std::vector<int64_t>& shape, T*& data);
// A NumPy array over memory that `owner` keeps.
nb::object view_array(const Array& array, nb::handle owner);
// A NumPy array with a copy of the values.
nb::object copied_array(const Array& array);

// The bytes that were copied because arrays could not be used where they lay, since the start.
int64_t copied_bytes();

std::string shape_text(std::span<const int64_t> shape);

}  // namespace ridgeline::python
