#include "python/src/arrays.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

namespace ridgeline::python {
namespace {

std::atomic<int64_t> copied{0};

std::string class_name(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

std::string dtype_name(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const std::string bits = std::to_string(type.bits);
  switch (Code(type.code)) {
    case Code::Bool:
      return "bool";
    case Code::Int:
      return "int" + bits;
    case Code::UInt:
      return "uint" + bits;
    case Code::Float:
      return "float" + bits;
    case Code::Bfloat:
      return "bfloat" + bits;
    case Code::Complex:
      return "complex" + bits;
    default:
      return "a type of " + bits + " bits";
  }
}

constexpr const char* kTypes = "float32, float64, uint8, bool, int32 or int64";

ArrayType type_of(nb::dlpack::dtype type, const char* argument) {
  if (type == nb::dtype<float>()) return ArrayType::float32;
  if (type == nb::dtype<double>()) return ArrayType::float64;
  if (type == nb::dtype<uint8_t>() || type == nb::dtype<bool>()) return ArrayType::uint8;
  if (type == nb::dtype<int32_t>()) return ArrayType::int32;
  if (type == nb::dtype<int64_t>()) return ArrayType::int64;
  throw nb::type_error(
      (std::string(argument) + ": got an array of " + dtype_name(type) + ", expected " + kTypes)
          .c_str());
}

bool is_row_major(const nb::ndarray<nb::ro>& array) {
  int64_t step = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != step) return array.size() == 0;
    step *= int64_t(array.shape(i));
  }
  return true;
}

std::vector<int64_t> shape_of(const nb::ndarray<nb::ro>& array) {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < array.ndim(); ++i) shape.push_back(int64_t(array.shape(i)));
  return shape;
}

[[noreturn]] void refuse(nb::handle object, const char* argument) {
  throw nb::type_error((std::string(argument) + ": got " + class_name(object) +
                        ", expected an array on the CPU (NumPy, a PyTorch tensor, DLPack or the "
                        "buffer protocol) of " +
                        kTypes)
                           .c_str());
}

bool is_array(nb::handle object) {
  return nb::ndarray_check(object) || PyObject_CheckBuffer(object.ptr()) != 0;
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (const int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + (shape.size() == 1 ? ",)" : ")");
}

Borrowed::Borrowed(nb::handle object, const char* argument) {
  if (!is_array(object) || nb::isinstance<nb::bytes>(object)) refuse(object, argument);
  if (!nb::try_cast(object, held_, false)) refuse(object, argument);
  if (held_.device_type() != nb::device::cpu::value) {
    throw nb::value_error((std::string(argument) +
                           ": got an array on a device, expected one on the CPU; copy it there "
                           "first (.cpu(), .get())")
                              .c_str());
  }
  array_.type = type_of(held_.dtype(), argument);
  if (!is_row_major(held_)) {
    // The framework that owns it is asked for a row-major copy.
    nb::ndarray<nb::ro, nb::c_contig> ordered;
    if (!nb::try_cast(object, ordered, true)) {
      throw nb::value_error((std::string(argument) +
                             ": got an array that is not in row-major order, expected one "
                             "that is; use numpy.ascontiguousarray")
                                .c_str());
    }
    held_ = nb::ndarray<nb::ro>(ordered);
    copied += int64_t(held_.nbytes());
  }
  array_.data = held_.data();
  array_.shape = shape_of(held_);
  if (array_.shape.empty()) {
    throw nb::value_error(
        (std::string(argument) + ": got a single number, expected an array [samples, ...]")
            .c_str());
  }
}

template <typename T>
T* writable(nb::handle object, const char* argument, const std::vector<int64_t>& shape) {
  nb::ndarray<> held;
  if (!is_array(object) || !nb::try_cast(object, held, false)) {
    throw nb::type_error((std::string(argument) + ": got " + class_name(object) +
                          ", expected an array that can be written to")
                             .c_str());
  }
  const nb::ndarray<nb::ro> view(held);
  if (view.dtype() != nb::dtype<T>() || view.device_type() != nb::device::cpu::value) {
    throw nb::type_error((std::string(argument) + ": got an array of " + dtype_name(view.dtype()) +
                          ", expected " + dtype_name(nb::dtype<T>()) + " on the CPU")
                             .c_str());
  }
  if (shape_of(view) != shape || !is_row_major(view)) {
    throw nb::value_error((std::string(argument) + ": got shape " + shape_text(shape_of(view)) +
                           (is_row_major(view) ? "" : ", not in row-major order") + ", expected " +
                           shape_text(shape))
                              .c_str());
  }
  return static_cast<T*>(held.data());
}
template float* writable<float>(nb::handle, const char*, const std::vector<int64_t>&);
template int32_t* writable<int32_t>(nb::handle, const char*, const std::vector<int64_t>&);

template <typename T>
nb::object new_array(const std::vector<int64_t>& shape, T*& data) {
  size_t count = 1;
  for (const int64_t extent : shape) count *= size_t(extent);
  std::unique_ptr<T[]> memory(new T[std::max<size_t>(count, 1)]);
  data = memory.get();
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  memory.release();
  const std::vector<size_t> extents(shape.begin(), shape.end());
  return nb::cast(nb::ndarray<nb::numpy, T>(data, extents.size(), extents.data(), owner));
}
template nb::object new_array<float>(const std::vector<int64_t>&, float*&);
template nb::object new_array<int32_t>(const std::vector<int64_t>&, int32_t*&);

nb::object copied_array(const Array& array) {
  const auto copy = [&]<typename T>(T) {
    T* to = nullptr;
    nb::object made = new_array<T>(array.shape, to);
    size_t count = 1;
    for (const int64_t extent : array.shape) count *= size_t(extent);
    std::memcpy(to, array.data, count * sizeof(T));
    return made;
  };
  if (array.type == ArrayType::float64) return copy(double{});
  if (array.type == ArrayType::int64) return copy(int64_t{});
  return copy(float{});
}

int64_t copied_bytes() { return copied; }

}  // namespace ridgeline::python
