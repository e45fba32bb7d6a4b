#include <algorithm>
#include <vector>

#include "ridgeline/cpu/simd/conv_span.h"
#include "ridgeline/cpu/simd/toom_conv2d.h"

namespace ridgeline::cpu::simd {
namespace {

// An output's error is one of its neighbours' sizes too. Over so many products it stays far below
// the bound of its own sum: with 49 of them it came to 0.8 of that, with 196 to an eighth. At a
// corner fewer meet.
constexpr int64_t kFewestProducts = 128;

std::string refuse(const Value& x, const DirectShape& shape) {
  if (x.dtype != DType::fp32) return "takes fp32 only";
  if (shape.kernel_w != 3 && shape.kernel_w != 5 && shape.kernel_w != 7) {
    return "takes filters of 3, 5 or 7 columns";
  }
  const int64_t least =
      shape.c * std::min(shape.kernel_h, shape.h) * std::min(shape.kernel_w, shape.w);
  const int64_t corner = shape.c * (shape.kernel_h - shape.pad_h) * (shape.kernel_w - shape.pad_w);
  if (shape.pad_h >= shape.kernel_h || shape.pad_w >= shape.kernel_w ||
      std::min(least, corner) < kFewestProducts) {
    return "too few products in a sum";
  }
  return {};
}

// The filters' points, then each thread's own.
struct Memory {
  Memory(const Toom2dShape& shape, int threads, std::byte* base) {
    Scratch scratch(base);
    filters = scratch.take<float>(shape.filter_elements());
    for (int i = 0; i < threads; ++i) own.push_back(scratch.take<float>(shape.thread_elements()));
    bytes = scratch.bytes();
  }
  float* filters;
  std::vector<float*> own;
  size_t bytes;
};

Cover covers(const Rest& rest, ConvReach reach) {
  Cover cover = cover_conv(rest, reach);
  if (cover.ops == 0) return cover;
  const ConvSpan span = find_conv(rest, reach);
  const std::string reason = refuse(span.conv->x, span.shape());
  if (!reason.empty()) return Cover::no(reason);
  cover.workspace = Memory({span.shape()}, cpu_runtime(rest.runtime).pool().size(), nullptr).bytes;
  return cover;
}

std::unique_ptr<Step> prepare(const ConvSpan& span, const Binding& binding) {
  auto& pool = cpu_runtime(binding.runtime()).pool();
  const Conv2d& op = *span.conv;
  const Toom2dShape shape{span.shape()};
  const Memory memory(shape, pool.size(), binding.workspace());
  const Toom2dArgs args{shape, memory.filters, binding.read(op.b).as<float>(), span.act()};
  const int64_t n = op.x.shape[0];
  return make_step([args, memory, n, w = binding.read(op.w).as<float>(),
                    x = binding.read(op.x).as<float>(), y = binding.write(span.y()).as<float>(),
                    in = op.x.shape.numel() / n, out = span.y().shape.numel() / n, &pool] {
    const int64_t blocks = direct_blocks(args.shape.conv.k);
    pool.run([&](int thread) {
      toom2d_kernels().filters(args.shape, w, memory.filters, split(blocks, thread, pool.size()));
      pool.barrier();
      const Range images = split(n, thread, pool.size());
      for (int64_t i = images.begin; i < images.end; ++i) {
        toom2d_kernels().image(args, x + i * in, y + i * out, memory.own[size_t(thread)]);
      }
    });
  });
}

Impl row(std::string name, ConvReach reach) {
  Impl row;
  row.name = std::move(name);
  row.covers = [reach](const Rest& rest) { return covers(rest, reach); };
  row.prepare = [reach](const Span& span, const Binding& binding) {
    return prepare(find_conv({span.program, span.begin, binding.runtime()}, reach), binding);
  };
  return row;
}

}  // namespace

Table toom_conv2d_rows() {
  return {row("cpu.conv2d_pool.toom", ConvReach::pooled),
          row("cpu.conv2d_activation.toom", ConvReach::activated),
          row("cpu.conv2d.toom", ConvReach::alone)};
}

}  // namespace ridgeline::cpu::simd
