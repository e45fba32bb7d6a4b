#include <nanobind/stl/string.h>

#include <cstring>

#include "python/src/arrays.h"

// Converts the four array protocols to a View.
namespace ridgeline::python {
namespace {

struct TypeCode {
  const char* code;
  const char* name;
  int bits;
};

// The characters of Python's struct module, with NumPy's Z for complex numbers.
constexpr TypeCode kFormats[] = {
    {"f", "float32", 32},      {"d", "float64", 64},   {"B", "uint8", 8},
    {"?", "bool", 8},          {"i", "int32", 32},     {"l", "int64", 64},
    {"q", "int64", 64},        {"e", "float16", 16},   {"b", "int8", 8},
    {"h", "int16", 16},        {"H", "uint16", 16},    {"I", "uint32", 32},
    {"L", "uint64", 64},       {"Q", "uint64", 64},    {"Zf", "complex64", 64},
    {"Zd", "complex128", 128}, {"g", "float128", 128}, {"c", "bytes", 8},
};

bool set_format(View& view, const char* format, int64_t item_bytes) {
  view.bits = int(8 * item_bytes);
  if (format == nullptr) format = "B";
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  for (const TypeCode& each : kFormats) {
    if (std::strcmp(each.code, format) == 0) {
      view.type = each.name;
      return true;
    }
  }
  view.type = std::string("format '") + format + "'";
  return false;
}

// "<f4" and the like, of the two interfaces.
void set_typestr(View& view, const std::string& text) {
  const char kind = text.size() > 1 ? text[1] : '?';
  const int bytes = text.size() > 2 ? std::atoi(text.c_str() + 2) : 0;
  const char* name = kind == 'f'   ? "float"
                     : kind == 'i' ? "int"
                     : kind == 'u' ? "uint"
                     : kind == 'c' ? "complex"
                                   : "";
  view.bits = 8 * bytes;
  view.type = kind == 'b'                            ? "bool"
              : *name == '\0' || text.front() == '>' ? "type '" + text + "'"
                                                     : name + std::to_string(view.bits);
}

void set_dlpack_type(View& view, nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  view.bits = type.bits;
  const auto named = [&](const char* name) { return name + std::to_string(type.bits); };
  switch (Code(type.code)) {
    case Code::Bool:
      view.type = "bool";
      break;
    case Code::Int:
      view.type = named("int");
      break;
    case Code::UInt:
      view.type = named("uint");
      break;
    case Code::Float:
      view.type = named("float");
      break;
    case Code::Bfloat:
      view.type = named("bfloat");
      break;
    case Code::Complex:
      view.type = named("complex");
      break;
    default:
      view.type = "a type of " + std::to_string(type.bits) + " bits";
  }
  if (type.lanes != 1) view.type = "vectors of " + view.type;
}

void dense_strides(View& view) {
  int64_t step = 1;
  for (int i = view.rank; i-- > 0;) {
    view.strides[size_t(i)] = step;
    step *= view.shape[size_t(i)];
  }
}

[[noreturn]] void refuse_rank(const char* argument, int64_t rank) {
  throw nb::value_error((std::string(argument) + ": got an array of " + std::to_string(rank) +
                         " dimensions, expected at most " + std::to_string(kMostDims))
                            .c_str());
}

}  // namespace

Held::Held(nb::handle object, const char* argument, const GpuQueue* queue, bool writable) {
  if (nb::isinstance<nb::bytes>(object) || nb::isinstance<nb::str>(object)) {
    // Bytes have the buffer protocol, but are probably meant as text.
  } else if (take_buffer(object, writable) || take_dlpack(object, argument, queue, writable) ||
             take_interface(object, argument, "__cuda_array_interface__", queue) ||
             take_interface(object, argument, "__array_interface__", nullptr)) {
    if (view_.rank > kMostDims) refuse_rank(argument, view_.rank);
    return;
  }
  const std::string kind = nb::cast<std::string>(nb::str(object.type().attr("__name__")));
  throw nb::type_error((std::string(argument) + ": got " + kind +
                        (writable ? ", expected an array that can be written to"
                                  : ", expected an array (NumPy, PyTorch, JAX, CuPy, or anything "
                                    "with the buffer protocol or DLPack) of float32, float64, "
                                    "uint8, bool, int32 or int64"))
                           .c_str());
}

Held::~Held() {
  if (has_buffer_) PyBuffer_Release(&buffer_);
}

Held::Held(Held&& other) noexcept
    : view_(std::move(other.view_)),
      buffer_(other.buffer_),
      has_buffer_(other.has_buffer_),
      array_(std::move(other.array_)),
      owner_(std::move(other.owner_)) {
  other.has_buffer_ = false;
}

bool Held::take_buffer(nb::handle object, bool writable) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) {
    PyErr_Clear();
    return false;
  }
  has_buffer_ = true;
  view_.data = buffer_.buf;
  view_.rank = buffer_.ndim;
  view_.read_only = buffer_.readonly != 0;
  set_format(view_, buffer_.format, buffer_.itemsize);
  for (int i = 0; i < std::min(view_.rank, kMostDims); ++i) {
    view_.shape[size_t(i)] = buffer_.shape[i];
    // An unaligned item has no stride in elements: the array is copied, item by item.
    view_.strides[size_t(i)] = buffer_.itemsize > 0 && buffer_.strides[i] % buffer_.itemsize == 0
                                   ? buffer_.strides[i] / buffer_.itemsize
                                   : INT64_MIN;
  }
  return true;
}

bool Held::take_dlpack(nb::handle object, const char* argument, const GpuQueue* queue,
                       bool writable) {
  if (!nb::hasattr(object, "__dlpack__") || !nb::hasattr(object, "__dlpack_device__")) return false;
  const nb::object place = object.attr("__dlpack_device__")();
  const auto kind = nb::cast<int>(place[0]), index = nb::cast<int>(place[1]);
  const bool on_gpu = kind == nb::device::cuda::value || kind == nb::device::cuda_managed::value;
  const bool on_host = kind == nb::device::cpu::value || kind == nb::device::cuda_host::value;
  if (!on_gpu && !on_host) {
    throw nb::value_error((std::string(argument) + ": got an array on a device of DLPack's kind " +
                           std::to_string(kind) + ", expected one on the CPU or on a CUDA GPU")
                              .c_str());
  }
  if (on_gpu) {
    // The producer orders its own stream before ours, or before the default stream.
    void* ours = queue != nullptr && queue->gpu() == index ? queue->stream() : nullptr;
    nb::object capsule = object.attr("__dlpack__")(
        nb::arg("stream") = ours != nullptr ? reinterpret_cast<intptr_t>(ours) : intptr_t{1});
    if (ours == nullptr) wait_for_stream(index, reinterpret_cast<void*>(intptr_t{1}));
    owner_ = std::move(capsule);
  } else {
    owner_ = nb::borrow(object);
  }
  nb::ndarray<nb::ro>& any = array_;  // keeps the producer's memory
  nb::ndarray<> written;
  if (writable ? !nb::try_cast(owner_, written, false) : !nb::try_cast(owner_, any, false)) {
    owner_.reset();
    return false;
  }
  if (writable) any = nb::ndarray<nb::ro>(written);
  if (any.ndim() > size_t(kMostDims)) refuse_rank(argument, int64_t(any.ndim()));
  set_dlpack_type(view_, any.dtype());
  view_.data = const_cast<void*>(static_cast<const void*>(any.data()));
  view_.gpu = on_gpu ? index : -1;
  view_.rank = int(any.ndim());
  for (size_t i = 0; i < any.ndim(); ++i) {
    view_.shape[i] = int64_t(any.shape(i));
    view_.strides[i] = any.stride(i);
  }
  owner_.reset();
  return true;
}

bool Held::take_interface(nb::handle object, const char* argument, const char* protocol,
                          const GpuQueue* queue) {
  if (!nb::hasattr(object, protocol)) return false;
  const nb::object given = object.attr(protocol);
  if (!nb::isinstance<nb::dict>(given)) return false;
  const auto interface = nb::borrow<nb::dict>(given);
  if (!interface.contains("typestr") || !interface.contains("shape") ||
      !interface.contains("data")) {
    return false;
  }
  const nb::object data = interface["data"];
  if (!nb::isinstance<nb::tuple>(data)) return false;
  view_.data = reinterpret_cast<void*>(nb::cast<uintptr_t>(data[0]));
  view_.read_only = nb::cast<bool>(data[1]);
  set_typestr(view_, nb::cast<std::string>(interface["typestr"]));
  const nb::object shape = interface["shape"];
  view_.rank = int(nb::len(shape));
  if (view_.rank > kMostDims) refuse_rank(argument, view_.rank);
  for (int i = 0; i < view_.rank; ++i) view_.shape[size_t(i)] = nb::cast<int64_t>(shape[i]);
  dense_strides(view_);
  const auto entry = [&](const char* key) {
    return interface.contains(key) ? nb::object(interface[key]) : nb::none();
  };
  if (const nb::object strides = entry("strides"); !strides.is_none()) {
    const int64_t item = view_.bits / 8;
    for (int i = 0; i < view_.rank; ++i) {
      const auto bytes = nb::cast<int64_t>(strides[i]);
      view_.strides[size_t(i)] = item > 0 && bytes % item == 0 ? bytes / item : INT64_MIN;
    }
  }
  owner_ = nb::borrow(object);
  if (std::strcmp(protocol, "__cuda_array_interface__") != 0) return true;
  // The interface does not name the GPU; it is assumed to be the one that computes.
  view_.gpu = queue != nullptr && queue->gpu() >= 0 ? queue->gpu() : 0;
  if (const nb::object stream = entry("stream"); !stream.is_none()) {
    void* theirs = reinterpret_cast<void*>(nb::cast<intptr_t>(stream));
    queue != nullptr && queue->gpu() >= 0 ? queue->wait_for(theirs)
                                          : wait_for_stream(view_.gpu, theirs);
  }
  return true;
}

}  // namespace ridgeline::python
