#include "ridgeline/cpu/simd/panels_recurrent.h"
#include "ridgeline/cpu/simd/split_matrix.h"
#include "ridgeline/cpu/simd/split_rows.h"

// The large products after the way back through time, as in rows_recurrent_weights.cpp, by blocks
// of split_product.h.
namespace ridgeline::cpu::simd {
namespace {

int64_t row_width(const RnnShape& s) { return gradient_vectors(s.cell) * s.hidden; }

SplitMatrix take(Scratch& scratch, const SplitEngine* engine, int64_t sides, int64_t depth) {
  SplitMatrix matrix{engine, sides, depth, nullptr};
  matrix.blocks = scratch.take<uint16_t>(matrix.size());
  return matrix;
}

// dx^T = w_ih^T . gate gradients^T, the directions one after the other along the depth
struct SplitGradX {
  ThreadPool& pool;
  RnnShape s;
  const SplitEngine* engine;
  const float* gradients = nullptr;
  const float* w_ih[2] = {};
  float* dx = nullptr;
  float *dz = nullptr, *dx_panels = nullptr;  // panels of all rows (b, t)
  SplitMatrix w{}, gates{};

  int64_t deep() const { return split_blocks(s.gate_rows()); }
  void allot(Scratch& scratch) {
    dz = scratch.take<float>(panel_elements<float>(s.rows(), s.gate_rows()));
    dx_panels = scratch.take<float>(panel_elements<float>(s.rows(), s.in));
    w = take(scratch, engine, split_blocks(s.in), s.directions() * deep());
    gates = take(scratch, engine, split_blocks(s.rows()), w.depth);
  }

  void operator()() const {
    pool.run([this](int thread) {
      const Range panels = split(gates.sides, thread, pool.size());
      for (int64_t d = 0; d < s.directions(); ++d) {
        w.take_left_transposed(w_ih[d], s.in, s.in, s.gate_rows(),
                               split(w.sides, thread, pool.size()), d * deep(), deep());
        for (int64_t p = panels.begin; p < panels.end; ++p) take_gates(p, d);
      }
      pool.barrier();
      const Range rows{panels.begin * kSplitSide, std::min(panels.end * kSplitSide, s.rows())};
      if (rows.begin >= rows.end) return;
      engine->begin();
      const SplitProductArgs args{w,
                                  gates,
                                  dx_panels,
                                  kSplitSide * kSplitSide,
                                  s.in * kSplitSide,
                                  kSplitSide,
                                  s.in,
                                  gates.sides * kSplitSide};
      split_multiply(args, {0, w.sides}, panels);
      engine->end();
      batch_kernels<float>().from_panels(dx_panels, s.in, dx, s.in, rows, {0, s.in});
    });
  }

  void take_gates(int64_t panel, int64_t d) const {
    const Range rows{panel * kSplitSide, std::min((panel + 1) * kSplitSide, s.rows())};
    const int64_t wide = row_width(s), gate_rows = s.gate_rows();
    batch_kernels<float>().to_panels(gradients + d * wide, s.directions() * wide, gate_rows, dz,
                                     rows, {0, gate_rows});
    const float* from = dz + panel * gate_rows * kSplitSide;
    for (int64_t k = 0; k < deep(); ++k) {
      engine->split_right(from + k * kSplitSide * kSplitSide, kSplitSide,
                          gate_rows - k * kSplitSide, rows.end - rows.begin,
                          gates.at(panel, d * deep() + k));
    }
  }
};

// dw = gate gradients^T . x or h, summed over all steps of all items
struct SplitGradW {
  ThreadPool& pool;
  RnnShape s;
  const SplitEngine* engine;
  const float *x = nullptr, *y = nullptr, *h0 = nullptr, *gradients = nullptr;
  const int32_t* lengths = nullptr;
  float *dw_ih[2] = {}, *dw_hh[2] = {}, *db_ih[2] = {}, *db_hh[2] = {};
  float *dz = nullptr, *before = nullptr;
  SplitMatrix gates{}, inputs{}, states{};  // gates: sides (vector, block of units)

  int64_t units() const { return split_blocks(s.hidden); }
  void allot(Scratch& scratch) {
    const int64_t deep = split_blocks(s.rows());
    dz = scratch.take<float>(panel_elements<float>(s.rows(), row_width(s)));
    before = scratch.take<float>(size_t(s.rows() * s.hidden));
    gates = take(scratch, engine, gradient_vectors(s.cell) * units(), deep);
    inputs = take(scratch, engine, split_blocks(s.in), deep);
    states = take(scratch, engine, units(), deep);
  }

  void operator()() const {
    pool.run([this](int thread) {
      for (int64_t d = 0; d < s.directions(); ++d) direction(thread, d);
    });
  }

  void direction(int thread, int64_t d) const {
    const int threads = pool.size();
    const Range panels = split(gates.depth, thread, threads),
                items = split(s.batch, thread, threads);
    for (int64_t p = panels.begin; p < panels.end; ++p) take_gates(p, d);
    for (int64_t b = items.begin; b < items.end; ++b) {
      states_before(s, y, h0, lengths, b, d, before);
    }
    if (d == 0) {
      inputs.take_right(x, s.in, s.rows(), s.in, split(inputs.sides, thread, threads));
    }
    pool.barrier();
    states.take_right(before, s.hidden, s.rows(), s.hidden, split(units(), thread, threads));
    biases(d, split(s.gate_rows(), thread, threads, 16));
    pool.barrier();
    engine->begin();
    const Range sides = split(ridgeline::gates(s.cell) * units(), thread, threads);
    for (int64_t gate = 0; gate < ridgeline::gates(s.cell); ++gate) {
      const Range mine{std::max(sides.begin - gate * units(), int64_t{0}),
                       std::min(sides.end - gate * units(), units())};
      multiply(inputs, gate, s.in, dw_ih[d], mine);
      multiply(states, of_state(gate), s.hidden,
               dw_hh[d] + (gate - of_state(gate)) * s.hidden * s.hidden, mine);
    }
    engine->end();
    pool.barrier();
  }

  // gru: what of the third gate goes through w_hh is the fourth vector.
  int64_t of_state(int64_t gate) const { return s.cell == CellKind::gru && gate == 2 ? 3 : gate; }

  // Rows of `vector` of dw[.., in], for a range of blocks of units.
  void multiply(const SplitMatrix& right, int64_t vector, int64_t in, float* dw, Range mine) const {
    SplitMatrix left = gates;
    left.blocks = gates.at(vector * units(), 0);
    const SplitProductArgs args{
        left, right, dw + vector * s.hidden * in, kSplitSide * in, kSplitSide, in, s.hidden, in};
    split_multiply(args, mine, {0, right.sides});
  }

  void take_gates(int64_t panel, int64_t d) const {
    const Range rows{panel * kSplitSide, std::min((panel + 1) * kSplitSide, s.rows())};
    const int64_t wide = row_width(s), H = s.hidden;
    batch_kernels<float>().to_panels(gradients + d * wide, s.directions() * wide, wide, dz, rows,
                                     {0, wide});
    for (int64_t side = 0; side < gates.sides; ++side) {
      const int64_t unit = side % units() * kSplitSide;
      engine->split_left(dz + (panel * wide + side / units() * H + unit) * kSplitSide, kSplitSide,
                         H - unit, rows.end - rows.begin, gates.at(side, panel));
    }
  }

  // Sums over all rows (b, t), a range of the gates' rows.
  void biases(int64_t d, Range rows) const {
    if (db_ih[d] == nullptr) return;
    const int64_t wide = row_width(s), third = 2 * s.hidden;
    const auto sum = [&](float* db, int64_t offset, Range part) {
      if (part.begin >= part.end) return;
      std::fill(db + part.begin, db + part.end, 0.0f);
      for (int64_t r = 0; r < s.rows(); ++r) {
        const float* from = gradients + (r * s.directions() + d) * wide + offset;
        for (int64_t i = part.begin; i < part.end; ++i) db[i] += from[i];
      }
    };
    sum(db_ih[d], 0, rows);
    const bool apart = s.cell == CellKind::gru;
    sum(db_hh[d], 0, {rows.begin, apart ? std::min(rows.end, third) : rows.end});
    if (apart) sum(db_hh[d], s.hidden, {std::max(rows.begin, third), rows.end});
  }
};

template <typename Op, typename Work>
Cover covers(const Rest& rest, const SplitEngine* engine) {
  const std::string reason = refuses(rest, &Op::gate_gradients);
  if (!reason.empty()) return Cover::no(reason);
  const Op& op = *rest.get<Op>(0);
  if (op.gate_gradients.dtype != DType::fp32) return Cover::no(kSplitsOnly);
  Work work{pool_of(rest), op.shape, engine};
  Scratch scratch;
  work.allot(scratch);
  Cover cover = Cover::of(1);
  cover.workspace = scratch.bytes();
  return cover;
}

// A pass with its scratch allotted.
template <typename Work>
Work begin(const RnnShape& shape, const Binding& binding, const SplitEngine* engine) {
  Work work{cpu_runtime(binding.runtime()).pool(), shape, engine};
  Scratch scratch(binding.workspace());
  work.allot(scratch);
  return work;
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding,
                                     const SplitEngine* engine) {
  const RnnGradX& op = span.get<RnnGradX>(0);
  auto work = begin<SplitGradX>(op.shape, binding, engine);
  work.gradients = binding.read(op.gate_gradients).as<const float>();
  for (size_t d = 0; d < 2; ++d) work.w_ih[d] = binding.read(op.weights[d].w_ih).as<const float>();
  work.dx = binding.write(op.dx).as<float>();
  return make_step(work);
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding,
                                     const SplitEngine* engine) {
  const RnnGradW& op = span.get<RnnGradW>(0);
  auto work = begin<SplitGradW>(op.shape, binding, engine);
  work.x = binding.read(op.x).as<const float>();
  work.y = binding.read(op.y).as<const float>();
  work.h0 = binding.read(op.h0).as<const float>();
  work.gradients = binding.read(op.gate_gradients).as<const float>();
  work.lengths = binding.read(op.lengths).as<const int32_t>();
  for (size_t d = 0; d < 2; ++d) {
    work.dw_ih[d] = binding.write(op.grads[d].w_ih).as<float>();
    work.dw_hh[d] = binding.write(op.grads[d].w_hh).as<float>();
    work.db_ih[d] = binding.write(op.grads[d].b_ih).as<float>();
    work.db_hh[d] = binding.write(op.grads[d].b_hh).as<float>();
  }
  return make_step(work);
}

}  // namespace

Table recurrent_weight_split_rows(const SplitEngine& engine) {
  const auto row = [&engine](const char* what, auto covers, auto prepare) {
    Impl impl;
    impl.name = fmt::format("cpu.{}.{}", what, engine.name);
    impl.covers = [&engine, covers](const Rest& rest) { return covers(rest, &engine); };
    impl.prepare = [&engine, prepare](const Span& span, const Binding& binding) {
      return prepare(span, binding, &engine);
    };
    return impl;
  };
  return {row("rnn_grad_x", covers<RnnGradX, SplitGradX>, prepare_grad_x),
          row("rnn_grad_w", covers<RnnGradW, SplitGradW>, prepare_grad_w)};
}

}  // namespace ridgeline::cpu::simd
