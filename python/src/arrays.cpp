#include "python/src/arrays.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace ridgeline::python {
namespace {

std::atomic<int64_t> reordered{0};

std::string place_text(int gpu) { return gpu < 0 ? "the CPU" : "cuda:" + std::to_string(gpu); }

// Copies the elements in row-major order; returns where the next one goes.
std::byte* copy_ordered(const View& view, const Py_ssize_t* byte_strides, int dim,
                        const std::byte* from, std::byte* to) {
  const auto item = size_t(view.bits / 8);
  if (dim == view.rank) {
    std::memcpy(to, from, item);
    return to + item;
  }
  for (int64_t i = 0; i < view.shape[size_t(dim)]; ++i) {
    to = copy_ordered(view, byte_strides, dim + 1, from + i * byte_strides[dim], to);
  }
  return to;
}

}  // namespace

int64_t View::elements() const {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= shape[size_t(i)];
  return count;
}

bool View::row_major() const {
  int64_t step = 1;
  for (int i = rank; i-- > 0;) {
    if (shape[size_t(i)] != 1 && strides[size_t(i)] != step) return elements() == 0;
    step *= shape[size_t(i)];
  }
  return bits < 8 || reinterpret_cast<uintptr_t>(data) % size_t(bits / 8) == 0;
}

std::string View::shape_text() const { return python::shape_text({shape.data(), size_t(rank)}); }

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "(";
  for (const int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + (shape.size() == 1 ? ",)" : ")");
}

ArrayType type_of(const View& view, const char* argument) {
  if (view.type == "float32") return ArrayType::float32;
  if (view.type == "float64") return ArrayType::float64;
  if (view.type == "uint8" || view.type == "bool") return ArrayType::uint8;
  if (view.type == "int32") return ArrayType::int32;
  if (view.type == "int64") return ArrayType::int64;
  throw nb::type_error((std::string(argument) + ": got an array of " + view.type +
                        ", expected float32, float64, uint8, bool, int32 or int64")
                           .c_str());
}

Borrowed::Borrowed(nb::handle object, const char* argument, const GpuQueue* queue)
    : held_(object, argument, queue, false) {
  const View& view = held_.view();
  array_.type = type_of(view, argument);
  array_.data = view.data;
  array_.gpu = view.gpu;
  array_.shape.assign(view.shape.begin(), view.shape.begin() + view.rank);
  if (array_.shape.empty()) {
    throw nb::value_error(
        (std::string(argument) + ": got a single number, expected an array [samples, ...]")
            .c_str());
  }
  if (view.row_major()) return;
  if (view.gpu >= 0) {
    throw nb::value_error((std::string(argument) + ": got an array on " + place_text(view.gpu) +
                           " that is not in row-major order, expected one that is; use "
                           ".contiguous() or ascontiguousarray()")
                              .c_str());
  }
  copy_.reset(new std::byte[std::max<size_t>(view.bytes(), 1)]);
  Py_ssize_t strides[kMostDims];
  held_.byte_strides(strides);
  copy_ordered(view, strides, 0, static_cast<const std::byte*>(view.data), copy_.get());
  reordered += int64_t(view.bytes());
  array_.data = copy_.get();
}

void Held::byte_strides(Py_ssize_t* strides) const {
  for (int i = 0; i < view_.rank; ++i) {
    strides[i] =
        has_buffer_ ? buffer_.strides[i] : Py_ssize_t(view_.strides[size_t(i)] * (view_.bits / 8));
  }
}

void check_writable(const Held& held, const char* argument, const char* type,
                    std::span<const int64_t> shape, int gpu) {
  const View& view = held.view();
  if (view.read_only) {
    throw nb::type_error((std::string(argument) +
                          ": got an array that is read-only, expected one that can be written to")
                             .c_str());
  }
  if (view.type != type || view.gpu != gpu) {
    throw nb::type_error((std::string(argument) + ": got an array of " + view.type + " on " +
                          place_text(view.gpu) + ", expected " + type + " on " + place_text(gpu))
                             .c_str());
  }
  const std::span<const int64_t> extents(view.shape.data(), size_t(view.rank));
  if (!std::ranges::equal(extents, shape) || !view.row_major()) {
    throw nb::value_error((std::string(argument) + ": got shape " + view.shape_text() +
                           (view.row_major() ? "" : ", not in row-major order") + ", expected " +
                           shape_text(shape))
                              .c_str());
  }
}

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

namespace {

template <typename F>
nb::object by_type(const Array& array, F make) {
  if (array.type == ArrayType::float64) return make(double{});
  if (array.type == ArrayType::int64) return make(int64_t{});
  return make(float{});
}

}  // namespace

nb::object view_array(const Array& array, nb::handle owner) {
  const std::vector<size_t> shape(array.shape.begin(), array.shape.end());
  return by_type(array, [&]<typename T>(T) {
    T* data = static_cast<T*>(const_cast<void*>(array.data));
    if (array.gpu < 0) {
      return nb::cast(nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), owner));
    }
    return nb::cast(nb::ndarray<T>(data, shape.size(), shape.data(), owner, nullptr, nb::dtype<T>(),
                                   nb::device::cuda::value, array.gpu));
  });
}

nb::object copied_array(const Array& array) {
  return by_type(array, [&]<typename T>(T) {
    size_t count = 1;
    for (const int64_t extent : array.shape) count *= size_t(extent);
    std::unique_ptr<T[]> memory(new T[std::max<size_t>(count, 1)]);
    std::memcpy(memory.get(), array.data, count * sizeof(T));
    T* data = memory.release();
    const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    const std::vector<size_t> shape(array.shape.begin(), array.shape.end());
    return nb::cast(nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), owner));
  });
}

int64_t copied_bytes() { return reordered + ridgeline::copied_bytes(); }

}  // namespace ridgeline::python
