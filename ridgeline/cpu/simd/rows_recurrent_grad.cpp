#include "ridgeline/cpu/simd/split_recurrent.h"

// Back through time, as the way forward: step by step the product with the transposed recurrent
// weights, packed once, and the gates' slopes.
namespace ridgeline::cpu::simd {
namespace {

// Where vector v of the gate gradients lies in the kernels' order.
int64_t kernel_vector(CellKind cell, int64_t v) {
  return cell == CellKind::gru && v >= 2 ? 5 - v : v;
}

template <typename T>
struct Backward {
  ThreadPool& pool;
  RnnShape s;
  Sizes<T> sizes{s};
  const T *y = nullptr, *reserve = nullptr, *h0 = nullptr, *c0 = nullptr;
  const T* w_hh[2] = {};
  const int32_t* lengths = nullptr;
  const T *dy = nullptr, *dhT = nullptr, *dcT = nullptr;
  T *gate_gradients = nullptr, *dh0 = nullptr, *dc0 = nullptr;
  // Scratch.
  T *dy_panels = nullptr, *y_panels = nullptr, *gradients = nullptr, *packed = nullptr;
  T *direct = nullptr, *dc = nullptr, *h_first = nullptr, *c_first = nullptr, *out = nullptr;
  T* length_panels = nullptr;
  SplitBackward split_up{};  // fp32: the products by its blocks instead of `packed`

  bool splits() const { return std::is_same_v<T, float> && split_up.engine != nullptr; }
  bool wants_y() const { return s.cell != CellKind::lstm; }
  int64_t wide() const { return gradient_vectors(s.cell) * s.hidden; }

  void allot(Scratch& scratch) {
    dy_panels = scratch.take<T>(size_t(s.steps) * sizes.state());
    y_panels = wants_y() ? scratch.take<T>(size_t(s.steps) * sizes.state()) : nullptr;
    gradients = scratch.take<T>(size_t(s.steps * sizes.step(wide())));
    if (splits()) {
      split_up.s = s;
      split_up.allot(scratch);
    } else {
      packed = scratch.take<T>(sizes.packed(rnn_kernels<T>().grad_units()));
    }
    for (T** state : {&direct, &dc, &h_first, &c_first, &out}) {
      *state = scratch.take<T>(sizes.state());
    }
    length_panels = scratch.take<T>(size_t(sizes.step(1)));
  }

  void operator()() const {
    pool.run([&](int thread) {
      if (thread == 0) load_lengths(lengths, s, length_panels);
      for (int64_t d = 0; d < s.directions(); ++d) direction(thread, d);
    });
  }

  void direction(int thread, int64_t d) const {
    const int64_t H = s.hidden, D = s.directions();
    const int64_t tile = splits() ? kSplitSide : rnn_kernels<T>().grad_units();
    const Range units = split(H, thread, pool.size(), tile);
    const Range times = split(s.steps, thread, pool.size());
    if (units.begin < units.end) pack(d, {units.begin / tile, (units.end + tile - 1) / tile});
    for (int64_t t = times.begin; t < times.end; ++t) {
      const int64_t at = (t * D + d) * H;
      to_step(dy + at, s.steps * D * H, s.batch, H, dy_panels + t * int64_t(sizes.state()));
      if (!wants_y()) continue;
      to_step(y + at, s.steps * D * H, s.batch, H, y_panels + t * int64_t(sizes.state()));
    }
    if (thread == 0) {
      load_state(dhT, s, d, direct);
      load_state(dcT, s, d, dc);
      load_state(h0, s, d, h_first);
      load_state(c0, s, d, c_first);
    }
    pool.barrier();
    if (splits()) split_up.engine->begin();
    loop(d, units);
    if (splits()) split_up.engine->end();
    finish(thread, d, times);
    pool.barrier();
  }

  // Tiles of the transposed weights.
  void pack(int64_t d, Range tiles) const {
    if constexpr (std::is_same_v<T, float>) {
      if (splits()) return split_up.pack(w_hh[d], tiles);
    }
    rnn_kernels<T>().pack_transposed(s.cell, s.hidden, w_hh[d], packed, tiles);
  }

  // The `count`th of the loop.
  void run(const RnnGradStepArgs<T>& a, int64_t count, Range units) const {
    if (units.begin >= units.end) return;
    if constexpr (std::is_same_v<T, float>) {
      if (splits()) {
        return split_up.run(a, count, {units.begin / kSplitSide, split_blocks(units.end)});
      }
    }
    rnn_kernels<T>().grad_step(a, units);
  }

  void loop(int64_t d, Range units) const {
    const int64_t H = s.hidden, kept = gate_vectors(s.cell) * H;
    const auto time = [&](int64_t step) { return s.reverse(d) ? s.steps - 1 - step : step; };
    const T* saved = reserve != nullptr ? reserve + d * int64_t(sizes.gates()) : nullptr;
    RnnGradStepArgs<T> a{};
    a.cell = s.cell;
    a.hidden = H;
    a.batch = s.batch;
    a.w = packed;
    a.h0 = h_first;
    a.c0 = c_first;
    a.direct = direct;
    a.dc = dc;
    a.lengths = length_panels;
    for (int64_t step = s.steps; step-- > 0;) {
      const int64_t t = time(step);
      a.time = T(t);
      a.gates = saved != nullptr ? saved + t * sizes.step(kept) : nullptr;
      a.dy = dy_panels + t * int64_t(sizes.state());
      a.y = wants_y() ? y_panels + t * int64_t(sizes.state()) : nullptr;
      if (step > 0) {
        const int64_t before = time(step - 1);
        a.time_before = T(before);
        a.h = wants_y() ? y_panels + before * int64_t(sizes.state()) : nullptr;
        a.c = saved != nullptr ? saved + before * sizes.step(kept) + 4 * H * kPanel<T> : nullptr;
        a.c_stride = kept * kPanel<T>;
      } else {
        a.time_before = T(-1);
        a.h = h_first;
        a.c = c_first;
        a.c_stride = H * kPanel<T>;
      }
      a.gradients = gradients + t * sizes.step(wide());
      run(a, s.steps - 1 - step, units);
      a.after = a.gradients;
      pool.barrier();
    }
    if (dh0 == nullptr) return;
    a.dh0 = out;
    run(a, s.steps, units);
    pool.barrier();
  }

  void finish(int thread, int64_t d, Range times) const {
    const int64_t H = s.hidden, D = s.directions(), V = gradient_vectors(s.cell);
    const BatchKernels<T>& batch = batch_kernels<T>();
    for (int64_t t = times.begin; t < times.end; ++t) {
      const T* from = gradients + t * sizes.step(wide());
      for (int64_t v = 0; v < V; ++v) {
        const T* vector = from + kernel_vector(s.cell, v) * H * kPanel<T>;
        batch.from_panels(vector, wide(), gate_gradients + ((t * D + d) * V + v) * H,
                          s.steps * D * V * H, {0, s.batch}, {0, H});
      }
    }
    if (thread != 0) return;
    const auto store = [&](const T* panels, T* to) {
      if (to != nullptr) {
        batch.from_panels(panels, H, to + d * s.batch * H, H, {0, s.batch}, {0, H});
      }
    };
    store(out, dh0);
    store(dc, dc0);
  }
};

Cover covers_backward(const Rest& rest, const SplitEngine* engine) {
  const std::string reason = refuses(rest, &RnnGrad::dy);
  if (!reason.empty()) return Cover::no(reason);
  const RnnGrad& op = *rest.get<RnnGrad>(0);
  if (engine != nullptr && op.dy.dtype != DType::fp32) return Cover::no(kSplitsOnly);
  Cover cover = Cover::of(1);
  with_type(op.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    Backward<T> step{pool_of(rest), op.shape};
    step.split_up.engine = engine;
    Scratch scratch;
    step.allot(scratch);
    cover.workspace = scratch.bytes();
    if (op.reserve) {
      cover.reads.push_back({op.reserve.id, kReserveFormat, step.sizes.reserve_bytes()});
    }
  });
  return cover;
}

std::unique_ptr<Step> prepare_backward(const Span& span, const Binding& binding,
                                       const SplitEngine* engine) {
  const RnnGrad& op = span.get<RnnGrad>(0);
  return with_type(op.dy.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const auto read = [&](const Value& v) { return binding.read(v).template as<const T>(); };
    const auto write = [&](const Value& v) { return binding.write(v).template as<T>(); };
    Backward<T> step{cpu_runtime(binding.runtime()).pool(), op.shape};
    step.split_up.engine = engine;
    Scratch scratch(binding.workspace());
    step.allot(scratch);
    step.y = read(op.y);
    step.reserve = read(op.reserve);
    step.h0 = read(op.h0);
    step.c0 = read(op.c0);
    for (size_t d = 0; d < 2; ++d) step.w_hh[d] = read(op.weights[d].w_hh);
    step.lengths = binding.read(op.lengths).template as<const int32_t>();
    step.dy = read(op.dy);
    step.dhT = read(op.dhT);
    step.dcT = read(op.dcT);
    step.gate_gradients = write(op.gate_gradients);
    step.dh0 = write(op.dh0);
    step.dc0 = write(op.dc0);
    return make_step(step);
  });
}

}  // namespace

Impl recurrent_grad_row(std::string name, const SplitEngine* engine) {
  Impl row;
  row.name = std::move(name);
  row.covers = [engine](const Rest& rest) { return covers_backward(rest, engine); };
  row.prepare = [engine](const Span& span, const Binding& binding) {
    return prepare_backward(span, binding, engine);
  };
  return row;
}

}  // namespace ridgeline::cpu::simd
