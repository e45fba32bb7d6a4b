#include "ridgeline/cpu/simd/panels_recurrent.h"

// The products after backpropagation through time, of the gate gradients of all timesteps, with
// rows (b, t) in the program's layout.
namespace ridgeline::cpu::simd {
namespace {

// Vectors of a row of the gate gradients, in elements.
int64_t row_width(const RnnShape& s) { return gradient_vectors(s.cell) * s.hidden; }

// --- dx = gate gradients . w_ih ---

template <typename T>
struct GradX {
  ThreadPool& pool;
  RnnShape s;
  const T* gradients = nullptr;
  const T* w_ih[2] = {};
  T* dx = nullptr;
  T *dz = nullptr, *parts = nullptr;

  int64_t part_size() const { return int64_t(panel_elements<T>(s.rows(), s.in)); }
  void allot(Scratch& scratch) {
    dz = scratch.take<T>(panel_elements<T>(s.rows(), s.gate_rows()));
    parts = scratch.take<T>(size_t(s.directions() * part_size()));
  }

  void operator()() const {
    pool.run([this](int thread) {
      const BatchFunctions<T>& batch = batch_functions<T>();
      const int64_t D = s.directions();
      const Range mine = split(s.rows(), thread, pool.size(), kPanel<T>);
      if (mine.begin >= mine.end) return;
      for (int64_t d = 0; d < D; ++d) {
        batch.to_panels(gradients + d * row_width(s), D * row_width(s), s.gate_rows(), dz, mine,
                        {0, s.gate_rows()});
        const InputGradArgs<T> args{w_ih[d],
                                    dz,
                                    parts + d * part_size(),
                                    nullptr,
                                    s.in,
                                    s.gate_rows(),
                                    ActivationKind::none,
                                    {0, s.gate_rows()}};
        gemm_functions<T>().input_grad(args, {0, s.in}, mine);
      }
      if (D > 1) {
        batch.combine({parts, D, part_size(), parts, parts, s.in, ActivationKind::none}, {0, s.in},
                      mine);
      }
      batch.from_panels(parts, s.in, dx, s.in, mine, {0, s.in});
    });
  }
};

// --- dw_ih, dw_hh and the biases ---

template <typename T>
struct GradW {
  ThreadPool& pool;
  RnnShape s;
  const T *x = nullptr, *y = nullptr, *h0 = nullptr, *gradients = nullptr;
  const int32_t* lengths = nullptr;
  T *dw_ih[2] = {}, *dw_hh[2] = {}, *db_ih[2] = {}, *db_hh[2] = {};
  bool ragged = false;  // samples have lengths: x without its padding
  T *dz = nullptr, *before = nullptr, *inputs = nullptr;

  void allot(Scratch& scratch) {
    dz = scratch.take<T>(panel_elements<T>(s.rows(), row_width(s)));
    before = scratch.take<T>(size_t(s.rows() * s.hidden));
    inputs = ragged ? scratch.take<T>(size_t(s.rows() * s.in)) : nullptr;
  }

  void operator()() const {
    pool.run([this](int thread) {
      for (int64_t d = 0; d < s.directions(); ++d) direction(thread, d);
    });
  }

  void direction(int thread, int64_t d) const {
    const int64_t H = s.hidden, wide = row_width(s);
    const Range mine = split(s.rows(), thread, pool.size(), kPanel<T>);
    batch_functions<T>().to_panels(gradients + d * wide, s.directions() * wide, wide, dz, mine,
                                   {0, wide});
    const Range samples = split(s.batch, thread, pool.size());
    for (int64_t r = samples.begin * s.steps; r < samples.end * s.steps; ++r) {
      const int64_t b = r / s.steps, t = r % s.steps;
      copy_or_clear(state_before(s, y, h0, lengths, b, d, t), H, before + r * H);
      if (ragged && d == 0) copy_or_clear(input_at(s, x, lengths, b, t), s.in, inputs + r * s.in);
    }
    pool.barrier();
    WeightGradArgs<T> args{};
    args.dz = dz;
    args.n = s.rows();
    args.out = wide;
    args.x = ragged ? inputs : x;
    args.ldx = args.in = s.in;
    args.dw = dw_ih[d];
    args.db = db_ih[d];
    const Range rows = split(s.gate_rows(), thread, pool.size(), 8);
    gemm_functions<T>().weight_grad(args, rows, {0, s.in});
    args.x = before;
    args.ldx = args.in = H;
    args.dw = dw_hh[d];
    args.db = db_hh[d];
    // gru: the third gate's rows use the fourth vector.
    const int64_t plain = s.cell == CellKind::gru ? 2 * H : s.gate_rows();
    gemm_functions<T>().weight_grad(args, {rows.begin, std::min(rows.end, plain)}, {0, H});
    args.dz = dz + H * kPanel<T>;
    gemm_functions<T>().weight_grad(args, {std::max(rows.begin, plain), rows.end}, {0, H});
    pool.barrier();
  }
};

template <typename Op, template <typename> class Work>
Cover covers_recurrent_weights(const RemainingOps& rest) {
  const std::string reason = refuses(rest, &Op::gate_gradients);
  if (!reason.empty()) return Cover::no(reason);
  const Op& op = *rest.get<Op>(0);
  Cover cover = Cover::of(1);
  with_type(op.gate_gradients.dtype, [&](auto zero) {
    Work<decltype(zero)> work{pool_of(rest), op.shape};
    if constexpr (requires { op.lengths; }) work.ragged = bool(op.lengths);
    Scratch scratch;
    work.allot(scratch);
    cover.workspace = scratch.bytes();
  });
  return cover;
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding) {
  const RnnGradX& op = span.get<RnnGradX>(0);
  return with_type(op.dx.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    GradX<T> work{cpu_runtime(binding.runtime()).pool(), op.shape};
    Scratch scratch(binding.workspace());
    work.allot(scratch);
    work.gradients = binding.read(op.gate_gradients).template as<const T>();
    for (size_t d = 0; d < 2; ++d) {
      work.w_ih[d] = binding.read(op.weights[d].w_ih).template as<const T>();
    }
    work.dx = binding.write(op.dx).template as<T>();
    return make_step(work);
  });
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const RnnGradW& op = span.get<RnnGradW>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    GradW<T> work{cpu_runtime(binding.runtime()).pool(), op.shape};
    work.ragged = bool(op.lengths);
    Scratch scratch(binding.workspace());
    work.allot(scratch);
    work.x = binding.read(op.x).template as<const T>();
    work.y = binding.read(op.y).template as<const T>();
    work.h0 = binding.read(op.h0).template as<const T>();
    work.gradients = binding.read(op.gate_gradients).template as<const T>();
    work.lengths = binding.read(op.lengths).template as<const int32_t>();
    for (size_t d = 0; d < 2; ++d) {
      work.dw_ih[d] = binding.write(op.grads[d].w_ih).template as<T>();
      work.dw_hh[d] = binding.write(op.grads[d].w_hh).template as<T>();
      work.db_ih[d] = binding.write(op.grads[d].b_ih).template as<T>();
      work.db_hh[d] = binding.write(op.grads[d].b_hh).template as<T>();
    }
    return make_step(work);
  });
}

}  // namespace

KernelTable recurrent_weight_kernels() {
  Kernel grad_x, grad_w;
  grad_x.name = "cpu.rnn_grad_x.simd";
  grad_x.covers = covers_recurrent_weights<RnnGradX, GradX>;
  grad_x.prepare = prepare_grad_x;
  grad_w.name = "cpu.rnn_grad_w.simd";
  grad_w.covers = covers_recurrent_weights<RnnGradW, GradW>;
  grad_w.prepare = prepare_grad_w;
  return computing_in(kFloatAndDouble, {grad_x, grad_w});
}

}  // namespace ridgeline::cpu::simd
