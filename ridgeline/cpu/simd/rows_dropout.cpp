#include "ridgeline/cpu/simd/dropout.h"
#include "ridgeline/cpu/simd/row.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
std::unique_ptr<Step> prepare_dropout(const Dropout& op, const Binding& binding) {
  const int64_t count = op.x.shape.numel();
  const int64_t first = op.mask.row_offset * (count / op.x.shape[0]);
  const DropoutArgs<T> args{
      binding.read(op.x).as<T>(), binding.write(op.y).as<T>(), op.mask.seed, 0, uint64_t(first),
      float(op.mask.p),           T(1.0 / (1.0 - op.mask.p))};
  return make_step([args, count, layer = op.mask.layer, kernel = dropout_kernels<T>().flat,
                    step = binding.read(op.step).as<int64_t>(),
                    tick = binding.read(op.tick).as<int32_t>(),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    DropoutArgs<T> now = args;
    now.stream = DropoutMask::stream(layer, uint64_t(*step + *tick));
    pool.share(count, 64, kLeastElements / 4, [&](Range part) { kernel(now, part); });
  });
}

}  // namespace

Table dropout_rows() {
  Impl row;
  row.name = "cpu.dropout.simd";
  row.covers = [](const Rest& rest) {
    const std::string reason = refuses(rest, &Dropout::x);
    return reason.empty() ? Cover::of(1) : Cover::no(reason);
  };
  row.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<Dropout>(0);
    return op.x.dtype == DType::fp32 ? prepare_dropout<float>(op, binding)
                                     : prepare_dropout<double>(op, binding);
  };
  return {row};
}

}  // namespace ridgeline::cpu::simd
