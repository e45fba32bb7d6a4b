#include "ridgeline/cpu/simd/products_recurrent.h"
#include "ridgeline/cpu/simd/split_products_recurrent.h"
#include "ridgeline/cpu/simd/split_recurrent.h"

// Backpropagation through time: for each timestep, the product with the transposed recurrent
// weights, packed once, and the derivatives of the gates. The result is either the gate gradients
// in the program's layout, or all of a layer's gradients, computed directly from the panels.
namespace ridgeline::cpu::simd {
namespace {

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
  WorkStealing work{};
  SplitGradSteps split_h{};     // fp32: products by blocks, if it has an engine
  bool batch_parallel = false;  // threads divide the samples, not the units; implies goes_on
  bool goes_on = false;         // continues with the large products; gate_gradients is then null
  GradOperands<T> operands{};
  GradProducts<T> products{};
  SplitGradProducts split_large{};  // fp32: by blocks, instead of `products`

  void choose(const SplitChoice& choice) {
    split_h = {choice.small, s};
    split_large.engine = choice.large;
    batch_parallel = choice.batch_parallel;
  }
  // Batch-parallel: the timesteps of a sample whose dy is taken, and whose dx is computed,
  // together.
  static constexpr int64_t kTogether = 8;
  // Returns where dy of timestep t is.
  int64_t dy_slot(int64_t t) const { return batch_parallel ? t % kTogether : t; }

  bool splits_h() const { return std::is_same_v<T, float> && split_h.engine != nullptr; }
  bool splits_large() const { return std::is_same_v<T, float> && split_large.engine != nullptr; }
  bool wants_y() const { return s.cell != CellKind::lstm; }
  int64_t wide() const { return gradient_vectors(s.cell) * s.hidden; }

  void allot(Scratch& scratch) {
    dy_panels = scratch.take<T>(size_t(batch_parallel ? kTogether : s.steps) * sizes.state());
    y_panels = wants_y() ? scratch.take<T>(size_t(s.steps) * sizes.state()) : nullptr;
    gradients = scratch.take<T>(size_t(s.steps * sizes.step(wide())));
    if (splits_h()) {
      split_h.allot(scratch);
    } else {
      packed = scratch.take<T>(sizes.packed(rnn_functions<T>().grad_units()));
    }
    for (T** state : {&direct, &dc, &h_first, &c_first, &out}) {
      *state = scratch.take<T>(sizes.state());
    }
    length_panels = scratch.take<T>(size_t(sizes.step(1)));
    work = WorkStealing(scratch.take<int64_t>(WorkStealing::counters(pool.size())), pool.size());
    if (!goes_on) return;
    if (splits_large()) {
      split_large.allot(s, scratch);
    } else {
      products.allot(s, batch_parallel ? kTogether : s.steps, scratch);
    }
  }

  // Calls f with the object that computes the large products.
  template <typename F>
  void with_products(F&& f) const {
    if (!goes_on) return;
    if constexpr (std::is_same_v<T, float>) {
      if (splits_large()) return f(split_large);
    }
    f(products);
  }

  void operator()() const {
    work.clear();
    load_lengths(lengths, s, length_panels);
    pool.run([&](int thread) {
      int64_t round = 0;
      for (int64_t d = 0; d < s.directions(); ++d) {
        batch_parallel ? direction_of_samples(thread, d, round) : direction(thread, d, round);
      }
    });
  }

  // As in the forward pass, the threads meet once the weights are packed, and once more before dW.
  void direction_of_samples(int thread, int64_t d, int64_t& round) const {
    const int64_t tile = rnn_functions<T>().grad_units(), tiles = (s.hidden + tile - 1) / tile;
    work.run(thread, round++, kPackParts, [&](int64_t task) {
      pack(d, split(tiles, int(task), kPackParts));
      products.pack(operands, int(task), d);
    });
    const Range times = split(s.steps, thread, pool.size());
    for (int64_t t = times.begin; t < times.end; ++t) clear_rest(t);
    if (thread == 0) load_states(d);
    pool.barrier();
    const Range samples = samples_of<T>(s, thread, pool.size());
    loop(d, samples, [&](const RnnGradStepArgs<T>& a, int64_t count) {
      const int64_t first = count / kTogether * kTogether;
      const int64_t end = std::min(first + kTogether, s.steps);
      const Range times = s.reverse(d) ? Range{first, end} : Range{s.steps - end, s.steps - first};
      if (count == first && count < s.steps) {
        for (int64_t t = times.begin; t < times.end; ++t) take_step(d, t, samples);
        take_y_before(d, times, samples);
        products.take_steps(operands, d, times, samples);
      }
      rnn_functions<T>().grad_step(a, {0, s.hidden});
      if (count + 1 == end) products.run_samples(operands, d, gradients, samples, times);
    });
    put_states(d, samples);
    pool.barrier();
    products.weights(operands, pool, work, thread, round++, d, gradients);
    pool.barrier();
  }

  void direction(int thread, int64_t d, int64_t& round) const {
    const int64_t tile = splits_h() ? kSplitSide : rnn_functions<T>().grad_units();
    const int64_t tiles = (s.hidden + tile - 1) / tile;
    work.run(thread, round++, kPackParts + s.steps, [&](int64_t task) {
      if (task >= kPackParts) {
        const int64_t t = task - kPackParts;
        clear_rest(t);
        take_step(d, t, {0, s.batch});
        return with_products([&](const auto& large) { large.take_step(operands, d, t); });
      }
      pack(d, split(tiles, int(task), kPackParts));
      with_products([&](const auto& large) { large.pack(operands, int(task), d); });
    });
    if (thread == 0) load_states(d);
    pool.barrier();
    if (splits_h()) split_h.engine->begin();
    loop(d, {0, s.batch}, [&](const RnnGradStepArgs<T>& a, int64_t step) {
      run(a, step, thread, round++);
      pool.barrier();
    });
    if (splits_h()) split_h.engine->end();
    if (!goes_on) work.run(thread, round++, s.steps, [&](int64_t t) { put_step(d, t); });
    if (thread == 0) put_states(d, {0, s.batch});
    with_products(
        [&](const auto& large) { large.run(operands, pool, work, thread, round, d, gradients); });
    pool.barrier();
  }

  void load_states(int64_t d) const {
    load_state(dhT, s, d, direct);
    load_state(dcT, s, d, dc);
    load_state(h0, s, d, h_first);
    load_state(c0, s, d, c_first);
  }

  // Takes the operands of timestep t of the backward pass.
  void take_step(int64_t d, int64_t t, Range samples) const {
    take(dy, d, t, samples, dy_panels + dy_slot(t) * int64_t(sizes.state()));
    if (wants_y()) take(y, d, t, samples, y_panels + t * int64_t(sizes.state()));
  }
  // A timestep also reads y of the one before it.
  void take_y_before(int64_t d, Range times, Range samples) const {
    const int64_t t = s.reverse(d) ? times.end : times.begin - 1;
    if (wants_y() && t >= 0 && t < s.steps)
      take(y, d, t, samples, y_panels + t * int64_t(sizes.state()));
  }
  void take(const T* from, int64_t d, int64_t t, Range samples, T* panels) const {
    const int64_t H = s.hidden, D = s.directions();
    to_step(from + (t * D + d) * H, s.steps * D * H, samples, H, panels);
  }

  // The kernels skip whole vectors of the last panel; the large products do not.
  void clear_rest(int64_t t) const {
    if (!goes_on || s.batch % kPanel<T> == 0) return;
    const int64_t panel = wide() * kPanel<T>;
    std::fill_n(gradients + (t + 1) * sizes.step(wide()) - panel, panel, T(0));
  }

  // Packs tiles of the transposed weights.
  void pack(int64_t d, Range tiles) const {
    if constexpr (std::is_same_v<T, float>) {
      if (splits_h()) return split_h.pack(w_hh[d], tiles);
    }
    rnn_functions<T>().pack_transposed(s.cell, s.hidden, w_hh[d], packed, tiles);
  }

  // Runs iteration number `count` of the loop.
  void run(const RnnGradStepArgs<T>& a, int64_t count, int thread, int64_t round) const {
    if constexpr (std::is_same_v<T, float>) {
      if (splits_h()) {
        return work.run(thread, round, split_h.tasks(),
                        [&](int64_t task) { split_h.run(a, count, task); });
      }
    }
    const UnitTasks units{s.hidden, rnn_functions<T>().grad_units(), 2, pool.size()};
    work.run(thread, round, units.count(),
             [&](int64_t task) { rnn_functions<T>().grad_step(a, units.at(task)); });
  }

  // Calls run(args, count) for each timestep, the last first, and once more if dh0 is wanted.
  template <typename F>
  void loop(int64_t d, Range samples, F&& run) const {
    const int64_t H = s.hidden, kept = gate_vectors(s.cell) * H;
    const auto time = [&](int64_t step) { return s.reverse(d) ? s.steps - 1 - step : step; };
    const T* saved = reserve != nullptr ? reserve + d * int64_t(sizes.gates()) : nullptr;
    RnnGradStepArgs<T> a{};
    a.cell = s.cell;
    a.hidden = H;
    a.samples = samples;
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
      a.dy = dy_panels + dy_slot(t) * int64_t(sizes.state());
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
      run(a, s.steps - 1 - step);
      a.after = a.gradients;
    }
    if (dh0 == nullptr) return;
    a.dh0 = out;
    run(a, s.steps);
  }

  void put_step(int64_t d, int64_t t) const {
    const int64_t H = s.hidden, D = s.directions(), V = gradient_vectors(s.cell);
    const T* from = gradients + t * sizes.step(wide());
    for (int64_t v = 0; v < V; ++v) {
      const T* vector = from + kernel_vector(s.cell, v) * H * kPanel<T>;
      batch_functions<T>().from_panels(vector, wide(), gate_gradients + ((t * D + d) * V + v) * H,
                                       s.steps * D * V * H, {0, s.batch}, {0, H});
    }
  }

  void put_states(int64_t d, Range samples) const {
    const int64_t H = s.hidden;
    const auto store = [&](const T* panels, T* to) {
      if (to == nullptr) return;
      batch_functions<T>().from_panels(panels, H, to + d * s.batch * H, H, samples, {0, H});
    };
    store(out, dh0);
    store(dc, dc0);
  }
};

Cover covers_backward(const RemainingOps& rest, const SplitChoice& choice) {
  const std::string reason = refuses(rest, &RnnGrad::dy);
  if (!reason.empty()) return Cover::no(reason);
  const RnnGrad& op = *rest.get<RnnGrad>(0);
  if (choice.large != nullptr && op.dy.dtype != DType::fp32) return Cover::no(kSplitsOnly);
  Cover cover = Cover::of(1);
  with_type(op.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    Backward<T> step{pool_of(rest), op.shape};
    step.choose(choice);
    Scratch scratch;
    step.allot(scratch);
    cover.workspace = scratch.bytes();
    if (op.reserve) {
      cover.reads.push_back({op.reserve.id, kReserveFormat, step.sizes.reserve_bytes()});
    }
  });
  return cover;
}

// Sets the op's own operands.
template <typename T>
void bind(const RnnGrad& op, const Binding& binding, Backward<T>& step) {
  const auto read = [&](const Value& v) { return binding.read(v).template as<const T>(); };
  const auto write = [&](const Value& v) { return binding.write(v).template as<T>(); };
  step.y = read(op.y);
  step.reserve = read(op.reserve);
  step.h0 = read(op.h0);
  step.c0 = read(op.c0);
  for (size_t d = 0; d < 2; ++d) step.w_hh[d] = read(op.weights[d].w_hh);
  step.lengths = binding.read(op.lengths).template as<const int32_t>();
  step.dy = read(op.dy);
  step.dhT = read(op.dhT);
  step.dcT = read(op.dcT);
  step.dh0 = write(op.dh0);
  step.dc0 = write(op.dc0);
}

std::unique_ptr<Step> prepare_backward(const Span& span, const Binding& binding,
                                       const SplitChoice& choice) {
  const RnnGrad& op = span.get<RnnGrad>(0);
  return with_type(op.dy.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    Backward<T> step{cpu_runtime(binding.runtime()).pool(), op.shape};
    step.choose(choice);
    Scratch scratch(binding.workspace());
    step.allot(scratch);
    bind(op, binding, step);
    step.gate_gradients = binding.write(op.gate_gradients).template as<T>();
    return make_step(step);
  });
}

// --- with the products that follow ---

Cover covers_layer(const RemainingOps& rest, const SplitChoice& choice) {
  Cover cover = covers_backward(rest, choice);
  if (cover.ops == 0) return cover;
  const RnnGrad& op = *rest.get<RnnGrad>(0);
  const auto* grad_x = rest.get<RnnGradX>(1);
  cover.ops = grad_x != nullptr ? 3 : 2;
  const auto* grad_w = rest.get<RnnGradW>(cover.ops - 1);
  const ValueId inside = op.gate_gradients.id;
  if (grad_w == nullptr || grad_w->gate_gradients.id != inside ||
      (grad_x != nullptr && grad_x->gate_gradients.id != inside)) {
    return Cover::no("the gradients of the layer's weights do not follow");
  }
  if (!rest.dead_after(op.gate_gradients, cover.ops)) {
    return Cover::no("something else reads the gate gradients");
  }
  cover.skips = {inside};
  with_type(op.dy.dtype, [&](auto zero) {
    if (choice.batch_parallel) {
      const std::string few = refuses_few_samples<decltype(zero)>(op.shape, pool_of(rest).size());
      if (!few.empty()) cover = Cover::no(few);
    }
    if (cover.ops == 0) return;
    Backward<decltype(zero)> step{pool_of(rest), op.shape};
    step.choose(choice);
    step.goes_on = true;
    Scratch scratch;
    step.allot(scratch);
    cover.workspace = scratch.bytes();
  });
  return cover;
}

std::unique_ptr<Step> prepare_layer(const Span& span, const Binding& binding,
                                    const SplitChoice& choice) {
  const RnnGrad& op = span.get<RnnGrad>(0);
  const RnnGradW& grad_w = span.get<RnnGradW>(span.size() - 1);
  return with_type(op.dy.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const auto read = [&](const Value& v) { return binding.read(v).template as<const T>(); };
    const auto write = [&](const Value& v) { return binding.write(v).template as<T>(); };
    Backward<T> step{cpu_runtime(binding.runtime()).pool(), op.shape};
    step.choose(choice);
    step.goes_on = true;
    Scratch scratch(binding.workspace());
    step.allot(scratch);
    bind(op, binding, step);
    GradOperands<T>& o = step.operands;
    o.x = read(grad_w.x);
    o.y = step.y;
    o.h0 = step.h0;
    o.lengths = step.lengths;
    for (size_t d = 0; d < 2; ++d) {
      o.dw_ih[d] = write(grad_w.grads[d].w_ih);
      o.dw_hh[d] = write(grad_w.grads[d].w_hh);
      o.db_ih[d] = write(grad_w.grads[d].b_ih);
      o.db_hh[d] = write(grad_w.grads[d].b_hh);
    }
    if (span.size() == 3) {
      const RnnGradX& grad_x = span.get<RnnGradX>(1);
      for (size_t d = 0; d < 2; ++d) o.w_ih[d] = read(grad_x.weights[d].w_ih);
      o.dx = write(grad_x.dx);
    }
    return make_step(step);
  });
}

}  // namespace

Kernel recurrent_grad_kernel(std::string name, const SplitChoice& choice) {
  return split_kernel(std::move(name), choice, covers_backward, prepare_backward);
}

Kernel recurrent_layer_grads_kernel(std::string name, const SplitChoice& choice) {
  return split_kernel(std::move(name), choice, covers_layer, prepare_layer);
}

}  // namespace ridgeline::cpu::simd
