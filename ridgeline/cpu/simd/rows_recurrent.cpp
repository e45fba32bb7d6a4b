#include <algorithm>
#include <cstring>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/recurrent.h"
#include "ridgeline/cpu/simd/row.h"

// A recurrent layer: one large product of the input with all gates, then step by step the product
// with the recurrent weights, packed once, with the gates' functions at its end; likewise backward.
// The threads share out the hidden units and meet once a step.
namespace ridgeline::cpu::simd {
namespace {

// The reserve in time steps of panels: [D][T][panels][vectors * H][kPanel].
constexpr const char* kReserveFormat = "simd:rnn";

template <typename T>
struct Sizes {
  RnnShape s;
  int64_t panels = panels_of<T>(s.batch);

  int64_t step(int64_t features) const { return panels * features * kPanel<T>; }
  size_t state() const { return size_t(step(s.hidden)); }
  size_t gates() const { return size_t(s.steps * step(gate_vectors(s.cell) * s.hidden)); }
  size_t reserve_bytes() const { return size_t(s.directions()) * gates() * sizeof(T); }
  size_t packed(int64_t units) const {
    return size_t((s.hidden + units - 1) / units * units * gates_of() * s.hidden);
  }
  int64_t gates_of() const { return ridgeline::gates(s.cell); }
};

// [n, features] at a[r * lda] to panels of one step and back, all features.
template <typename T>
void to_step(const T* a, int64_t lda, int64_t n, int64_t features, T* panels) {
  batch_kernels<T>().to_panels(a, lda, features, panels, {0, n}, {0, features});
}

// A state [B, H], or zeros when there is none, in panels.
template <typename T>
void load_state(const T* state, const RnnShape& s, int64_t d, T* panels) {
  std::fill_n(panels, Sizes<T>{s}.state(), T(0));
  if (state != nullptr) {
    to_step(state + d * s.batch * s.hidden, s.hidden, s.batch, s.hidden, panels);
  }
}

// lengths as numbers, all steps when null; zero past the batch.
template <typename T>
void load_lengths(const int32_t* lengths, const RnnShape& s, T* panels) {
  std::fill_n(panels, panels_of<T>(s.batch) * kPanel<T>, T(0));
  for (int64_t b = 0; b < s.batch; ++b) panels[b] = T(lengths != nullptr ? lengths[b] : s.steps);
}

// --- forward ---

template <typename T>
struct Forward {
  ThreadPool& pool;
  RnnShape s;
  Sizes<T> sizes{s};
  const T* x = nullptr;
  const T *w_ih[2] = {}, *w_hh[2] = {}, *b_ih[2] = {}, *b_hh[2] = {};
  const T *h0 = nullptr, *c0 = nullptr;
  const int32_t* lengths = nullptr;
  T *y = nullptr, *hT = nullptr, *cT = nullptr;
  // Scratch; gates is the reserve when there is one.
  T *gates = nullptr, *x_panels = nullptr, *h_all = nullptr, *c_two = nullptr, *packed = nullptr;
  T *bias = nullptr, *length_panels = nullptr;

  void allot(Scratch& scratch, bool own_gates) {
    if (own_gates) gates = scratch.take<T>(sizes.gates());
    x_panels = scratch.take<T>(size_t(s.steps * sizes.step(s.in)));
    h_all = scratch.take<T>(size_t(s.steps + 1) * sizes.state());
    c_two = scratch.take<T>(2 * sizes.state());
    packed = scratch.take<T>(sizes.packed(rnn_kernels<T>().units(s.cell)));
    bias = scratch.take<T>(size_t(s.gate_rows()));
    length_panels = scratch.take<T>(size_t(sizes.step(1)));
  }

  void operator()() const {
    const int64_t own = saves ? int64_t(sizes.gates()) : 0;
    pool.run([&](int thread) {
      const Range times = split(s.steps, thread, pool.size());
      for (int64_t t = times.begin; t < times.end; ++t) {
        to_step(x + t * s.in, s.steps * s.in, s.batch, s.in, x_panels + t * sizes.step(s.in));
      }
      if (thread == 0) load_lengths(lengths, s, length_panels);
      for (int64_t d = 0; d < s.directions(); ++d) direction(thread, d, gates + d * own);
    });
  }
  bool saves = false;

 private:
  void direction(int thread, int64_t d, T* all) const {
    const RnnKernels<T>& kernels = rnn_kernels<T>();
    const int64_t H = s.hidden, tile = kernels.units(s.cell), wide = gate_vectors(s.cell) * H;
    const Range units = split(H, thread, pool.size(), tile);
    const Range tiles{units.begin / tile, (units.end + tile - 1) / tile};
    if (units.begin < units.end) kernels.pack(s.cell, H, w_hh[d], packed, tiles);
    if (thread == 0) start(d);
    pool.barrier();
    input_products(thread, d, all, wide);
    pool.barrier();
    RnnStepArgs<T> a{};
    a.cell = s.cell;
    a.hidden = H;
    a.batch = s.batch;
    a.w = packed;
    if (s.cell == CellKind::gru && b_hh[d] != nullptr) a.bias_hn = b_hh[d] + 2 * H;
    a.lengths = lengths != nullptr ? length_panels : nullptr;
    for (int64_t step = 0; step < s.steps; ++step) {
      const int64_t t = s.reverse(d) ? s.steps - 1 - step : step;
      a.h = h_all + step * int64_t(sizes.state());
      a.h_next = h_all + (step + 1) * int64_t(sizes.state());
      a.c = c_two + step % 2 * int64_t(sizes.state());
      a.c_next = c_two + (step + 1) % 2 * int64_t(sizes.state());
      a.gates = all + t * sizes.step(wide);
      a.time = T(t);
      kernels.step(a, units);
      pool.barrier();
    }
    finish(thread, d);
    pool.barrier();
  }

  void start(int64_t d) const {
    load_state(h0, s, d, h_all);
    load_state(c0, s, d, c_two);
    for (int64_t row = 0; row < s.gate_rows(); ++row) {
      const bool apart = s.cell == CellKind::gru && row >= 2 * s.hidden;
      bias[row] = b_ih[d] != nullptr ? b_ih[d][row] + (apart ? T(0) : b_hh[d][row]) : T(0);
    }
  }

  void input_products(int thread, int64_t d, T* all, int64_t wide) const {
    const ForwardArgs<T> args{w_ih[d], bias, x_panels, all, nullptr, s.in, wide, Act::none};
    const int64_t columns = s.steps * sizes.panels * kPanel<T>;
    if (s.steps * sizes.panels >= 4 * pool.size()) {
      kernels<T>().forward(args, {0, s.gate_rows()},
                           split(columns, thread, pool.size(), kPanel<T>));
    } else {
      kernels<T>().forward(args, split(s.gate_rows(), thread, pool.size(), 8), {0, columns});
    }
  }

  void finish(int thread, int64_t d) const {
    const int64_t H = s.hidden, D = s.directions();
    const Range steps = split(s.steps, thread, pool.size());
    for (int64_t step = steps.begin; step < steps.end; ++step) {
      const int64_t t = s.reverse(d) ? s.steps - 1 - step : step;
      T* to = y + (t * D + d) * H;
      batch_kernels<T>().from_panels(h_all + (step + 1) * int64_t(sizes.state()), H, to,
                                     s.steps * D * H, {0, s.batch}, {0, H});
      for (int64_t b = 0; lengths != nullptr && b < s.batch; ++b) {
        if (t >= lengths[b]) std::fill_n(to + b * s.steps * D * H, H, T(0));
      }
    }
    if (thread != 0) return;
    const auto store = [&](const T* panels, T* to) {
      if (to == nullptr) return;
      batch_kernels<T>().from_panels(panels, H, to + d * s.batch * H, H, {0, s.batch}, {0, H});
    };
    store(h_all + s.steps * int64_t(sizes.state()), hT);
    store(c_two + s.steps % 2 * int64_t(sizes.state()), cT);
  }
};

ThreadPool& pool_of(const Rest& rest) {
  return const_cast<ThreadPool&>(cpu_runtime(rest.runtime).pool());
}

Cover covers_forward(const Rest& rest) {
  const std::string reason = refuses(rest, &Rnn::y);
  if (!reason.empty()) return Cover::no(reason);
  const Rnn& op = *rest.get<Rnn>(0);
  Cover cover = Cover::of(1);
  with_type(op.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    Forward<T> step{pool_of(rest), op.shape};
    Scratch scratch;
    step.allot(scratch, !op.reserve);
    cover.workspace = scratch.bytes();
    if (op.reserve) {
      cover.writes.push_back({op.reserve.id, kReserveFormat, step.sizes.reserve_bytes()});
    }
  });
  return cover;
}

std::unique_ptr<Step> prepare_forward(const Span& span, const Binding& binding) {
  const Rnn& op = span.get<Rnn>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const auto read = [&](const Value& v) { return binding.read(v).template as<const T>(); };
    const auto write = [&](const Value& v) { return binding.write(v).template as<T>(); };
    Forward<T> step{cpu_runtime(binding.runtime()).pool(), op.shape};
    Scratch scratch(binding.workspace());
    step.allot(scratch, !op.reserve);
    if (op.reserve) step.gates = write(op.reserve);
    step.saves = bool(op.reserve);
    for (size_t d = 0; d < size_t(op.shape.directions()); ++d) {
      step.w_ih[d] = read(op.weights[d].w_ih);
      step.w_hh[d] = read(op.weights[d].w_hh);
      step.b_ih[d] = read(op.weights[d].b_ih);
      step.b_hh[d] = read(op.weights[d].b_hh);
    }
    step.x = read(op.x);
    step.h0 = read(op.h0);
    step.c0 = read(op.c0);
    step.lengths = binding.read(op.lengths).template as<const int32_t>();
    step.y = write(op.y);
    step.hT = write(op.hT);
    step.cT = write(op.cT);
    return make_step(step);
  });
}

// --- back through time ---

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

  bool wants_y() const { return s.cell != CellKind::lstm; }
  int64_t wide() const { return gradient_vectors(s.cell) * s.hidden; }

  void allot(Scratch& scratch) {
    dy_panels = scratch.take<T>(size_t(s.steps) * sizes.state());
    y_panels = wants_y() ? scratch.take<T>(size_t(s.steps) * sizes.state()) : nullptr;
    gradients = scratch.take<T>(size_t(s.steps * sizes.step(wide())));
    packed = scratch.take<T>(sizes.packed(rnn_kernels<T>().grad_units()));
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
    const RnnKernels<T>& kernels = rnn_kernels<T>();
    const int64_t H = s.hidden, D = s.directions(), tile = kernels.grad_units();
    const Range units = split(H, thread, pool.size(), tile);
    const Range times = split(s.steps, thread, pool.size());
    if (units.begin < units.end) {
      kernels.pack_transposed(s.cell, H, w_hh[d], packed,
                              {units.begin / tile, (units.end + tile - 1) / tile});
    }
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
    loop(d, units);
    finish(thread, d, times);
    pool.barrier();
  }

  void loop(int64_t d, Range units) const {
    const RnnKernels<T>& kernels = rnn_kernels<T>();
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
      kernels.grad_step(a, units);
      a.after = a.gradients;
      pool.barrier();
    }
    if (dh0 == nullptr) return;
    a.dh0 = out;
    kernels.grad_step(a, units);
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

Cover covers_backward(const Rest& rest) {
  const std::string reason = refuses(rest, &RnnGrad::dy);
  if (!reason.empty()) return Cover::no(reason);
  const RnnGrad& op = *rest.get<RnnGrad>(0);
  Cover cover = Cover::of(1);
  with_type(op.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    Backward<T> step{pool_of(rest), op.shape};
    Scratch scratch;
    step.allot(scratch);
    cover.workspace = scratch.bytes();
    if (op.reserve) {
      cover.reads.push_back({op.reserve.id, kReserveFormat, step.sizes.reserve_bytes()});
    }
  });
  return cover;
}

std::unique_ptr<Step> prepare_backward(const Span& span, const Binding& binding) {
  const RnnGrad& op = span.get<RnnGrad>(0);
  return with_type(op.dy.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const auto read = [&](const Value& v) { return binding.read(v).template as<const T>(); };
    const auto write = [&](const Value& v) { return binding.write(v).template as<T>(); };
    Backward<T> step{cpu_runtime(binding.runtime()).pool(), op.shape};
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

// --- the reserve between its formats ---

template <typename T>
void convert_reserve(ThreadPool& pool, const Tensor& plain, T* panels, bool to_plain) {
  const Shape& shape = plain.shape;  // [B, T, D, vectors, H]
  const int64_t B = shape[0], steps = shape[1], D = shape[2], wide = shape[3] * shape[4];
  const int64_t step = panels_of<T>(B) * kPanel<T> * wide;
  pool.run([&](int thread) {
    const Range part = split(D * steps, thread, pool.size());
    for (int64_t i = part.begin; i < part.end; ++i) {
      const int64_t d = i / steps, t = i % steps;
      T* row = plain.as<T>() + (t * D + d) * wide;
      const BatchKernels<T>& batch = batch_kernels<T>();
      if (to_plain) {
        batch.from_panels(panels + i * step, wide, row, steps * D * wide, {0, B}, {0, wide});
      } else {
        batch.to_panels(row, steps * D * wide, wide, panels + i * step, {0, B}, {0, wide});
      }
    }
  });
}

Impl reserve_row(std::string name, bool to_plain) {
  Impl row;
  row.name = std::move(name);
  row.converts = [to_plain](const Value& value, const Format& from, const Format& to) {
    return value.shape.rank() == 5 && takes(value.dtype) &&
           from == (to_plain ? kReserveFormat : "") && to == (to_plain ? "" : kReserveFormat);
  };
  row.prepare = [to_plain](const Span&, const Binding& binding) {
    const Tensor from = binding.read({}), to = binding.write({});
    ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
    return make_step([=, &pool] {
      with_type(from.dtype, [&](auto zero) {
        using T = decltype(zero);
        convert_reserve<T>(pool, to_plain ? to : from, (to_plain ? from : to).as<T>(), to_plain);
      });
    });
  };
  return row;
}

}  // namespace

Table recurrent_rows() {
  Impl forward, backward;
  forward.name = "cpu.rnn.simd";
  forward.covers = covers_forward;
  forward.prepare = prepare_forward;
  backward.name = "cpu.rnn_grad.simd";
  backward.covers = covers_backward;
  backward.prepare = prepare_backward;
  Table rows{forward, backward, reserve_row("cpu.rnn_reserve.to_simd", false),
             reserve_row("cpu.rnn_reserve.from_simd", true)};
  for (Impl& row : recurrent_weight_rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace ridgeline::cpu::simd
