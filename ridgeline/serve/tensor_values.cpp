#include "ridgeline/serve/tensor_values.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "ridgeline/core/half.h"
#include "ridgeline/serve/http_error.h"

namespace ridgeline::serve {
namespace {

template <typename T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void read_numbers(std::span<const uint8_t> bytes, NumberSink& sink) {
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    const T value = load<T>(bytes.data() + i * sizeof(T));
    if constexpr (std::is_same_v<T, Fp16> || std::is_same_v<T, Bf16>) {
      sink.add(double(float(value)), int64_t(i));
    } else if constexpr (std::is_floating_point_v<T>) {
      sink.add(double(value), int64_t(i));
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      // A value above int64 is out of range for every integer type that a model declares.
      value > uint64_t(INT64_MAX) ? sink.add(double(value), int64_t(i))
                                  : sink.add(int64_t(value), int64_t(i));
    } else {
      sink.add(int64_t(value), int64_t(i));
    }
  }
}

void read_texts(std::span<const uint8_t> bytes, int64_t count, const std::string& what,
                InputTensor& to) {
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (bytes.size() - at < sizeof(uint32_t)) {
      refuse(400, "{}: its binary data end in text {} of {}", what, i, count);
    }
    const size_t length = load<uint32_t>(bytes.data() + at);
    at += sizeof(uint32_t);
    if (bytes.size() - at < length) {
      refuse(400, "{}: text {} has {} bytes by its length, but only {} follow", what, i, length,
             bytes.size() - at);
    }
    to.values.insert(to.values.end(), bytes.begin() + ptrdiff_t(at),
                     bytes.begin() + ptrdiff_t(at + length));
    to.offsets.push_back(int64_t(to.values.size()));
    at += length;
  }
  if (at != bytes.size()) {
    refuse(400, "{}: {} bytes follow the last of its {} texts", what, bytes.size() - at, count);
  }
}

}  // namespace

void NumberSink::refuse_number(const std::string& text, int64_t place) const {
  const char* rule = declared_ == Datatype::boolean ? "0 or 1 (false or true)"
                     : declared_ == Datatype::uint8 ? "whole numbers from 0 to 255"
                                                    : "numbers from -3.4e38 to 3.4e38";
  refuse(400, "{}: value {} is {}, but the model takes {} there ({})", what_, place, text, rule,
         name(declared_));
}

template <typename T>
void NumberSink::put_bytes(T value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  to_.insert(to_.end(), bytes, bytes + sizeof value);
}

void NumberSink::reserve(int64_t count) {
  to_.reserve(to_.size() + size_t(count) * size_of(declared_));
}

void NumberSink::add(int64_t value, int64_t place) {
  switch (declared_) {
    case Datatype::boolean:
    case Datatype::uint8:
      if (value < 0 || value > (declared_ == Datatype::uint8 ? 255 : 1)) {
        refuse_number(fmt::format("{}", value), place);
      }
      return put(uint8_t(value));
    case Datatype::fp64:
      return put_bytes(double(value));
    default:
      return put_bytes(float(value));
  }
}

void NumberSink::add(double value, int64_t place) {
  switch (declared_) {
    case Datatype::boolean:
    case Datatype::uint8:
      // Written so that NaN is refused as well.
      if (!(value >= 0 && value <= 255) || value != std::floor(value)) {
        refuse_number(fmt::format("{}", value), place);
      }
      return add(int64_t(value), place);
    case Datatype::fp64:
      return put_bytes(value);
    default:
      if (std::isfinite(value) && !std::isfinite(float(value))) {
        refuse_number(fmt::format("{}", value), place);
      }
      return put_bytes(float(value));
  }
}

void read_binary(std::span<const uint8_t> bytes, Datatype given, Datatype declared, int64_t count,
                 const std::string& what, InputTensor& to) {
  if (given == Datatype::bytes) return read_texts(bytes, count, what, to);
  if (bytes.size() != size_t(count) * size_of(given)) {
    refuse(400, "{}: has {} bytes of binary data, but its shape and {} need {}", what, bytes.size(),
           name(given), size_t(count) * size_of(given));
  }
  if (given == declared && given != Datatype::boolean) {
    to.values.assign(bytes.begin(), bytes.end());
    return;
  }
  NumberSink sink(declared, to.values, what);
  sink.reserve(count);
  switch (given) {
    case Datatype::boolean:
    case Datatype::uint8:
      return read_numbers<uint8_t>(bytes, sink);
    case Datatype::uint16:
      return read_numbers<uint16_t>(bytes, sink);
    case Datatype::uint32:
      return read_numbers<uint32_t>(bytes, sink);
    case Datatype::uint64:
      return read_numbers<uint64_t>(bytes, sink);
    case Datatype::int8:
      return read_numbers<int8_t>(bytes, sink);
    case Datatype::int16:
      return read_numbers<int16_t>(bytes, sink);
    case Datatype::int32:
      return read_numbers<int32_t>(bytes, sink);
    case Datatype::int64:
      return read_numbers<int64_t>(bytes, sink);
    case Datatype::fp16:
      return read_numbers<Fp16>(bytes, sink);
    case Datatype::bf16:
      return read_numbers<Bf16>(bytes, sink);
    case Datatype::fp32:
      return read_numbers<float>(bytes, sink);
    case Datatype::fp64:
      return read_numbers<double>(bytes, sink);
    case Datatype::bytes:
      return;  // handled above
  }
}

}  // namespace ridgeline::serve
