// cpu.conv1d.bf16 and cpu.linear.bf16: products of bf16 numbers for inference.
#include <algorithm>
#include <bit>

#include "ridgeline/core/half.h"
#include "ridgeline/cpu/simd/bf16_product.h"
#include "ridgeline/cpu/simd/bf16_store.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/signal.h"

namespace ridgeline::cpu::simd {
namespace {

bool is_bias(const Value& b) { return !b || b.dtype == DType::bf16 || b.dtype == DType::fp32; }

// A bias of either type, or none, converted to fp32.
struct Bias {
  const uint16_t* half = nullptr;
  const float* wide = nullptr;

  Bias(const Value& b, const Binding& binding) {
    if (b && b.dtype == DType::bf16) half = binding.read(b).as<uint16_t>();
    if (b && b.dtype == DType::fp32) wide = binding.read(b).as<float>();
  }
  float at(int64_t i) const {
    if (half != nullptr) return std::bit_cast<float>(uint32_t{half[i]} << 16);
    return wide != nullptr ? wide[i] : 0.0f;
  }
  void write(int64_t count, float* to) const {
    if (half != nullptr) {
      widen_bf16(half, to, count);
    } else if (wide != nullptr) {
      std::copy_n(wide, count, to);
    } else {
      std::fill_n(to, count, 0.0f);
    }
  }
};

// Positions of one sample that a thread takes at a time, which fit its caches together with the
// panel. A multiple of three, so that pools do not cross; few tiles of 16 rows are partial.
constexpr int64_t kPositions = 126;

struct ConvShape {
  int64_t n, length, in, out, kernel;
  bool relu, pool;

  int64_t steps() const { return length - kernel + 1; }
  int64_t results() const { return pool ? steps() / 3 : steps(); }
  int64_t depth() const { return kernel * in; }
  int64_t sample_chunks() const { return (steps() + kPositions - 1) / kPositions; }
};

ConvShape conv_shape(const SignalConv& span) {
  const Conv2dShape& shape = span.conv->shape;
  return {span.conv->n(),        shape.in.w,           shape.in.c,          shape.k,
          shape.window.w.kernel, span.relu != nullptr, span.pool != nullptr};
}

// Panels of weights, [panel][(tap, channel) / 2][kBf16Panel][2]; biases; the sums of each thread.
struct ConvScratch {
  uint16_t* w;
  float* bias;
  std::vector<float*> sums;
  size_t bytes;

  ConvScratch(const ConvShape& s, int threads, std::byte* base) {
    Scratch scratch(base);
    w = scratch.take<uint16_t>(size_t(s.depth() * s.out));
    bias = scratch.take<float>(size_t(s.out));
    for (int i = 0; i < threads; ++i) {
      sums.push_back(scratch.take<float>(size_t(kPositions * kBf16Panel)));
    }
    bytes = scratch.bytes();
  }
};

void pack_panel(const ConvShape& s, const uint16_t* w, int64_t panel, uint16_t* to) {
  to += panel * s.depth() * kBf16Panel;
  for (int64_t o = 0; o < kBf16Panel; ++o) {
    const uint16_t* from = w + (panel * kBf16Panel + o) * s.depth();
    for (int64_t c = 0; c < s.in; ++c) {
      for (int64_t u = 0; u < s.kernel; ++u) {
        const int64_t k = u * s.in + c;
        to[(k / 2 * kBf16Panel + o) * 2 + k % 2] = from[c * s.kernel + u];
      }
    }
  }
}

Cover covers_conv(const RemainingOps& rest) {
  const SignalConv span = signal_conv_at(rest);
  if (span.conv == nullptr) return Cover::no("the next op is no 1-D convolution of stride 1");
  const Conv2d& conv = *span.conv;
  if (conv.x.dtype != DType::bf16 || conv.w.dtype != DType::bf16 || conv.y.dtype != DType::bf16 ||
      !is_bias(conv.b)) {
    return Cover::no("takes bf16");
  }
  if (conv.shape.in.c % kBf16Depth != 0 || conv.shape.k % kBf16Panel != 0) {
    return Cover::no("takes channels in 32s");
  }
  Cover cover = cover_in_rows(rest, span);
  cover.workspace =
      ConvScratch(conv_shape(span), cpu_runtime(rest.runtime).pool().size(), nullptr).bytes;
  return cover;
}

std::unique_ptr<Step> prepare_conv(const Span& at, const Binding& binding) {
  const SignalConv span = signal_conv_at({at.program, at.begin, binding.runtime()});
  ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
  const ConvShape s = conv_shape(span);
  return make_step([s, scratch = ConvScratch(s, pool.size(), binding.workspace()),
                    x = binding.read(span.conv->x).as<uint16_t>(),
                    w = binding.read(span.conv->w).as<uint16_t>(),
                    bias = Bias(span.conv->b, binding), y = binding.write(span.y()).as<uint16_t>(),
                    multiply = bf16_engine().multiply, &pool] {
    pool.run([&](int thread) {
      const Range panels = split(s.out / kBf16Panel, thread, pool.size());
      for (int64_t p = panels.begin; p < panels.end; ++p) pack_panel(s, w, p, scratch.w);
      if (thread == 0) bias.write(s.out, scratch.bias);
      pool.barrier();
      const Range chunks = split(s.n * s.sample_chunks(), thread, pool.size());
      for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
        const int64_t sample = chunk / s.sample_chunks(),
                      t = chunk % s.sample_chunks() * kPositions;
        const int64_t rows = std::min(kPositions, s.steps() - t);
        const int64_t to = sample * s.results() + (s.pool ? t / 3 : t);
        float* sums = scratch.sums[size_t(thread)];
        for (int64_t o = 0; o < s.out; o += kBf16Panel) {
          multiply(x + (sample * s.length + t) * s.in, s.in, rows, scratch.w + o * s.depth(),
                   s.depth(), sums);
          store_bf16_rows({scratch.bias + o, s.relu, s.pool, s.out}, sums, rows,
                          y + to * s.out + o);
        }
      }
    });
  });
}

// Weights are the first factor, read in place; the batch is packed.
constexpr int64_t kOutputs = 64;  // rows of weights that a thread takes at a time

struct LinearScratch {
  uint16_t* x;  // [panel of the batch][in / 2][kBf16Panel][2]
  std::vector<float*> sums;
  size_t bytes;

  LinearScratch(int64_t n, int64_t in, int threads, std::byte* base) {
    Scratch scratch(base);
    const int64_t panels = (n + kBf16Panel - 1) / kBf16Panel;
    x = scratch.take<uint16_t>(size_t(panels * kBf16Panel * in));
    for (int i = 0; i < threads; ++i) {
      sums.push_back(scratch.take<float>(size_t(kOutputs * kBf16Panel)));
    }
    bytes = scratch.bytes();
  }
};

// Packs pairs of a sample's numbers, as one number of twice the width.
void pack_samples(const uint16_t* x, int64_t n, int64_t in, int64_t panel, Range depth,
                  uint16_t* to) {
  auto* pairs = reinterpret_cast<uint32_t*>(to + panel * kBf16Panel * in);
  for (int64_t b = 0; b < kBf16Panel; ++b) {
    const int64_t sample = panel * kBf16Panel + b;
    const auto* from = reinterpret_cast<const uint32_t*>(x + sample * in);
    for (int64_t k = depth.begin; k < depth.end; ++k) {
      pairs[k * kBf16Panel + b] = sample < n ? from[k] : 0;
    }
  }
}

struct LinearSpan {
  const Linear* linear = nullptr;
  const Activation* relu = nullptr;
  const Value& y() const { return relu != nullptr ? relu->y : linear->y; }
};

LinearSpan linear_at(const RemainingOps& rest) {
  LinearSpan found{rest.get<Linear>(0), nullptr};
  if (found.linear == nullptr) return {};
  const auto* relu = rest.get<Activation>(1);
  if (relu != nullptr && relu->kind == ActivationKind::relu && relu->x.id == found.linear->y.id &&
      rest.dead_after(found.linear->y, 2)) {
    found.relu = relu;
  }
  return found;
}

Cover covers_linear(const RemainingOps& rest) {
  const LinearSpan span = linear_at(rest);
  if (span.linear == nullptr) return Cover::no("the next op is no linear");
  const Linear& op = *span.linear;
  if (op.x.dtype != DType::bf16 || op.w.dtype != DType::bf16 || op.y.dtype != DType::bf16 ||
      !is_bias(op.b)) {
    return Cover::no("takes bf16");
  }
  const int64_t n = op.x.shape[0], in = op.w.shape[1];
  if (n == 0 || in == 0 || in % kBf16Depth != 0) return Cover::no("takes inputs in 32s");
  Cover cover = Cover::of(span.relu != nullptr ? 2 : 1);
  if (span.relu != nullptr) cover.skips = {op.y.id};
  cover.workspace = LinearScratch(n, in, cpu_runtime(rest.runtime).pool().size(), nullptr).bytes;
  return cover;
}

std::unique_ptr<Step> prepare_linear(const Span& at, const Binding& binding) {
  const LinearSpan span = linear_at({at.program, at.begin, binding.runtime()});
  const Linear& op = *span.linear;
  ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
  const int64_t n = op.x.shape[0], out = op.w.shape[0], in = op.w.shape[1];
  return make_step([n, out, in, scratch = LinearScratch(n, in, pool.size(), binding.workspace()),
                    x = binding.read(op.x).as<uint16_t>(), w = binding.read(op.w).as<uint16_t>(),
                    bias = Bias(op.b, binding), relu = span.relu != nullptr,
                    y = binding.write(span.y()).as<uint16_t>(), multiply = bf16_engine().multiply,
                    &pool] {
    const int64_t panels = (n + kBf16Panel - 1) / kBf16Panel;
    pool.run([&](int thread) {
      const Range depth = split(in / 2, thread, pool.size());
      for (int64_t p = 0; p < panels; ++p) pack_samples(x, n, in, p, depth, scratch.x);
      pool.barrier();
      float* sums = scratch.sums[size_t(thread)];
      const Range rows = split(out, thread, pool.size());
      for (int64_t o = rows.begin; o < rows.end; o += kOutputs) {
        const int64_t count = std::min(kOutputs, rows.end - o);
        for (int64_t p = 0; p < panels; ++p) {
          multiply(w + o * in, in, count, scratch.x + p * kBf16Panel * in, in, sums);
          const int64_t samples = std::min(kBf16Panel, n - p * kBf16Panel);
          for (int64_t r = 0; r < count; ++r) {
            const float add = bias.at(o + r);
            for (int64_t b = 0; b < samples; ++b) {
              const float value = sums[r * kBf16Panel + b] + add;
              y[(p * kBf16Panel + b) * out + o + r] = Bf16(relu && value < 0 ? 0.0f : value).bits;
            }
          }
        }
      }
    });
  });
}

}  // namespace

KernelTable bf16_kernels() {
  Kernel conv;
  conv.name = "cpu.conv1d.bf16";
  conv.covers = covers_conv;
  conv.prepare = prepare_conv;
  Kernel linear;
  linear.name = "cpu.linear.bf16";
  linear.covers = covers_linear;
  linear.prepare = prepare_linear;
  return computing_in(kBf16Only, {conv, linear});
}

}  // namespace ridgeline::cpu::simd
