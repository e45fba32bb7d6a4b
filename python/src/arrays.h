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

// A caller's array in place.
struct View {
  void* data = nullptr;
  std::string type;  // "float32", NumPy's name
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

// Holds a caller's array that has the buffer protocol, __dlpack__, __cuda_array_interface__ or
// __array_interface__, together with its owner. If the array is on a GPU, its producer makes
// `queue` wait for the work it has requested so far; without a queue the host waits.
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
// argument, what was given and what is wanted. Host memory that is not in row-major order is copied
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

// Returns the library's type of an array; throws TypeError for an unsupported one.
ArrayType type_of(const View& view, const char* argument);

// Checks an output array of the caller, on the host or on `gpu`; throws like Borrowed for another
// type, shape, order or device, and for memory that is not writable.
void check_writable(const Held& held, const char* argument, const char* type,
                    std::span<const int64_t> shape, int gpu);

// A NumPy array that owns its memory.
template <typename T>
nb::object new_array(const std::vector<int64_t>& shape, T*& data);
// Returns a NumPy array over memory that `owner` keeps alive.
nb::object view_array(const Array& array, nb::handle owner);
// Returns a NumPy array with a copy of the values.
nb::object copied_array(const Array& array);

// The bytes copied since the start because arrays could not be used in place.
int64_t copied_bytes();

std::string shape_text(std::span<const int64_t> shape);

}  // namespace ridgeline::python
