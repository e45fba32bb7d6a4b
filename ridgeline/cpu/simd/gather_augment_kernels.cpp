#include <algorithm>
#include <array>

#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

// Writes a row of pixels that is shifted to the right and then mirrored if `flip`. `value` has the
// number that each byte becomes.
template <typename T>
void augment_row(const uint8_t* from, int64_t width, int64_t right, bool flip,
                 const std::array<T, 256>& value, T* to) {
  const int64_t begin = std::clamp<int64_t>(right, 0, width);
  const int64_t end = std::clamp<int64_t>(width + right, begin, width);
  if (end - begin < width) std::fill_n(to, width, value[0]);
  if (flip) {
    for (int64_t q = begin; q < end; ++q) to[width - 1 - q] = value[from[q - right]];
  } else {
    for (int64_t q = begin; q < end; ++q) to[q] = value[from[q - right]];
  }
}

std::unique_ptr<Step> prepare_gather_augment(const Span& span, const Binding& binding) {
  const auto& op = span.get<GatherAugment>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    std::array<T, 256> value;
    for (size_t byte = 0; byte < 256; ++byte) value[byte] = T(double(byte) * op.scale + op.shift);
    return make_step(
        [value, n = op.y.shape[0], in = op.in, how = op.how,
         set = binding.read(op.set).as<uint8_t>(), order = binding.read(op.order).as<int32_t>(),
         first = binding.read(op.first).as<int64_t>(), tick = binding.read(op.tick).as<int32_t>(),
         epoch = binding.read(op.epoch).as<int64_t>(), y = binding.write(op.y).as<T>(),
         &pool = cpu_runtime(binding.runtime()).pool()] {
          const int32_t* samples = order + *first + int64_t{*tick} * n;
          pool.share(n, 1, kLeastElements / in.numel() + 1, [&](Range part) {
            for (int64_t i = part.begin; i < part.end; ++i) {
              const uint8_t* image = set + int64_t{samples[i]} * in.numel();
              const auto [down, right, flip] = Augmentation::draw(
                  how.seed, how.shift, how.flip, uint64_t(*epoch), uint64_t(samples[i]));
              for (int64_t row = 0; row < in.c * in.h; ++row) {
                T* to = y + i * in.numel() + row * in.w;
                const int64_t p = row % in.h,
                              above = in.h > 1 ? down : 0;  // one row is not shifted
                if (p - above < 0 || p - above >= in.h) {
                  std::fill_n(to, in.w, value[0]);
                } else {
                  augment_row(image + (row - above) * in.w, in.w, right, flip, value, to);
                }
              }
            }
          });
        });
  });
}

}  // namespace

KernelTable gather_augment_kernels() {
  return computing_in(kFloatAndDouble, {one_op_kernel(&GatherAugment::y, prepare_gather_augment)});
}

}  // namespace ridgeline::cpu::simd
