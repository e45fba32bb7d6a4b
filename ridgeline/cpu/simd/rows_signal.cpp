// cpu.conv1d.toom and cpu.norm_relu_pool.simd: blocks of signal networks on rows of channels.
#include "ridgeline/cpu/simd/row.h"
#include "ridgeline/cpu/simd/signal.h"
#include "ridgeline/cpu/simd/signal_norm.h"
#include "ridgeline/cpu/simd/toom_conv.h"

namespace ridgeline::cpu::simd {
namespace {

ToomShape toom_shape(const SignalConv& span) {
  const Conv2dShape& shape = span.conv->shape;
  return {span.conv->n(),        shape.in.w,           shape.in.c,          shape.k,
          shape.window.w.kernel, span.relu != nullptr, span.pool != nullptr};
}

std::string refuse_toom(const Conv2d& conv) {
  const Conv2dShape& shape = conv.shape;
  if (conv.x.dtype != DType::fp32 || conv.w.dtype != DType::fp32 || conv.y.dtype != DType::fp32 ||
      (conv.b && conv.b.dtype != DType::fp32)) {
    return "takes fp32 only";
  }
  if (shape.window.w.kernel < 3 || shape.window.w.kernel > 7) return "takes 3 to 7 taps";
  // Channels in vectors; and of few the bound of a direct sum is sharper than these sums are.
  if (shape.in.c % 16 != 0 || shape.in.c < 32 || shape.k % kToomPanel != 0) {
    return "takes 32 input channels or more, in 16s, and outputs in 32s";
  }
  return {};
}

struct ToomScratch {
  float* u;
  std::vector<float*> own;
  size_t bytes;

  ToomScratch(const ToomShape& shape, int threads, std::byte* base) {
    Scratch scratch(base);
    u = scratch.take<float>(size_t(shape.weight_elements()));
    for (int i = 0; i < threads; ++i) {
      own.push_back(scratch.take<float>(size_t(shape.thread_elements())));
    }
    bytes = scratch.bytes();
  }
};

Cover covers_toom(const Rest& rest) {
  const SignalConv span = signal_conv_at(rest);
  if (span.conv == nullptr) return Cover::no("the next op is no 1-D convolution of stride 1");
  const std::string reason = refuse_toom(*span.conv);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_in_rows(rest, span);
  cover.workspace =
      ToomScratch(toom_shape(span), cpu_runtime(rest.runtime).pool().size(), nullptr).bytes;
  return cover;
}

std::unique_ptr<Step> prepare_toom(const Span& at, const Binding& binding) {
  const SignalConv span = signal_conv_at({at.program, at.begin, binding.runtime()});
  const Conv2d& conv = *span.conv;
  ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
  const ToomShape shape = toom_shape(span);
  const ToomScratch scratch(shape, pool.size(), binding.workspace());
  const ToomArgs args{shape,
                      binding.read(conv.x).as<float>(),
                      binding.read(conv.w).as<float>(),
                      binding.read(conv.b).as<float>(),
                      scratch.u,
                      binding.write(span.y()).as<float>()};
  return make_step([args, own = scratch.own, &pool] {
    const int64_t panels = args.shape.out / kToomPanel, chunks = args.shape.chunks();
    pool.run([&](int thread) {
      toom_kernels().weights(args, split(panels, thread, pool.size()));
      pool.barrier();
      toom_kernels().convolve(args, own[size_t(thread)], split(chunks, thread, pool.size()));
    });
  });
}

Image signal_of(const SignalNorm& span) { return span.pool->shape.in; }

Cover covers_norm(const Rest& rest) {
  const SignalNorm span = signal_norm_at(rest, 0);
  if (span.norm == nullptr) return Cover::no("no layer_norm, relu and pool");
  std::string reason = refuse(span);
  if (span.norm->x.dtype != DType::fp32) reason = "takes fp32 only";
  if (signal_of(span).c % 16 != 0) reason = "takes channels in 16s";
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = Cover::of(3);
  for (const Value& value : {span.norm->y, span.relu->y}) {
    if (!rest.dead_after(value, 3)) return Cover::no("a value between the ops is needed later");
    cover.skips.push_back(value.id);
  }
  use_rows(cover.reads, span.norm->x, signal_of(span));
  cover.workspace = 2 * align_up(size_t(size_of(span.norm->gamma)));
  return cover;
}

std::unique_ptr<Step> prepare_norm(const Span& span, const Binding& binding) {
  const auto& norm = span.get<LayerNorm>(0);
  const auto& max = span.get<MaxPool>(2);
  ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
  Scratch scratch(binding.workspace());
  float* gamma = scratch.take<float>(size_t(norm.width));
  float* beta = scratch.take<float>(size_t(norm.width));
  const SignalNormArgs args{max.shape.in.c, max.shape.in.w, binding.read(norm.x).as<float>(), gamma,
                            beta,           norm.epsilon,   binding.write(max.y).as<float>()};
  return make_step([args, gamma, beta, n = norm.rows(), &pool,
                    plain_gamma = binding.read(norm.gamma).as<float>(),
                    plain_beta = binding.read(norm.beta).as<float>()] {
    pool.run([&](int thread) {
      const Range positions = split(args.length, thread, pool.size());
      for (int64_t t = positions.begin; t < positions.end; ++t) {
        for (int64_t c = 0; c < args.channels; ++c) {
          gamma[t * args.channels + c] = plain_gamma[c * args.length + t];
          beta[t * args.channels + c] = plain_beta[c * args.length + t];
        }
      }
      pool.barrier();
      signal_norm(args, split(n, thread, pool.size()));
    });
  });
}

}  // namespace

Table signal_rows() {
  Impl toom;
  toom.name = "cpu.conv1d.toom";
  toom.covers = covers_toom;
  toom.prepare = prepare_toom;
  Impl norm;
  norm.name = "cpu.norm_relu_pool.simd";
  norm.covers = covers_norm;
  norm.prepare = prepare_norm;
  return {toom, norm, turn_row()};
}

}  // namespace ridgeline::cpu::simd
