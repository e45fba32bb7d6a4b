#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/kernel.h"

// Linear layers in a program have batch-major values; each step converts its operands to panels in
// scratch, and its results back.
namespace ridgeline::cpu::simd {
namespace {

// --- y = act(x w^T + b) ---

template <typename T>
struct ForwardStep {
  ThreadPool& pool;
  int64_t n;
  const T* x;
  T *y, *z;  // batch-major; z is null unless the value before the activation is wanted
  T *x_panels, *y_panels;
  ForwardArgs<T> args;

  void operator()() const {
    pool.run([this](int thread) {
      const bool by_batch = n >= kLayerRowsToShareBatch * pool.size();
      const Range mine = split(n, thread, pool.size(), kGroup<T>);
      const BatchFunctions<T>& batch = batch_functions<T>();
      batch.to_panels(x, args.in, args.in, x_panels, mine, {0, args.in});
      if (!by_batch) pool.barrier();
      const Range rows = by_batch ? Range{0, args.out} : split(args.out, thread, pool.size(), 8);
      const Range columns = by_batch ? mine : Range{0, n};
      gemm_functions<T>().forward(args, rows, columns);
      batch.from_panels(y_panels, args.out, y, args.out, columns, rows);
      if (z != nullptr) batch.from_panels(args.z, args.out, z, args.out, columns, rows);
    });
  }
};

template <typename T>
ForwardStep<T> forward_step(std::byte* base, size_t* bytes, ThreadPool& pool, const Linear& op,
                            bool keep_z) {
  Scratch scratch(base);
  ForwardStep<T> step{pool, op.n(), nullptr, nullptr, nullptr, nullptr, nullptr, {}};
  step.x_panels = scratch.take<T>(panel_elements<T>(op.n(), op.in()));
  step.y_panels = scratch.take<T>(panel_elements<T>(op.n(), op.out()));
  step.args.z = keep_z ? scratch.take<T>(panel_elements<T>(op.n(), op.out())) : nullptr;
  if (bytes != nullptr) *bytes = scratch.bytes();
  return step;
}

Cover covers_forward(const RemainingOps& rest, bool with_activation) {
  const std::string reason = refuses(rest, &Linear::y);
  if (!reason.empty()) return Cover::no(reason);
  const Linear& op = *rest.get<Linear>(0);
  if (op.in() < 1) return Cover::no("empty");
  Cover cover = Cover::of(with_activation ? 2 : 1);
  bool keep_z = false;
  if (with_activation) {
    const auto* f = rest.get<Activation>(1);
    if (f == nullptr || f->x.id != op.y.id) return Cover::no("no activation follows");
    keep_z = !rest.dead_after(op.y, 2);
    if (!keep_z) cover.skips = {op.y.id};
  }
  with_type(op.y.dtype, [&](auto zero) {
    ThreadPool& pool = const_cast<ThreadPool&>(cpu_runtime(rest.runtime).pool());
    forward_step<decltype(zero)>(nullptr, &cover.workspace, pool, op, keep_z);
  });
  return cover;
}

std::unique_ptr<Step> prepare_forward(const Span& span, const Binding& binding) {
  const Linear& op = span.get<Linear>(0);
  const Activation* f = span.size() == 2 ? &span.get<Activation>(1) : nullptr;
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    T* z = f != nullptr ? binding.write(op.y).template as<T>() : nullptr;  // null if skipped
    ForwardStep<T> step = forward_step<T>(binding.workspace(), nullptr,
                                          cpu_runtime(binding.runtime()).pool(), op, z != nullptr);
    step.x = binding.read(op.x).template as<T>();
    step.y = binding.write(f != nullptr ? f->y : op.y).template as<T>();
    step.z = z;
    step.args = {binding.read(op.w).template as<T>(),
                 binding.read(op.b).template as<T>(),
                 step.x_panels,
                 step.y_panels,
                 step.args.z,
                 op.in(),
                 op.out(),
                 f != nullptr ? simd_activation(*f) : SimdActivation()};
    return make_step(step);
  });
}

// --- Gradients ---

// Any of these: dx; dw and db; the update of w and b by them.
struct BackwardOps {
  const LinearGradX* grad_x = nullptr;
  const LinearGradW* grad_w = nullptr;
  const SgdUpdate *update_w = nullptr, *update_b = nullptr;

  const Value& dy() const { return grad_w != nullptr ? grad_w->dy : grad_x->dy; }
  int64_t n() const { return dy().shape[0]; }
  int64_t out() const { return dy().shape[1]; }
  int64_t in() const { return grad_w != nullptr ? grad_w->in() : grad_x->in(); }
};

template <typename T>
struct BackwardStep {
  ThreadPool& pool;
  int64_t n, in, out;
  const T* dy;
  T* dx;  // batch-major, null if not wanted
  T *dy_panels, *dx_panels;
  InputGradArgs<T> input;
  WeightGradArgs<T> weights;  // x is null if not wanted
  const double* lr = nullptr;
  const int32_t* tick = nullptr;

  void operator()() {
    if (lr != nullptr) weights.sgd.lr = T(lr[*tick]);
    pool.run([this](int thread) {
      const BatchFunctions<T>& batch = batch_functions<T>();
      const Range mine = split(n, thread, pool.size(), kGroup<T>);
      batch.to_panels(dy, out, out, dy_panels, mine, {0, out});
      pool.barrier();
      if (dx != nullptr) {
        const bool by_batch = n >= kLayerRowsToShareBatch * pool.size();
        const Range rows = by_batch ? Range{0, in} : split(in, thread, pool.size(), kGroup<T>);
        const Range columns = by_batch ? mine : Range{0, n};
        gemm_functions<T>().input_grad(input, rows, columns);
        batch.from_panels(dx_panels, in, dx, in, columns, rows);
        if (weights.update) pool.barrier();  // other threads still read the weights
      }
      if (weights.x != nullptr) {
        gemm_functions<T>().weight_grad(weights, split(out, thread, pool.size(), out >= 16 ? 8 : 1),
                                        {0, in});
      }
    });
  }
};

template <typename T>
BackwardStep<T> backward_step(std::byte* base, size_t* bytes, ThreadPool& pool,
                              const BackwardOps& ops) {
  Scratch scratch(base);
  BackwardStep<T> step{pool,    ops.n(), ops.in(), ops.out(), nullptr,
                       nullptr, nullptr, nullptr,  {},        {}};
  step.dy_panels = scratch.take<T>(panel_elements<T>(ops.n(), ops.out()));
  if (ops.grad_x != nullptr) {
    step.dx_panels = scratch.take<T>(panel_elements<T>(ops.n(), ops.in()));
  }
  if (ops.grad_w != nullptr) {
    step.weights.sparse_scratch = scratch.take<std::byte>(sparse_scratch_bytes<T>(ops.out()));
  }
  if (ops.update_w != nullptr && ops.n() > kSparseGradBlock) {
    step.weights.dw = scratch.take<T>(size_t(ops.in() * ops.out()));
  }
  if (bytes != nullptr) *bytes = scratch.bytes();
  return step;
}

size_t backward_bytes(const RemainingOps& rest, const BackwardOps& ops) {
  return with_type(ops.dy().dtype, [&](auto zero) {
    size_t bytes = 0;
    ThreadPool& pool = const_cast<ThreadPool&>(cpu_runtime(rest.runtime).pool());
    backward_step<decltype(zero)>(nullptr, &bytes, pool, ops);
    return bytes;
  });
}

std::unique_ptr<Step> prepare_backward(const BackwardOps& ops, const Binding& binding) {
  return with_type(ops.dy().dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const auto read = [&](const Value& v) { return binding.read(v).template as<T>(); };
    const auto write = [&](const Value& v) { return binding.write(v).template as<T>(); };
    BackwardStep<T> step =
        backward_step<T>(binding.workspace(), nullptr, cpu_runtime(binding.runtime()).pool(), ops);
    step.dy = read(ops.dy());
    if (ops.grad_x != nullptr) {
      step.dx = write(ops.grad_x->dx);
      step.input = {read(ops.grad_x->w), step.dy_panels,       step.dx_panels, nullptr, ops.in(),
                    ops.out(),           ActivationKind::none, {0, ops.out()}};
    }
    if (ops.grad_w != nullptr) {
      WeightGradArgs<T>& w = step.weights;
      w.dz = step.dy_panels;
      w.x = read(ops.grad_w->x);
      w.ldx = w.in = ops.in();
      w.n = ops.n();
      w.out = ops.out();
      w.sparse = true;  // the gradient of a ReLU; for others it costs a check of dy
      if (ops.update_w == nullptr) {
        w.dw = write(ops.grad_w->dw);
        w.db = write(ops.grad_w->db);
      } else {
        const SgdUpdate& update = *ops.update_w;
        w.update = true;
        w.sgd = {0, T(update.momentum), T(update.weight_decay), update.nesterov};
        w.w = write(update.w);
        w.mw = write(update.m);
        w.b = ops.update_b != nullptr ? write(ops.update_b->w) : nullptr;
        w.mb = ops.update_b != nullptr ? write(ops.update_b->m) : nullptr;
        step.lr = binding.read(update.lr).template as<double>();
        step.tick = binding.read(update.tick).template as<int32_t>();
      }
    }
    return make_step(step);
  });
}

template <typename Op>
Cover covers_gradient(const RemainingOps& rest, const Op* BackwardOps::*which) {
  const std::string reason = refuses(rest, &Op::dy);
  if (!reason.empty()) return Cover::no(reason);
  BackwardOps ops;
  ops.*which = rest.get<Op>(0);
  if (ops.in() < 1) return Cover::no("empty");
  Cover cover = Cover::of(1);
  cover.workspace = backward_bytes(rest, ops);
  return cover;
}

// [LinearGradX,] LinearGradW, SgdUpdate of w[, SgdUpdate of b], beginning at `offset` of the span.
struct BackwardUpdate {
  template <typename Source>
  static BackwardOps read(const Source& source, size_t size) {
    const auto get = [&]<typename Op>(const Op*, size_t offset) -> const Op* {
      if (offset >= size) return nullptr;
      if constexpr (std::is_same_v<Source, Span>) {
        return std::get_if<Op>(&source.op(offset));
      } else {
        return source.template get<Op>(offset);
      }
    };
    BackwardOps ops;
    ops.grad_x = get(static_cast<const LinearGradX*>(nullptr), 0);
    const size_t next = ops.grad_x != nullptr ? 1 : 0;
    ops.grad_w = get(static_cast<const LinearGradW*>(nullptr), next);
    ops.update_w = get(static_cast<const SgdUpdate*>(nullptr), next + 1);
    if (ops.grad_w != nullptr && ops.grad_w->db) {
      ops.update_b = get(static_cast<const SgdUpdate*>(nullptr), next + 2);
    }
    return ops;
  }
};

bool alike(const SgdUpdate& a, const SgdUpdate& b) {
  return a.momentum == b.momentum && a.weight_decay == b.weight_decay && a.nesterov == b.nesterov &&
         a.lr.id == b.lr.id && a.tick.id == b.tick.id && !a.grad_scale && !b.grad_scale &&
         !a.copy && !b.copy;
}

Cover covers_backward_update(const RemainingOps& rest) {
  const BackwardOps ops = BackwardUpdate::read(rest, rest.size());
  if (ops.grad_w == nullptr) return Cover::no("the next ops are no gradients of a linear layer");
  const LinearGradW& grad = *ops.grad_w;
  if (!takes(grad.dy.dtype)) return Cover::no("takes fp32 and fp64 only");
  if (grad.n() < 1 || grad.in() < 1 || grad.out() < 1) return Cover::no("empty");
  if (ops.update_w == nullptr || ops.update_w->dw.id != grad.dw.id) {
    return Cover::no("no SGD update follows");
  }
  if (grad.db && (ops.update_b == nullptr || ops.update_b->dw.id != grad.db.id)) {
    return Cover::no("no SGD update of the bias follows");
  }
  if (!alike(*ops.update_w, ops.update_b != nullptr ? *ops.update_b : *ops.update_w)) {
    return Cover::no(
        "weights and bias are updated differently, or gradients are scaled, or "
        "products read copies");
  }
  if (ops.grad_x != nullptr &&
      (ops.grad_x->dy.id != grad.dy.id || ops.grad_x->w.id != ops.update_w->w.id)) {
    return Cover::no("gradients of different layers");
  }
  Cover cover = Cover::of(2 + size_t(ops.grad_x != nullptr) + size_t(ops.update_b != nullptr));
  for (const Value& value : {grad.dw, grad.db}) {
    if (!value) continue;
    if (!rest.dead_after(value, cover.ops)) return Cover::no("the gradients are wanted outside");
    cover.skips.push_back(value.id);
  }
  cover.workspace = backward_bytes(rest, ops);
  return cover;
}

}  // namespace

KernelTable linear_kernels() {
  Kernel both, linear, grad_x, grad_w, update;
  both.name = "cpu.linear_activation.simd";
  both.covers = [](const RemainingOps& rest) { return covers_forward(rest, true); };
  both.prepare = prepare_forward;
  linear.name = "cpu.linear.simd";
  linear.covers = [](const RemainingOps& rest) { return covers_forward(rest, false); };
  linear.prepare = prepare_forward;
  update.name = "cpu.linear_backward_sgd.simd";
  update.covers = covers_backward_update;
  update.prepare = [](const Span& span, const Binding& binding) {
    return prepare_backward(BackwardUpdate::read(span, span.size()), binding);
  };
  grad_x.name = "cpu.linear_grad_x.simd";
  grad_x.covers = [](const RemainingOps& rest) {
    return covers_gradient(rest, &BackwardOps::grad_x);
  };
  grad_x.prepare = [](const Span& span, const Binding& binding) {
    return prepare_backward({.grad_x = &span.get<LinearGradX>(0)}, binding);
  };
  grad_w.name = "cpu.linear_grad_w.simd";
  grad_w.covers = [](const RemainingOps& rest) {
    return covers_gradient(rest, &BackwardOps::grad_w);
  };
  grad_w.prepare = [](const Span& span, const Binding& binding) {
    return prepare_backward({.grad_w = &span.get<LinearGradW>(0)}, binding);
  };
  return computing_in(kFloatAndDouble,
                      {linear_chain_kernel(), both, update, linear, grad_x, grad_w});
}

}  // namespace ridgeline::cpu::simd
