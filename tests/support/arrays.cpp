#include "tests/support/arrays.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "ridgeline/core/philox.h"

namespace ridgeline::test {

void set_element(const Tensor& tensor, int64_t i, double value) {
  switch (tensor.dtype) {
    case DType::fp64:
      tensor.as<double>()[i] = value;
      break;
    case DType::fp32:
      tensor.as<float>()[i] = float(value);
      break;
    case DType::bf16:
      tensor.as<Bf16>()[i] = Bf16(float(value));
      break;
    case DType::fp16:
      tensor.as<Fp16>()[i] = Fp16(float(value));
      break;
    case DType::int32:
      tensor.as<int32_t>()[i] = int32_t(value);
      break;
    case DType::int64:
      tensor.as<int64_t>()[i] = int64_t(value);
      break;
    case DType::uint8:
      tensor.as<uint8_t>()[i] = uint8_t(value);
      break;
  }
}

double get_element(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype) {
    case DType::fp64:
      return tensor.as<double>()[i];
    case DType::fp32:
      return tensor.as<float>()[i];
    case DType::bf16:
      return float(tensor.as<Bf16>()[i]);
    case DType::fp16:
      return float(tensor.as<Fp16>()[i]);
    case DType::int32:
      return tensor.as<int32_t>()[i];
    case DType::int64:
      return double(tensor.as<int64_t>()[i]);
    case DType::uint8:
      return tensor.as<uint8_t>()[i];
  }
  return 0;
}

Arrays::Arrays(const Program& program) {
  for (const ValueInfo& info : program.values) {
    arrays_.emplace_back(info.value.dtype, info.value.shape);
    const Tensor& view = arrays_.back().view();
    if (is_float(view.dtype)) {
      for (int64_t i = 0; i < view.numel(); ++i) {
        set_element(view, i, std::numeric_limits<double>::quiet_NaN());
      }
    } else if (view.bytes() > 0) {
      std::memset(view.data, 0x7f, view.bytes());
    }
  }
}

Arrays::Arrays(const Arrays& other) { *this = other; }

Arrays& Arrays::operator=(const Arrays& other) {
  if (this == &other) return *this;
  arrays_.clear();
  for (const HostTensor& array : other.arrays_) {
    arrays_.emplace_back(array.view().dtype, array.view().shape);
    std::memcpy(arrays_.back().view().data, array.view().data, array.view().bytes());
  }
  return *this;
}

Arrays Arrays::widened() const {
  Arrays wide;
  for (const HostTensor& array : arrays_) {
    const Tensor& from = array.view();
    wide.arrays_.emplace_back(is_float(from.dtype) ? DType::fp64 : from.dtype, from.shape);
    const Tensor& to = wide.arrays_.back().view();
    if (!is_float(from.dtype)) {
      std::memcpy(to.data, from.data, from.bytes());
      continue;
    }
    for (int64_t i = 0; i < from.numel(); ++i) set_element(to, i, get_element(from, i));
  }
  return wide;
}

std::vector<double> Arrays::doubles(ValueId id) const {
  const Tensor& tensor = at(id);
  std::vector<double> all(size_t(tensor.numel()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = get_element(tensor, int64_t(i));
  return all;
}

void Arrays::fill(const Program& program, const Value& value, const Fill& fill, uint64_t seed) {
  const Tensor& to = (*this)[value];
  const Philox random{seed, streams::kSample + uint64_t(value.id)};
  const auto draw = [&](uint64_t i) {
    switch (fill.kind) {
      case Fill::Kind::normal:
        return fill.a * random.normal(i);
      case Fill::Kind::uniform:
        return fill.a + (fill.b - fill.a) * double(random.uniform(i));
      case Fill::Kind::constant:
        return fill.a;
      case Fill::Kind::counting:
        return double(i);
      case Fill::Kind::relu:
        return std::max(0.0, fill.a * random.normal(i));
      case Fill::Kind::wide:
        if (i % 11 == 3) return 0.0;
        return random.normal(2 * i) * std::pow(10.0, 7.5 * double(random.uniform(4 * i + 1)) - 6.0);
      case Fill::Kind::sparse:
        return fill.b * double(random.uniform(4 * i + 1)) < 1 ? fill.a * random.normal(2 * i) : 0.0;
    }
    return 0.0;
  };
  const auto below = uint64_t(program.info(value.id).below);
  for (int64_t i = 0; i < to.numel(); ++i) {
    const bool drawn = is_float(to.dtype) || fill.kind == Fill::Kind::constant ||
                       fill.kind == Fill::Kind::counting;
    set_element(to, i, drawn ? draw(uint64_t(i)) : double(random.below(below, uint64_t(i))));
  }
}

}  // namespace ridgeline::test
