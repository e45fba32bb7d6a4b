#include "ridgeline/cpu/reference/row.h"

namespace ridgeline::cpu {
namespace {

std::unique_ptr<Step> prepare_gather(const Gather& op, const Binding& binding) {
  const Tensor set = binding.read(op.set), order = binding.read(op.order);
  const Tensor first = binding.read(op.first), tick = binding.read(op.tick);
  const Tensor out = binding.write(op.y);
  const int64_t n = op.y.shape[0];
  const int64_t row = n > 0 ? op.y.shape.numel() / n : 0;
  const auto source = [=](int64_t i) {
    const int64_t begin = *first.as<int64_t>() + int64_t{*tick.as<int32_t>()} * n;
    return int64_t{order.as<int32_t>()[begin + i]} * row;
  };

  if (op.set.dtype == DType::int32) {
    return make_step([=] {
      for (int64_t i = 0; i < n; ++i) {
        const int32_t* from = set.as<int32_t>() + source(i);
        for (int64_t j = 0; j < row; ++j) out.as<int32_t>()[i * row + j] = from[j];
      }
    });
  }
  return make_step([=, scale = op.scale, shift = op.shift, y = Doubles(out)]() mutable {
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t* from = set.as<uint8_t>() + source(i);
      for (int64_t j = 0; j < row; ++j) y[i * row + j] = double(from[j]) * scale + shift;
    }
    y.store();
  });
}

}  // namespace

Table gather_reference() {
  Impl row = reference_row(prepare_gather);
  row.covers = [](const Rest& rest) {
    const auto* op = rest.get<Gather>(0);
    if (op == nullptr) return Cover::no("the next op is no gather");
    const bool bytes = op->set.dtype == DType::uint8 && is_float(op->y.dtype);
    const bool labels = op->set.dtype == DType::int32 && op->y.dtype == DType::int32;
    if (!bytes && !labels) return Cover::no("gathers uint8 to a float type, or int32 to int32");
    return Cover::of(1);
  };
  return {row};
}

}  // namespace ridgeline::cpu
