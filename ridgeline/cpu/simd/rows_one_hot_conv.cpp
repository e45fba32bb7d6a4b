#include "ridgeline/cpu/simd/one_hot_conv.h"
#include "ridgeline/cpu/simd/row.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename Op>
OneHotShape shape_of(const Op& op) {
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
std::unique_ptr<Step> prepare_forward(const OneHotConv1d& op, const Binding& binding) {
  return make_step([s = shape_of(op), token = binding.read(op.token).as<int32_t>(),
                    w = binding.read(op.w).as<T>(), b = binding.read(op.b).as<T>(),
                    y = binding.write(op.y).as<T>(),
                    table = reinterpret_cast<T*>(binding.workspace()),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    pool.share(s.blocks(), 1, 1, [&](Range blocks) {
      for (int64_t block = blocks.begin; block < blocks.end; ++block) {
        std::fill_n(table + block * s.table_block(), s.table_block(), T(0));
        for_weights(s, block, [&](int64_t from, int64_t to) { table[to] = w[from]; });
      }
    });
    pool.share(s.n * s.blocks(), 1, 1,
               [&](Range pairs) { one_hot_kernels<T>().forward(s, token, table, b, y, pairs); });
  });
}

template <typename T>
std::unique_ptr<Step> prepare_grad(const OneHotConv1dGradW& op, const Binding& binding) {
  return make_step([s = shape_of(op), token = binding.read(op.token).as<int32_t>(),
                    dy = binding.read(op.dy).as<T>(), dw = binding.write(op.dw).as<T>(),
                    db = binding.write(op.db).as<T>(),
                    table = reinterpret_cast<T*>(binding.workspace()),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    pool.share(s.blocks(), 1, 1, [&](Range blocks) {
      one_hot_kernels<T>().grad(s, token, dy, table, db, blocks);
      for (int64_t block = blocks.begin; block < blocks.end; ++block) {
        for_weights(s, block, [&](int64_t to, int64_t from) { dw[to] = table[from]; });
      }
    });
  });
}

// All float operands are of one type here: fp32 or fp64.
template <typename Op>
Cover covers(const Rest& rest, const Value Op::*typed, const Value Op::*weight,
             const Value Op::*bias) {
  const std::string reason = refuses(rest, typed);
  if (!reason.empty()) return Cover::no(reason);
  const auto* op = rest.get<Op>(0);
  const DType dtype = (op->*typed).dtype;
  if ((op->*weight).dtype != dtype || (op->*bias && (op->*bias).dtype != dtype)) {
    return Cover::no("takes operands of one type only");
  }
  Cover cover = Cover::of(1);
  cover.workspace = table_bytes(shape_of(*op), dtype);
  return cover;
}

}  // namespace

Table one_hot_conv_rows() {
  Impl forward;
  forward.name = "cpu.one_hot_conv1d.simd";
  forward.covers = [](const Rest& rest) {
    return covers(rest, &OneHotConv1d::y, &OneHotConv1d::w, &OneHotConv1d::b);
  };
  forward.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<OneHotConv1d>(0);
    return with_type(op.y.dtype,
                     [&](auto zero) { return prepare_forward<decltype(zero)>(op, binding); });
  };
  Impl grad;
  grad.name = "cpu.one_hot_conv1d_grad_w.simd";
  grad.covers = [](const Rest& rest) {
    return covers(rest, &OneHotConv1dGradW::dy, &OneHotConv1dGradW::dw, &OneHotConv1dGradW::db);
  };
  grad.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<OneHotConv1dGradW>(0);
    return with_type(op.dy.dtype,
                     [&](auto zero) { return prepare_grad<decltype(zero)>(op, binding); });
  };
  return {forward, grad};
}

}  // namespace ridgeline::cpu::simd
