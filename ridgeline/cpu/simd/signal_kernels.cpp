// cpu.conv1d.winograd1d and cpu.norm_relu_pool: blocks of signal networks on rows of channels.
#include <bit>

#include "ridgeline/cpu/simd/bf16_store.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/signal.h"
#include "ridgeline/cpu/simd/signal_norm.h"
#include "ridgeline/cpu/simd/winograd1d_conv.h"

namespace ridgeline::cpu::simd {
namespace {

Winograd1dShape winograd1d_shape(const SignalConv& span) {
  const Conv2dShape& shape = span.conv->shape;
  return {span.conv->n(),        shape.in.w,           shape.in.c,          shape.k,
          shape.window.w.kernel, span.relu != nullptr, span.pool != nullptr};
}

std::string refuse_signal_conv(const Conv2d& conv) {
  const Conv2dShape& shape = conv.shape;
  if (conv.x.dtype != DType::fp32 || conv.w.dtype != DType::fp32 || conv.y.dtype != DType::fp32 ||
      (conv.b && conv.b.dtype != DType::fp32)) {
    return "takes fp32 only";
  }
  if (shape.window.w.kernel < 3 || shape.window.w.kernel > 7) return "takes 3 to 7 taps";
  // Channels come in whole vectors; with few channels the error bound of a direct sum is tighter
  // than the error of Winograd.
  if (shape.in.c % 16 != 0 || shape.in.c < 32 || shape.k % kWinograd1dPanel != 0) {
    return "takes 32 input channels or more, in 16s, and outputs in 32s";
  }
  return {};
}

struct Winograd1dScratch {
  float* u;
  std::vector<float*> own;
  size_t bytes;

  Winograd1dScratch(const Winograd1dShape& shape, int threads, std::byte* base) {
    Scratch scratch(base);
    u = scratch.take<float>(size_t(shape.weight_elements()));
    for (int i = 0; i < threads; ++i) {
      own.push_back(scratch.take<float>(size_t(shape.thread_elements())));
    }
    bytes = scratch.bytes();
  }
};

Cover covers_winograd1d(const RemainingOps& rest) {
  const SignalConv span = signal_conv_at(rest);
  if (span.conv == nullptr) return Cover::no("the next op is no 1-D convolution of stride 1");
  const std::string reason = refuse_signal_conv(*span.conv);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_in_rows(rest, span);
  cover.workspace =
      Winograd1dScratch(winograd1d_shape(span), cpu_runtime(rest.runtime).pool().size(), nullptr)
          .bytes;
  return cover;
}

std::unique_ptr<Step> prepare_winograd1d(const Span& at, const Binding& binding) {
  const SignalConv span = signal_conv_at({at.program, at.begin, binding.runtime()});
  const Conv2d& conv = *span.conv;
  ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
  const Winograd1dShape shape = winograd1d_shape(span);
  const Winograd1dScratch scratch(shape, pool.size(), binding.workspace());
  const Winograd1dArgs args{shape,
                            binding.read(conv.x).as<float>(),
                            binding.read(conv.w).as<float>(),
                            binding.read(conv.b).as<float>(),
                            scratch.u,
                            binding.write(span.y()).as<float>()};
  return make_step([args, own = scratch.own, &pool] {
    const int64_t panels = args.shape.out / kWinograd1dPanel, chunks = args.shape.chunks();
    pool.run([&](int thread) {
      winograd1d_functions().weights(args, split(panels, thread, pool.size()));
      pool.barrier();
      winograd1d_functions().convolve(args, own[size_t(thread)],
                                      split(chunks, thread, pool.size()));
    });
  });
}

Image signal_of(const SignalNorm& span) { return span.pool->shape.in; }

// gamma and beta as rows of channels in fp32; for bf16 also a sample and its result per thread.
struct NormScratch {
  float *gamma, *beta;
  std::vector<float*> samples, results;
  size_t bytes;

  NormScratch(const Image& in, bool half, int threads, std::byte* base) {
    Scratch scratch(base);
    gamma = scratch.take<float>(size_t(in.numel()));
    beta = scratch.take<float>(size_t(in.numel()));
    for (int i = 0; half && i < threads; ++i) {
      samples.push_back(scratch.take<float>(size_t(in.numel())));
      results.push_back(scratch.take<float>(size_t(in.c * (in.w / 3))));
    }
    bytes = scratch.bytes();
  }
};

Cover covers_norm(const RemainingOps& rest, DType dtype) {
  const SignalNorm span = signal_norm_at(rest, 0);
  if (span.norm == nullptr) return Cover::no("no layer_norm, relu and pool");
  std::string reason = refuse(span);
  if (span.norm->x.dtype != dtype) reason = fmt::format("takes {} only", name(dtype));
  if (signal_of(span).c % 16 != 0) reason = "takes channels in 16s";
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = Cover::of(3);
  for (const Value& value : {span.norm->y, span.relu->y}) {
    if (!rest.dead_after(value, 3)) return Cover::no("a value between the ops is needed later");
    cover.skips.push_back(value.id);
  }
  use_rows(cover.reads, span.norm->x, signal_of(span));
  cover.workspace = NormScratch(signal_of(span), dtype == DType::bf16,
                                cpu_runtime(rest.runtime).pool().size(), nullptr)
                        .bytes;
  return cover;
}

float wide(float value) { return value; }
float wide(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// T is float, or uint16_t for bits of bf16.
template <typename T>
std::unique_ptr<Step> prepare_norm(const Span& span, const Binding& binding) {
  constexpr bool kHalf = sizeof(T) == 2;
  const auto& norm = span.get<LayerNorm>(0);
  const auto& max = span.get<MaxPool>(2);
  const Image in = max.shape.in;
  ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
  const NormScratch scratch(in, kHalf, pool.size(), binding.workspace());
  return make_step([in, scratch, n = norm.rows(), epsilon = norm.epsilon, &pool,
                    x = binding.read(norm.x).as<T>(), y = binding.write(max.y).as<T>(),
                    gamma = binding.read(norm.gamma).as<T>(),
                    beta = binding.read(norm.beta).as<T>()] {
    pool.run([&](int thread) {
      const Range positions = split(in.w, thread, pool.size());
      for (int64_t t = positions.begin; t < positions.end; ++t) {
        for (int64_t c = 0; c < in.c; ++c) {
          scratch.gamma[t * in.c + c] = wide(gamma[c * in.w + t]);
          scratch.beta[t * in.c + c] = wide(beta[c * in.w + t]);
        }
      }
      pool.barrier();
      const Range samples = split(n, thread, pool.size());
      SignalNormArgs args{in.c, in.w, nullptr, scratch.gamma, scratch.beta, epsilon, nullptr};
      if constexpr (kHalf) {
        args.x = scratch.samples[size_t(thread)];
        args.y = scratch.results[size_t(thread)];
        const int64_t results = in.c * (in.w / 3);
        for (int64_t i = samples.begin; i < samples.end; ++i) {
          widen_bf16(x + i * in.numel(), scratch.samples[size_t(thread)], in.numel());
          signal_norm(args, {0, 1});
          narrow_bf16(args.y, y + i * results, results);
        }
      } else {
        args.x = x;
        args.y = y;
        signal_norm(args, samples);
      }
    });
  });
}

}  // namespace

KernelTable signal_kernels() {
  Kernel winograd1d;
  winograd1d.name = "cpu.conv1d.winograd1d";
  winograd1d.covers = covers_winograd1d;
  winograd1d.prepare = prepare_winograd1d;
  Kernel norm;
  norm.name = "cpu.norm_relu_pool.simd";
  norm.covers = [](const RemainingOps& rest) { return covers_norm(rest, DType::fp32); };
  norm.prepare = prepare_norm<float>;
  Kernel half;
  half.name = "cpu.norm_relu_pool.bf16";
  half.covers = [](const RemainingOps& rest) { return covers_norm(rest, DType::bf16); };
  half.prepare = prepare_norm<uint16_t>;
  KernelTable table = computing_in(kFloatOnly, {winograd1d, norm});
  for (Kernel& kernel : computing_in(kBf16Only, {half})) table.push_back(std::move(kernel));
  table.push_back(transpose_kernel());
  return table;
}

}  // namespace ridgeline::cpu::simd
