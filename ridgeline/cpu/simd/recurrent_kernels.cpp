#include "ridgeline/cpu/simd/packed_product.h"
#include "ridgeline/cpu/simd/split_kernels.h"
#include "ridgeline/cpu/simd/split_recurrent.h"

// A recurrent layer: one large product of the input with all gates, then for each timestep the
// product with the recurrent weights, packed once, with the gates' functions as its epilogue. The
// threads divide the hidden units into tasks and meet at one barrier per timestep.
namespace ridgeline::cpu::simd {
namespace {

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
  T* packed_ih = nullptr;
  WorkStealing work{};
  T *bias = nullptr, *length_panels = nullptr;
  // fp32: products by blocks instead of packed weights, if these have engines.
  SplitInputs split_x{};
  SplitSteps split_h{};

  void choose(const SplitChoice& choice) {
    split_x = {choice.large, s};
    split_h = {choice.small, s};
    batch_parallel = choice.batch_parallel;
  }
  bool splits_x() const { return std::is_same_v<T, float> && split_x.engine != nullptr; }
  bool splits_h() const { return std::is_same_v<T, float> && split_h.engine != nullptr; }

  // Timesteps whose inputs are multiplied at once. Few if batch-parallel: the products then stay in
  // the thread's second-level cache until the timesteps use them.
  int64_t together() const {
    if (!batch_parallel) return s.steps;
    constexpr int64_t kBytes = 128 << 10, kMost = 8;
    const int64_t share = (s.batch + pool.size() - 1) / pool.size();
    const int64_t fit = kBytes / int64_t(sizeof(T)) / (s.gate_rows() * share);
    return std::clamp<int64_t>(fit, 1, std::min(kMost, s.steps));
  }
  int64_t states() const { return batch_parallel ? 2 : s.steps + 1; }  // in h_all

  void allot(Scratch& scratch, bool own_gates) {
    if (own_gates) gates = scratch.take<T>(size_t(together() * sizes.step(wide())));
    x_panels = scratch.take<T>(size_t(together() * sizes.step(s.in)));
    h_all = scratch.take<T>(size_t(states()) * sizes.state());
    c_two = scratch.take<T>(2 * sizes.state());
    if (splits_x()) {
      split_x.allot(scratch);
    } else {
      packed_ih = scratch.take<T>(packed_elements<T>(s.gate_rows(), s.in));
    }
    if (splits_h()) {
      split_h.allot(scratch);
    } else {
      packed = scratch.take<T>(sizes.packed(rnn_functions<T>().units(s.cell)));
    }
    work = WorkStealing(scratch.take<int64_t>(WorkStealing::counters(pool.size())), pool.size());
    bias = scratch.take<T>(size_t(s.gate_rows()));
    length_panels = scratch.take<T>(size_t(sizes.step(1)));
  }

  void operator()() const {
    const int64_t own = saves ? int64_t(sizes.gates()) : 0;
    work.clear();
    load_lengths(lengths, s, length_panels);
    pool.run([&](int thread) {
      int64_t round = 0;
      for (int64_t d = 0; d < s.directions(); ++d) {
        batch_parallel ? direction_of_samples(thread, d, gates + d * own, round)
                       : direction(thread, d, gates + d * own, round);
      }
    });
  }
  bool saves = false, batch_parallel = false;

 private:
  // Batch-parallel. The only barrier is after packing the weights: a sample's timestep needs
  // nothing else from other threads.
  void direction_of_samples(int thread, int64_t d, T* all, int64_t& round) const {
    if (thread == 0) start(d);
    work.run(thread, round++, kPackParts, [&](int64_t task) { pack(int(task), d); });
    pool.barrier();
    const Range samples = samples_of<T>(s, thread, pool.size());
    for (int64_t begin = 0; begin < s.steps; begin += together()) {
      const Range steps{begin, std::min(begin + together(), s.steps)};
      const int64_t first = s.reverse(d) ? s.steps - steps.end : begin, count = steps.end - begin;
      for (int64_t i = 0; i < count; ++i) {
        to_step(x + (first + i) * s.in, s.steps * s.in, samples, s.in,
                x_panels + i * sizes.step(s.in));
      }
      T* of_x = all + (saves ? first * sizes.step(wide()) : 0);
      multiply_samples(inputs_product(of_x), sizes, samples, count);
      for (int64_t step = steps.begin; step < steps.end; ++step) {
        const int64_t t = s.reverse(d) ? s.steps - 1 - step : step;
        RnnStepArgs<T> a = step_args(d, step, of_x + (t - first) * sizes.step(wide()));
        a.samples = samples;
        rnn_functions<T>().step(a, {0, s.hidden});
        put_step(d, step, samples);
      }
    }
    put_states(d, samples);
    pool.barrier();  // the next direction reuses the packed weights' memory
  }

  void direction(int thread, int64_t d, T* all, int64_t& round) const {
    if (thread == 0) start(d);
    work.run(thread, round++, kPackParts + (d == 0 ? s.steps : 0), [&](int64_t task) {
      task < kPackParts ? pack(int(task), d) : take_x(task - kPackParts);
    });
    pool.barrier();
    multiply_inputs(thread, all, round++);
    pool.barrier();
    if (splits_h()) split_h.engine->begin();
    for (int64_t step = 0; step < s.steps; ++step) {
      const int64_t t = s.reverse(d) ? s.steps - 1 - step : step;
      run(step_args(d, step, all + t * sizes.step(wide())), step, thread, round++);
      pool.barrier();
    }
    if (splits_h()) split_h.engine->end();
    work.run(thread, round++, s.steps, [&](int64_t step) { put_step(d, step, {0, s.batch}); });
    if (thread == 0) put_states(d, {0, s.batch});
    pool.barrier();
  }

  void take_x(int64_t t) const {
    to_step(x + t * s.in, s.steps * s.in, {0, s.batch}, s.in, x_panels + t * sizes.step(s.in));
    if constexpr (std::is_same_v<T, float>) {
      if (splits_x()) split_x.take_x(x_panels, t);
    }
  }

  // Packs one of kPackParts parts of the weights.
  void pack(int part, int64_t d) const {
    if constexpr (std::is_same_v<T, float>) {
      if (splits_x()) split_x.pack(w_ih[d], part, kPackParts);
      if (splits_h()) split_h.pack(w_hh[d], part, kPackParts);
    }
    if (!splits_x()) {
      packed_functions<T>().pack(w_ih[d], s.in, 1, s.gate_rows(), s.in, packed_ih,
                                 split(packed_tiles<T>(s.gate_rows()), part, kPackParts));
    }
    if (!splits_h()) {
      const int64_t tile = rnn_functions<T>().units(s.cell);
      rnn_functions<T>().pack(s.cell, s.hidden, w_hh[d], packed,
                              split((s.hidden + tile - 1) / tile, part, kPackParts));
    }
  }

  void multiply_inputs(int thread, T* all, int64_t round) const {
    if constexpr (std::is_same_v<T, float>) {
      if (splits_x()) {
        split_x.engine->begin();
        const SplitProductArgs of_x = split_x.product(bias, all, wide());
        work.run(thread, round, split_tasks(of_x),
                 [&](int64_t task) { split_multiply_task(of_x, task); });
        return split_x.engine->end();
      }
    }
    multiply_stealing(work, thread, round, inputs_product(all), s.steps * sizes.panels);
  }

  PackedProductArgs<T> inputs_product(T* to) const {
    return {packed_ih,          x_panels,      to,   s.in * kPanel<T>,
            wide() * kPanel<T>, s.gate_rows(), s.in, bias};
  }

  void run(const RnnStepArgs<T>& a, int64_t step, int thread, int64_t round) const {
    if constexpr (std::is_same_v<T, float>) {
      if (splits_h()) {
        return work.run(thread, round, split_h.tasks(),
                        [&](int64_t task) { split_h.run(a, step, task); });
      }
    }
    const RnnFunctions<T>& functions = rnn_functions<T>();
    const UnitTasks units{s.hidden, functions.units(s.cell), 4, pool.size()};
    work.run(thread, round, units.count(),
             [&](int64_t task) { functions.step(a, units.at(task)); });
  }

  int64_t wide() const { return gate_vectors(s.cell) * s.hidden; }

  RnnStepArgs<T> step_args(int64_t d, int64_t step, T* of_step) const {
    const int64_t t = s.reverse(d) ? s.steps - 1 - step : step, state = int64_t(sizes.state());
    RnnStepArgs<T> a{};
    a.cell = s.cell;
    a.hidden = s.hidden;
    a.samples = {0, s.batch};
    a.w = packed;
    if (s.cell == CellKind::gru && b_hh[d] != nullptr) a.bias_hn = b_hh[d] + 2 * s.hidden;
    a.lengths = lengths != nullptr ? length_panels : nullptr;
    a.h = h_all + step % states() * state;
    a.h_next = h_all + (step + 1) % states() * state;
    a.c = c_two + step % 2 * state;
    a.c_next = c_two + (step + 1) % 2 * state;
    a.gates = of_step;
    a.keeps = saves;
    a.time = T(t);
    return a;
  }

  void start(int64_t d) const {
    load_state(h0, s, d, h_all);
    load_state(c0, s, d, c_two);
    if constexpr (std::is_same_v<T, float>) {
      if (splits_h()) split_h.start(h_all);
    }
    for (int64_t row = 0; row < s.gate_rows(); ++row) {
      const bool apart = s.cell == CellKind::gru && row >= 2 * s.hidden;
      bias[row] = b_ih[d] != nullptr ? b_ih[d][row] + (apart ? T(0) : b_hh[d][row]) : T(0);
    }
  }

  void put_step(int64_t d, int64_t step, Range samples) const {
    const int64_t H = s.hidden, D = s.directions();
    const int64_t t = s.reverse(d) ? s.steps - 1 - step : step;
    T* to = y + (t * D + d) * H;
    batch_functions<T>().from_panels(h_all + (step + 1) % states() * int64_t(sizes.state()), H, to,
                                     s.steps * D * H, samples, {0, H});
    for (int64_t b = samples.begin; lengths != nullptr && b < samples.end; ++b) {
      if (t >= lengths[b]) std::fill_n(to + b * s.steps * D * H, H, T(0));
    }
  }

  void put_states(int64_t d, Range samples) const {
    const int64_t H = s.hidden;
    const auto store = [&](const T* panels, T* to) {
      if (to == nullptr) return;
      batch_functions<T>().from_panels(panels, H, to + d * s.batch * H, H, samples, {0, H});
    };
    store(h_all + s.steps % states() * int64_t(sizes.state()), hT);
    store(c_two + s.steps % 2 * int64_t(sizes.state()), cT);
  }
};

Cover covers_forward(const RemainingOps& rest, const SplitChoice& choice) {
  const std::string reason = refuses(rest, &Rnn::y);
  if (!reason.empty()) return Cover::no(reason);
  const Rnn& op = *rest.get<Rnn>(0);
  if (choice.large != nullptr && op.y.dtype != DType::fp32) return Cover::no(kSplitsOnly);
  Cover cover = Cover::of(1);
  with_type(op.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (choice.batch_parallel) {
      const std::string few = refuses_few_samples<T>(op.shape, pool_of(rest).size());
      if (!few.empty()) cover = Cover::no(few);
    }
    if (cover.ops == 0) return;
    Forward<T> step{pool_of(rest), op.shape};
    step.choose(choice);
    Scratch scratch;
    step.allot(scratch, !op.reserve);
    cover.workspace = scratch.bytes();
    if (op.reserve) {
      cover.writes.push_back({op.reserve.id, kReserveFormat, step.sizes.reserve_bytes()});
    }
  });
  return cover;
}

std::unique_ptr<Step> prepare_forward(const Span& span, const Binding& binding,
                                      const SplitChoice& choice) {
  const Rnn& op = span.get<Rnn>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const auto read = [&](const Value& v) { return binding.read(v).template as<const T>(); };
    const auto write = [&](const Value& v) { return binding.write(v).template as<T>(); };
    Forward<T> step{cpu_runtime(binding.runtime()).pool(), op.shape};
    step.choose(choice);
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
      const BatchFunctions<T>& batch = batch_functions<T>();
      if (to_plain) {
        batch.from_panels(panels + i * step, wide, row, steps * D * wide, {0, B}, {0, wide});
      } else {
        batch.to_panels(row, steps * D * wide, wide, panels + i * step, {0, B}, {0, wide});
      }
    }
  });
}

Kernel reserve_kernel(std::string name, bool to_plain) {
  Kernel kernel;
  kernel.name = std::move(name);
  kernel.converts = [to_plain](const Value& value, const Format& from, const Format& to) {
    return value.shape.rank() == 5 && takes(value.dtype) &&
           from == (to_plain ? kReserveFormat : "") && to == (to_plain ? "" : kReserveFormat);
  };
  kernel.prepare = [to_plain](const Span&, const Binding& binding) {
    const Tensor from = binding.read({}), to = binding.write({});
    ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
    return make_step([=, &pool] {
      with_type(from.dtype, [&](auto zero) {
        using T = decltype(zero);
        convert_reserve<T>(pool, to_plain ? to : from, (to_plain ? from : to).as<T>(), to_plain);
      });
    });
  };
  return kernel;
}

Kernel forward_kernel(std::string name, const SplitChoice& choice) {
  return split_kernel(std::move(name), choice, covers_forward, prepare_forward);
}

}  // namespace

KernelTable recurrent_split_kernels(const SplitEngine& engine) {
  const SplitChoice all{&engine, &engine}, large{&engine, nullptr};
  const auto named = [&](const char* name) { return fmt::format("cpu.{}.{}", name, engine.name); };
  return computing_in(
      kFloatOnly,
      {forward_kernel(named("rnn"), all), forward_kernel(named("rnn") + "_large", large),
       recurrent_layer_grads_kernel(named("rnn_grads"), all),
       recurrent_layer_grads_kernel(named("rnn_grads") + "_large", large),
       recurrent_grad_kernel(named("rnn_grad"), all)});
}

KernelTable recurrent_kernels() {
  const SplitChoice batch_parallel{nullptr, nullptr, true};
  KernelTable kernels{forward_kernel("cpu.rnn.simd", {}),
                      forward_kernel("cpu.rnn.batch_parallel", batch_parallel),
                      recurrent_layer_grads_kernel("cpu.rnn_grads.simd", {}),
                      recurrent_layer_grads_kernel("cpu.rnn_grads.batch_parallel", batch_parallel),
                      recurrent_grad_kernel("cpu.rnn_grad.simd", {}),
                      reserve_kernel("cpu.rnn_reserve.to_simd", false),
                      reserve_kernel("cpu.rnn_reserve.from_simd", true)};
  for (Kernel& kernel : recurrent_weight_kernels()) kernels.push_back(std::move(kernel));
  return computing_in(kFloatAndDouble, std::move(kernels));
}

}  // namespace ridgeline::cpu::simd
