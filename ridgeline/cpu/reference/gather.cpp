#include <algorithm>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

std::unique_ptr<Step> prepare_gather(const Gather& op, ReferenceBinding& binding) {
  const Tensor set = binding.read(op.set), order = binding.read(op.order);
  const Tensor first = binding.read(op.first), tick = binding.read(op.tick);
  const Tensor out = binding.write(op.y);
  const int64_t n = op.y.shape[0];
  const int64_t row = n > 0 ? op.y.shape.numel() / n : 0;
  const auto source = [=](int64_t i) {
    const int64_t begin = *first.as<int64_t>() + int64_t{*tick.as<int32_t>()} * n;
    return int64_t{order.as<int32_t>()[begin + i]} * row;
  };

  if (op.y.dtype == DType::int32) {
    return make_step([=] {
      const auto copy = [&](const auto* all) {
        for (int64_t i = 0; i < n; ++i) {
          std::copy_n(all + source(i), row, out.as<int32_t>() + i * row);
        }
      };
      if (set.dtype == DType::int32) {
        copy(set.as<const int32_t>());
      } else {
        copy(set.as<const uint8_t>());
      }
    });
  }
  if (is_float(set.dtype)) {
    return make_step([=, y = binding.writes(op.y)]() mutable {
      const auto copy = [&](const auto* all) {
        for (int64_t i = 0; i < n; ++i) std::copy_n(all + source(i), row, &y[i * row]);
      };
      set.dtype == DType::fp64 ? copy(set.as<const double>()) : copy(set.as<const float>());
      y.store();
    });
  }
  return make_step([=, scale = op.scale, shift = op.shift, y = binding.writes(op.y)]() mutable {
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t* from = set.as<uint8_t>() + source(i);
      for (int64_t j = 0; j < row; ++j) y[i * row + j] = double(from[j]) * scale + shift;
    }
    y.store();
  });
}

// Only y is computed in doubles; the set, which may be large, is read in its own type.
size_t gather_workspace(const Gather& op) {
  return is_float(op.y.dtype) ? align_up(size_t(op.y.shape.numel()) * sizeof(double)) : 0;
}

// Codes are not scaled, and positions outside the image get the code op.shift (padding). An axis of
// one pixel is not shifted.
std::unique_ptr<Step> prepare_augment(const GatherAugment& op, ReferenceBinding& binding) {
  const Tensor set = binding.read(op.set), order = binding.read(op.order);
  const Tensor first = binding.read(op.first), tick = binding.read(op.tick);
  const bool codes = op.y.dtype == DType::int32;
  int32_t* code = codes ? binding.write(op.y).as<int32_t>() : nullptr;
  return make_step([=, n = op.y.shape[0], in = op.in, how = op.how, scale = op.scale,
                    shift = op.shift, epoch = binding.read(op.epoch),
                    y = codes ? Doubles() : binding.writes(op.y)]() mutable {
    const int64_t begin = *first.as<int64_t>() + int64_t{*tick.as<int32_t>()} * n;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = order.as<int32_t>()[begin + i];
      const uint8_t* from = set.as<uint8_t>() + row * in.numel();
      const auto [down, right, flip] = Augmentation::draw(
          how.seed, how.shift, how.flip, uint64_t(*epoch.as<int64_t>()), uint64_t(row));
      for (int64_t j = 0; j < in.numel(); ++j) {
        const int64_t c = j / in.pixels(), p = j / in.w % in.h, q = j % in.w;
        const int64_t r = in.h > 1 ? p - down : p, s = (flip ? in.w - 1 - q : q) - right;
        const bool inside = r >= 0 && r < in.h && s >= 0 && s < in.w;
        const int64_t at = i * in.numel() + j;
        if (code != nullptr) {
          code[at] = inside ? from[(c * in.h + r) * in.w + s] : int32_t(shift);
          continue;
        }
        y[at] = (inside ? double(from[(c * in.h + r) * in.w + s]) : 0.0) * scale + shift;
      }
    }
    y.store();
  });
}

}  // namespace

KernelTable gather_reference() {
  const Kernel any = reference_kernel(prepare_gather);
  Kernel kernel = any;
  kernel.covers = [any](const RemainingOps& rest) {
    const auto* op = rest.get<Gather>(0);
    if (op == nullptr) return Cover::no("the next op is no gather");
    const bool bytes = op->set.dtype == DType::uint8 && is_float(op->y.dtype);
    const bool numbers = (op->set.dtype == DType::int32 || op->set.dtype == DType::uint8) &&
                         op->y.dtype == DType::int32;
    const bool floats = op->set.dtype == DType::fp32 && is_float(op->y.dtype);
    if (!bytes && !numbers && !floats) {
      return Cover::no("gathers uint8 and fp32 to a float type, and uint8 or int32 to int32");
    }
    Cover cover = any.covers(rest);
    cover.workspace = gather_workspace(*op);
    return cover;
  };
  kernel.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<Gather>(0);
    ReferenceBinding with_doubles(binding, gather_workspace(op));
    return prepare_gather(op, with_doubles);
  };
  return {kernel, reference_kernel(prepare_augment)};
}

}  // namespace ridgeline::cpu
