#include <optional>

#include "ridgeline/cpu/simd/bf16_store.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/one_hot_conv.h"
#include "ridgeline/cpu/simd/signal.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename Op>
OneHotShape one_hot_shape(const Op& op) {
  return {op.n(), op.length(), op.symbols(), op.out(), op.kernel()};
}

size_t table_bytes(const OneHotShape& s, DType dtype) {
  return align_up(size_t(s.blocks() * s.table_block()) * size_of(dtype));
}

// w[o, s, u] <-> table[block, u, s, channel]; f(weight, table element).
template <typename F>
void for_weights(const OneHotShape& s, int64_t block, F f) {
  for (int64_t c = 0; c < kOneHotBlock && block * kOneHotBlock + c < s.out; ++c) {
    const int64_t o = block * kOneHotBlock + c;
    for (int64_t code = 0; code < s.symbols; ++code) {
      for (int64_t u = 0; u < s.kernel; ++u) {
        f((o * s.symbols + code) * s.kernel + u,
          block * s.table_block() + (u * (s.symbols + 1) + code) * kOneHotBlock + c);
      }
    }
  }
}

template <typename T>
void fill_table(const OneHotShape& s, const T* w, T* table, Range blocks) {
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    std::fill_n(table + block * s.table_block(), s.table_block(), T(0));
    for_weights(s, block, [&](int64_t from, int64_t to) { table[to] = w[from]; });
  }
}

template <typename T>
std::unique_ptr<Step> prepare_one_hot(const OneHotConv1d& op, const Binding& binding) {
  return make_step([s = one_hot_shape(op), token = binding.read(op.token).as<int32_t>(),
                    w = binding.read(op.w).as<T>(), b = binding.read(op.b).as<T>(),
                    y = binding.write(op.y).as<T>(),
                    table = reinterpret_cast<T*>(binding.workspace()),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    pool.share(s.blocks(), 1, 1, [&](Range blocks) { fill_table(s, w, table, blocks); });
    pool.share(s.n * s.blocks(), 1, 1,
               [&](Range pairs) { one_hot_functions<T>().forward(s, token, table, b, y, pairs); });
  });
}

template <typename T>
std::unique_ptr<Step> prepare_one_hot_grad(const OneHotConv1dGradW& op, const Binding& binding) {
  return make_step([s = one_hot_shape(op), token = binding.read(op.token).as<int32_t>(),
                    dy = binding.read(op.dy).as<T>(), dw = binding.write(op.dw).as<T>(),
                    db = binding.write(op.db).as<T>(),
                    table = reinterpret_cast<T*>(binding.workspace()),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    pool.share(s.blocks(), 1, 1, [&](Range blocks) {
      one_hot_functions<T>().grad(s, token, dy, table, db, blocks);
      for (int64_t block = blocks.begin; block < blocks.end; ++block) {
        for_weights(s, block, [&](int64_t to, int64_t from) { dw[to] = table[from]; });
      }
    });
  });
}

// The convolution, a normalisation over whole samples, relu and a pool of three, each reading the
// one before; null if they are not all there.
struct Block {
  const OneHotConv1d* conv = nullptr;
  const LayerNorm* norm = nullptr;
  const MaxPool* pool = nullptr;
};

std::optional<Block> block_at(const RemainingOps& rest) {
  const Block found{rest.get<OneHotConv1d>(0), rest.get<LayerNorm>(1), rest.get<MaxPool>(3)};
  const auto* relu = rest.get<Activation>(2);
  if (found.conv == nullptr || found.norm == nullptr || relu == nullptr || found.pool == nullptr) {
    return {};
  }
  if (relu->kind != ActivationKind::relu || found.norm->x.id != found.conv->y.id ||
      relu->x.id != found.norm->y.id || found.pool->x.id != relu->y.id) {
    return {};
  }
  return found;
}

std::string refuse_shape(const Block& block) {
  const auto& [conv, norm, pool] = block;
  const DType dtype = conv->y.dtype;
  if (norm->mean || norm->rstd) return "keeps no moments for a gradient";
  if (norm->rows() != conv->n() || !norm->gamma || !norm->beta || norm->gamma.dtype != dtype ||
      norm->beta.dtype != dtype) {
    return "normalises whole samples with gamma and beta";
  }
  const Window& window = pool->shape.window;
  if (pool->shape.in.h != 1 || window.h.kernel != 1 || window.h.pad != 0 ||
      window.w != Slide{3, 3, 0, 1} || conv->steps() % 3 != 0) {
    return "takes a pool of three over lengths divisible by 3";
  }
  return {};
}

std::string refuse_block(const Block& block) {
  const OneHotConv1d& conv = *block.conv;
  const DType dtype = conv.y.dtype;
  if (!takes(dtype) || conv.w.dtype != dtype || (conv.b && conv.b.dtype != dtype)) {
    return "takes fp32 and fp64 only, one type for all";
  }
  return refuse_shape(block);
}

// The table, gamma and beta as rows of channels, and a sample's convolution for each thread.
template <typename T>
struct BlockScratch {
  T *table, *gamma, *beta, *rows;
  int64_t row_elements;
  size_t bytes;

  BlockScratch(const OneHotShape& s, int threads, std::byte* base) {
    Scratch scratch(base);
    row_elements = s.blocks() * s.steps() * kOneHotBlock;
    table = scratch.take<T>(size_t(s.blocks() * s.table_block()));
    gamma = scratch.take<T>(size_t(row_elements));
    beta = scratch.take<T>(size_t(row_elements));
    rows = scratch.take<T>(size_t(row_elements) * size_t(threads));
    bytes = scratch.bytes();
  }
};

// Covers all four ops; no cover if a value between them is needed later.
Cover skipping(const RemainingOps& rest, const Block& block) {
  Cover cover = Cover::of(4);
  for (const Value& value : {block.conv->y, block.norm->y, block.pool->x}) {
    if (!rest.dead_after(value, 4)) return Cover::no("a value between the ops is needed later");
    cover.skips.push_back(value.id);
  }
  return cover;
}

Cover covers_block(const RemainingOps& rest, bool rows) {
  const auto block = block_at(rest);
  if (!block) return Cover::no("no one_hot_conv1d, layer_norm, relu and pool");
  std::string reason = refuse_block(*block);
  if (rows && block->conv->out() % kOneHotBlock != 0) reason = "gives rows of channels in 16s";
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = skipping(rest, *block);
  if (rows) use_rows(cover.writes, block->pool->y, block->pool->shape.out());
  const int threads = cpu_runtime(rest.runtime).pool().size();
  const OneHotShape shape = one_hot_shape(*block->conv);
  cover.workspace = with_type(block->conv->y.dtype, [&](auto zero) {
    return BlockScratch<decltype(zero)>(shape, threads, nullptr).bytes;
  });
  return cover;
}

template <typename T>
void run_block(const OneHotBlockArgs<T>& args, const BlockScratch<T>& scratch, ThreadPool& pool,
               const T* w, const T* gamma, const T* beta) {
  const OneHotShape& s = args.shape;
  pool.share(s.blocks(), 1, 1, [&](Range blocks) {
    fill_table(s, w, scratch.table, blocks);
    for (int64_t o = blocks.begin * kOneHotBlock; o < blocks.end * kOneHotBlock; ++o) {
      for (int64_t t = 0; t < s.steps(); ++t) {
        const int64_t to = (o / kOneHotBlock * s.steps() + t) * kOneHotBlock + o % kOneHotBlock;
        scratch.gamma[to] = o < s.out ? gamma[o * s.steps() + t] : T(0);
        scratch.beta[to] = o < s.out ? beta[o * s.steps() + t] : T(0);
      }
    }
  });
  pool.run([&](int thread) {
    one_hot_functions<T>().block(args, scratch.rows + thread * scratch.row_elements,
                                 split(s.n, thread, pool.size()));
  });
}

template <typename T>
std::unique_ptr<Step> prepare_block(const Span& span, const Binding& binding, bool rows) {
  const auto& conv = span.get<OneHotConv1d>(0);
  const auto& norm = span.get<LayerNorm>(1);
  ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
  const OneHotShape s = one_hot_shape(conv);
  const BlockScratch<T> scratch(s, pool.size(), binding.workspace());
  OneHotBlockArgs<T> args{s,
                          binding.read(conv.token).as<int32_t>(),
                          scratch.table,
                          binding.read(conv.b).as<T>(),
                          scratch.gamma,
                          scratch.beta,
                          T(norm.epsilon),
                          binding.write(span.get<MaxPool>(3).y).as<T>(),
                          rows};
  return make_step(
      [args, scratch, &pool, w = binding.read(conv.w).as<T>(),
       gamma = binding.read(norm.gamma).as<T>(),
       beta = binding.read(norm.beta).as<T>()] { run_block(args, scratch, pool, w, gamma, beta); });
}

// For bf16: all operands are widened first, and the block's last step rounds.
struct HalfBlockScratch {
  BlockScratch<float> block;
  float *w, *gamma, *beta, *bias;
  size_t bytes;

  HalfBlockScratch(const OneHotShape& s, int threads, std::byte* base) : block(s, threads, base) {
    Scratch scratch(base != nullptr ? base + align_up(block.bytes) : nullptr);
    const int64_t width = s.out * s.steps();
    w = scratch.take<float>(size_t(s.out * s.symbols * s.kernel));
    gamma = scratch.take<float>(size_t(width));
    beta = scratch.take<float>(size_t(width));
    bias = scratch.take<float>(size_t(s.out));
    bytes = align_up(block.bytes) + scratch.bytes();
  }
};

Cover covers_half_block(const RemainingOps& rest) {
  const auto block = block_at(rest);
  if (!block) return Cover::no("no one_hot_conv1d, layer_norm, relu and pool");
  const auto& [conv, norm, pool] = *block;
  std::string reason;
  if (conv->y.dtype != DType::bf16 || conv->w.dtype != DType::bf16) reason = "takes bf16";
  if (conv->b && conv->b.dtype != DType::bf16 && conv->b.dtype != DType::fp32) {
    reason = "takes biases of bf16 and fp32";
  }
  if (reason.empty()) reason = refuse_shape(*block);
  if (conv->out() % kOneHotBlock != 0) reason = "gives rows of channels in 16s";
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = skipping(rest, *block);
  use_rows(cover.writes, pool->y, pool->shape.out());
  const int threads = cpu_runtime(rest.runtime).pool().size();
  cover.workspace = HalfBlockScratch(one_hot_shape(*conv), threads, nullptr).bytes;
  return cover;
}

std::unique_ptr<Step> prepare_half_block(const Span& span, const Binding& binding) {
  const auto& conv = span.get<OneHotConv1d>(0);
  const auto& norm = span.get<LayerNorm>(1);
  ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
  const OneHotShape s = one_hot_shape(conv);
  const HalfBlockScratch scratch(s, pool.size(), binding.workspace());
  const bool wide_bias = conv.b && conv.b.dtype == DType::fp32;
  OneHotBlockArgs<float> args{s,
                              binding.read(conv.token).as<int32_t>(),
                              scratch.block.table,
                              wide_bias ? binding.read(conv.b).as<float>()
                              : conv.b  ? scratch.bias
                                        : nullptr,
                              scratch.block.gamma,
                              scratch.block.beta,
                              float(norm.epsilon),
                              nullptr,
                              true,
                              binding.write(span.get<MaxPool>(3).y).as<uint16_t>()};
  return make_step(
      [args, scratch, &pool, w = binding.read(conv.w).as<uint16_t>(),
       gamma = binding.read(norm.gamma).as<uint16_t>(),
       beta = binding.read(norm.beta).as<uint16_t>(),
       bias = args.bias == scratch.bias ? binding.read(conv.b).as<uint16_t>() : nullptr] {
        const OneHotShape& shape = args.shape;
        const int64_t width = shape.out * shape.steps();
        pool.share(width, 64, kLeastElements, [&](Range part) {
          const int64_t count = part.end - part.begin;
          widen_bf16(gamma + part.begin, scratch.gamma + part.begin, count);
          widen_bf16(beta + part.begin, scratch.beta + part.begin, count);
        });
        widen_bf16(w, scratch.w, shape.out * shape.symbols * shape.kernel);
        if (bias != nullptr) widen_bf16(bias, scratch.bias, shape.out);
        run_block<float>(args, scratch.block, pool, scratch.w, scratch.gamma, scratch.beta);
      });
}

// All float operands are of one type here: fp32 or fp64.
template <typename Op>
Cover covers_one_hot_conv(const RemainingOps& rest, const Value Op::*typed, const Value Op::*weight,
                          const Value Op::*bias) {
  const std::string reason = refuses(rest, typed);
  if (!reason.empty()) return Cover::no(reason);
  const auto* op = rest.get<Op>(0);
  const DType dtype = (op->*typed).dtype;
  if ((op->*weight).dtype != dtype || (op->*bias && (op->*bias).dtype != dtype)) {
    return Cover::no("takes operands of one type only");
  }
  Cover cover = Cover::of(1);
  cover.workspace = table_bytes(one_hot_shape(*op), dtype);
  return cover;
}

Kernel block_kernel(bool rows) {
  Kernel block;
  block.name = rows ? "cpu.one_hot_norm_relu_pool.row_wise" : "cpu.one_hot_norm_relu_pool.simd";
  block.covers = [rows](const RemainingOps& rest) { return covers_block(rest, rows); };
  block.prepare = [rows](const Span& span, const Binding& binding) {
    return with_type(span.get<OneHotConv1d>(0).y.dtype,
                     [&](auto zero) { return prepare_block<decltype(zero)>(span, binding, rows); });
  };
  return block;
}

}  // namespace

KernelTable one_hot_conv_kernels() {
  Kernel forward;
  forward.name = "cpu.one_hot_conv1d.simd";
  forward.covers = [](const RemainingOps& rest) {
    return covers_one_hot_conv(rest, &OneHotConv1d::y, &OneHotConv1d::w, &OneHotConv1d::b);
  };
  forward.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<OneHotConv1d>(0);
    return with_type(op.y.dtype,
                     [&](auto zero) { return prepare_one_hot<decltype(zero)>(op, binding); });
  };
  Kernel grad;
  grad.name = "cpu.one_hot_conv1d_grad_w.simd";
  grad.covers = [](const RemainingOps& rest) {
    return covers_one_hot_conv(rest, &OneHotConv1dGradW::dy, &OneHotConv1dGradW::dw,
                               &OneHotConv1dGradW::db);
  };
  grad.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<OneHotConv1dGradW>(0);
    return with_type(op.dy.dtype,
                     [&](auto zero) { return prepare_one_hot_grad<decltype(zero)>(op, binding); });
  };
  Kernel half;
  half.name = "cpu.one_hot_norm_relu_pool.bf16";
  half.covers = covers_half_block;
  half.prepare = prepare_half_block;
  KernelTable table =
      computing_in(kFloatAndDouble, {block_kernel(true), block_kernel(false), half, forward, grad});
  table[2].traits.precisions = kBf16Only;
  return table;
}

}  // namespace ridgeline::cpu::simd
