#include <algorithm>
#include <vector>

#include "ridgeline/cpu/reference/grad_scale_values.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/update.h"

namespace ridgeline::cpu::simd {
namespace {

double first_or_one(const double* value) { return value != nullptr ? *value : 1.0; }

// The working copy of a weight, written part by part as the weight is updated.
class Copy {
 public:
  explicit Copy(const Tensor& tensor) : tensor_(tensor) {}

  template <typename T>
  void store(const T* w, Range part) const {
    if (tensor_.data == nullptr) return;
    dispatch_float(tensor_.dtype, [&](auto zero) {
      using To = decltype(zero);
      To* to = tensor_.as<To>();
      for (int64_t i = part.begin; i < part.end; ++i) to[i] = To(w[i]);
    });
  }

 private:
  Tensor tensor_;
};

// Only the copy may have a type other than w's, and that must not be wider.
template <typename Op>
std::string refuse_mixed(const Op& op) {
  if (op.dw.dtype != op.w.dtype) return "takes a gradient of the weight's type";
  if (op.copy && (op.w.dtype != DType::fp32 || size_of(op.copy.dtype) > 4)) {
    return "takes copies of fp32 weights";
  }
  return {};
}

template <typename T>
std::unique_ptr<Step> prepare_sgd(const SgdUpdate& op, const Binding& binding) {
  const SgdArgs<T> args{binding.read(op.dw).as<T>(),
                        1,
                        0,
                        binding.write(op.w).as<T>(),
                        binding.write(op.m).as<T>(),
                        {0, T(op.momentum), T(op.weight_decay), op.nesterov}};
  return make_step(
      [args, count = op.w.shape.numel(), lr = binding.read(op.lr).as<double>(),
       tick = binding.read(op.tick).as<int32_t>(), scale = binding.read(op.grad_scale).as<double>(),
       copy = Copy(binding.write(op.copy)), &pool = cpu_runtime(binding.runtime()).pool()] {
        if (first_or_one(scale) == 0) return;
        SgdArgs<T> now = args;
        now.sgd.lr = T(lr[*tick]);
        now.scale = T(first_or_one(scale));
        pool.share(count, kGroup<T>, kLeastElements, [&](Range part) {
          update_functions<T>().sgd(now, part);
          copy.store(now.w, part);
        });
      });
}

template <typename T>
std::unique_ptr<Step> prepare_adam(const AdamUpdate& op, const Binding& binding) {
  const AdamArgs<T> args{
      binding.read(op.dw).as<T>(), 1,  0, binding.write(op.w).as<T>(), binding.write(op.m).as<T>(),
      binding.write(op.v).as<T>(), {}, 1};
  return make_step(
      [args, op, count = op.w.shape.numel(), lr = binding.read(op.lr).as<double>(),
       step = binding.read(op.step).as<int64_t>(), tick = binding.read(op.tick).as<int32_t>(),
       scale = binding.read(op.grad_scale).as<double>(), copy = Copy(binding.write(op.copy)),
       &pool = cpu_runtime(binding.runtime()).pool()] {
        if (first_or_one(scale) == 0) return;
        AdamArgs<T> now = args;
        now.adam = Adam<T>(op, lr[*tick], *step + *tick + 1);
        now.scale = T(first_or_one(scale));
        pool.share(count, kGroup<T>, kLeastElements, [&](Range part) {
          update_functions<T>().adam(now, part);
          copy.store(now.w, part);
        });
      });
}

// Squares are summed in blocks of this many elements, and the blocks in order, so that the norm is
// the same for any number of threads.
constexpr int64_t kNormBlock = 4096;

int64_t norm_blocks(const Values& grads) {
  int64_t blocks = 0;
  for (const Value& grad : grads) blocks += (grad.shape.numel() + kNormBlock - 1) / kNormBlock;
  return blocks;
}

Cover covers_global_norm(const RemainingOps& rest) {
  const auto* op = rest.get<GlobalNorm>(0);
  if (op == nullptr) return Cover::no("the next op is no global_norm");
  for (const Value& grad : op->grads) {
    if (!takes(grad.dtype) || grad.dtype != op->grads.front().dtype) {
      return Cover::no("takes fp32 or fp64 gradients only");
    }
  }
  Cover cover = Cover::of(1);
  cover.workspace = size_t(norm_blocks(op->grads)) * sizeof(double);
  return cover;
}

template <typename T>
std::unique_ptr<Step> prepare_global_norm(const GlobalNorm& op, const Binding& binding) {
  struct Block {
    const T* data;
    int64_t count;
  };
  std::vector<Block> blocks;
  for (const Value& grad : op.grads) {
    const Tensor tensor = binding.read(grad);
    for (int64_t at = 0; at < tensor.numel(); at += kNormBlock) {
      blocks.push_back({tensor.as<T>() + at, std::min(kNormBlock, tensor.numel() - at)});
    }
  }
  return make_step([blocks = std::move(blocks), max_norm = op.max_norm,
                    sums = reinterpret_cast<double*>(binding.workspace()), growth = op.growth,
                    values = GradScaleValues(binding, op),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    pool.share(int64_t(blocks.size()), 1, 1, [&](Range part) {
      for (int64_t b = part.begin; b < part.end; ++b) {
        sums[b] = update_functions<T>().squares(blocks[size_t(b)].data, blocks[size_t(b)].count);
      }
    });
    double sum = 0;
    for (size_t b = 0; b < blocks.size(); ++b) sum += sums[b];
    values.update(sum, max_norm, growth);
  });
}

Kernel norm_kernel() {
  Kernel kernel;
  kernel.name = "cpu.global_norm.threads";
  kernel.covers = covers_global_norm;
  kernel.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<GlobalNorm>(0);
    const bool narrow = op.grads.empty() || op.grads.front().dtype == DType::fp32;
    return narrow ? prepare_global_norm<float>(op, binding)
                  : prepare_global_norm<double>(op, binding);
  };
  return kernel;
}

template <typename Op>
Kernel update_kernel(const char* name, std::unique_ptr<Step> (*fp32)(const Op&, const Binding&),
                     std::unique_ptr<Step> (*fp64)(const Op&, const Binding&)) {
  Kernel kernel;
  kernel.name = name;
  kernel.covers = [](const RemainingOps& rest) {
    std::string reason = refuses(rest, &Op::w);
    if (reason.empty()) reason = refuse_mixed(*rest.get<Op>(0));
    return reason.empty() ? Cover::of(1) : Cover::no(reason);
  };
  kernel.prepare = [fp32, fp64](const Span& span, const Binding& binding) {
    const auto& op = span.get<Op>(0);
    return (op.w.dtype == DType::fp32 ? fp32 : fp64)(op, binding);
  };
  return kernel;
}

}  // namespace

KernelTable update_kernels() {
  return computing_in(
      kFloatAndDouble,
      {update_kernel<SgdUpdate>("cpu.sgd.simd", prepare_sgd<float>, prepare_sgd<double>),
       update_kernel<AdamUpdate>("cpu.adam.simd", prepare_adam<float>, prepare_adam<double>),
       norm_kernel()});
}

}  // namespace ridgeline::cpu::simd
