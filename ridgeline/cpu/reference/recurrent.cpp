#include <array>

#include "ridgeline/cpu/reference/kernel.h"
#include "ridgeline/cpu/reference/recurrent-inl.h"
#include "ridgeline/cpu/runtime.h"

namespace ridgeline::cpu {
namespace {

using Sample = RnnSample<Doubled>;

// The operands of one direction.
struct DirectionDoubles {
  Doubles w_ih, w_hh, b_ih, b_hh;

  DirectionDoubles() = default;
  DirectionDoubles(const RnnWeights& w, ReferenceBinding& binding, bool writes = false)
      : w_ih(get(w.w_ih, binding, writes)),
        w_hh(get(w.w_hh, binding, writes)),
        b_ih(get(w.b_ih, binding, writes)),
        b_hh(get(w.b_hh, binding, writes)) {}

  template <typename F>
  void each(F f) {
    for (Doubles* one : {&w_ih, &w_hh, &b_ih, &b_hh}) f(*one);
  }

 private:
  static Doubles get(const Value& value, ReferenceBinding& binding, bool writes) {
    return writes ? binding.writes(value) : binding.reads(value);
  }
};

double* pointer(Doubles& values) { return values ? values.data() : nullptr; }

// Calls f(sample) for every sample and direction, spread over the pool.
template <typename F>
void for_each_sample(ThreadPool& pool, const RnnShape& s, const RnnPointers<double>& p, F f) {
  pool.run([&](int thread) {
    const Range part = split(s.batch * s.directions(), thread, pool.size());
    for (int64_t i = part.begin; i < part.end; ++i) {
      f(Sample(s, p, i % s.batch, i / s.batch));
    }
  });
}

// The operands that several of the ops share, loaded for a run.
struct Operands {
  RnnShape shape;
  ThreadPool& pool;
  Tensor lengths;
  std::array<DirectionDoubles, 2> weights;
  Doubles x, h0, c0, y, hT, cT, reserve, dy, dhT, dcT, gate_gradients, dh0, dc0;

  Operands(const Rnn& op, ReferenceBinding& b)
      : shape(op.shape),
        pool(cpu_runtime(b.runtime()).pool()),
        lengths(b.read(op.lengths)),
        weights{{{op.weights[0], b}, {op.weights[1], b}}},
        x(b.reads(op.x)),
        h0(b.reads(op.h0)),
        c0(b.reads(op.c0)),
        y(b.writes(op.y)),
        hT(b.writes(op.hT)),
        cT(b.writes(op.cT)),
        reserve(b.writes(op.reserve)) {}

  Operands(const RnnGrad& op, ReferenceBinding& b)
      : shape(op.shape),
        pool(cpu_runtime(b.runtime()).pool()),
        lengths(b.read(op.lengths)),
        h0(b.reads(op.h0)),
        c0(b.reads(op.c0)),
        y(b.reads(op.y)),
        reserve(b.reads(op.reserve)),
        dy(b.reads(op.dy)),
        dhT(b.reads(op.dhT)),
        dcT(b.reads(op.dcT)),
        gate_gradients(b.writes(op.gate_gradients)),
        dh0(b.writes(op.dh0)),
        dc0(b.writes(op.dc0)) {
    for (size_t d = 0; d < weights.size(); ++d) weights[d].w_hh = b.reads(op.weights[d].w_hh);
  }
  RnnPointers<double> pointers() {
    RnnPointers<double> p;
    for (size_t d = 0; d < weights.size(); ++d) {
      p.w_ih[d] = pointer(weights[d].w_ih);
      p.w_hh[d] = pointer(weights[d].w_hh);
      p.b_ih[d] = pointer(weights[d].b_ih);
      p.b_hh[d] = pointer(weights[d].b_hh);
    }
    p.lengths = lengths.as<const int32_t>();
    p.x = pointer(x);
    p.h0 = pointer(h0);
    p.c0 = pointer(c0);
    p.y = pointer(y);
    p.hT = pointer(hT);
    p.cT = pointer(cT);
    p.reserve = pointer(reserve);
    p.dy = pointer(dy);
    p.dhT = pointer(dhT);
    p.dcT = pointer(dcT);
    p.gate_gradients = pointer(gate_gradients);
    p.dh0 = pointer(dh0);
    p.dc0 = pointer(dc0);
    return p;
  }

  void load_weights() {
    for (DirectionDoubles& each : weights) {
      each.each([](Doubles& values) { values.load(); });
    }
  }
};

void load(std::initializer_list<Doubles*> all) {
  for (Doubles* each : all) each->load();
}
void store(std::initializer_list<Doubles*> all) {
  for (Doubles* each : all) each->store();
}

std::unique_ptr<Step> prepare_rnn(const Rnn& op, ReferenceBinding& binding) {
  return make_step([o = Operands(op, binding)]() mutable {
    o.load_weights();
    load({&o.x, &o.h0, &o.c0});
    const RnnPointers<double> p = o.pointers();
    for_each_sample(o.pool, o.shape, p, [](Sample sample) { sample.forward(); });
    store({&o.y, &o.hT, &o.cT, &o.reserve});
  });
}

std::unique_ptr<Step> prepare_rnn_grad(const RnnGrad& op, ReferenceBinding& binding) {
  return make_step([o = Operands(op, binding)]() mutable {
    o.load_weights();
    load({&o.y, &o.reserve, &o.h0, &o.c0, &o.dy, &o.dhT, &o.dcT});
    const RnnPointers<double> p = o.pointers();
    for_each_sample(o.pool, o.shape, p, [](Sample sample) { sample.backward(); });
    store({&o.gate_gradients, &o.dh0, &o.dc0});
  });
}

// dx[r, i] = sum over directions and gate rows of gradient[r, d, row] w_ih[d][row, i]
std::unique_ptr<Step> prepare_rnn_grad_x(const RnnGradX& op, ReferenceBinding& binding) {
  return make_step(
      [s = op.shape, &pool = cpu_runtime(binding.runtime()).pool(),
       g = binding.reads(op.gate_gradients),
       w = std::array{binding.reads(op.weights[0].w_ih), binding.reads(op.weights[1].w_ih)},
       dx = binding.writes(op.dx)]() mutable {
        g.load();
        for (Doubles& each : w) each.load();
        const int64_t D = s.directions(), wide = gradient_vectors(s.cell) * s.hidden;
        pool.run([&](int thread) {
          const Range part = split(s.rows(), thread, pool.size());
          for (int64_t r = part.begin; r < part.end; ++r) {
            std::fill_n(dx.data() + r * s.in, s.in, 0.0);
            for (int64_t d = 0; d < D; ++d) {
              for (int64_t row = 0; row < s.gate_rows(); ++row) {
                const double gradient = g[(r * D + d) * wide + row];
                for (int64_t i = 0; i < s.in; ++i) {
                  dx[r * s.in + i] += gradient * w[size_t(d)][row * s.in + i];
                }
              }
            }
          }
        });
        dx.store();
      });
}

// Computes the gradients of all weights of one gate row.
void row_gradients(const RnnShape& s, const RnnPointers<double>& p, const Doubles& g, int64_t d,
                   int64_t row, DirectionDoubles& grads) {
  const int64_t H = s.hidden, wide = gradient_vectors(s.cell) * H;
  const bool gru_n = s.cell == CellKind::gru && row >= 2 * H;
  std::fill_n(grads.w_ih.data() + row * s.in, s.in, 0.0);
  std::fill_n(grads.w_hh.data() + row * H, H, 0.0);
  double db_ih = 0, db_hh = 0;
  for (int64_t b = 0; b < s.batch; ++b) {
    const Sample sample(s, p, b, d);
    for (int64_t step = 0; step < sample.path().length; ++step) {
      const int64_t t = sample.path().time(step), r = b * s.steps + t;
      const double gx = g[(r * s.directions() + d) * wide + row];
      const double gh = gru_n ? g[(r * s.directions() + d) * wide + row + H] : gx;
      for (int64_t i = 0; i < s.in; ++i) grads.w_ih[row * s.in + i] += gx * p.x[r * s.in + i];
      for (int64_t k = 0; k < H; ++k) grads.w_hh[row * H + k] += gh * sample.before(step, k);
      db_ih += gx;
      db_hh += gh;
    }
  }
  if (grads.b_ih) grads.b_ih[row] = db_ih;
  if (grads.b_hh) grads.b_hh[row] = db_hh;
}

std::unique_ptr<Step> prepare_rnn_grad_w(const RnnGradW& op, ReferenceBinding& binding) {
  return make_step([s = op.shape, &pool = cpu_runtime(binding.runtime()).pool(),
                    lengths = binding.read(op.lengths), x = binding.reads(op.x),
                    y = binding.reads(op.y), h0 = binding.reads(op.h0),
                    g = binding.reads(op.gate_gradients),
                    grads = std::array{DirectionDoubles(op.grads[0], binding, true),
                                       DirectionDoubles(op.grads[1], binding, true)}]() mutable {
    load({&x, &y, &h0, &g});
    RnnPointers<double> p;
    p.x = x.data();
    p.y = y.data();
    p.h0 = pointer(h0);
    p.lengths = lengths.as<const int32_t>();
    pool.run([&](int thread) {
      const Range part = split(s.directions() * s.gate_rows(), thread, pool.size());
      for (int64_t i = part.begin; i < part.end; ++i) {
        const int64_t d = i / s.gate_rows();
        row_gradients(s, p, g, d, i % s.gate_rows(), grads[size_t(d)]);
      }
    });
    for (DirectionDoubles& each : grads) {
      each.each([](Doubles& values) { values.store(); });
    }
  });
}

}  // namespace

KernelTable recurrent_reference() {
  return {reference_kernel(prepare_rnn), reference_kernel(prepare_rnn_grad),
          reference_kernel(prepare_rnn_grad_x), reference_kernel(prepare_rnn_grad_w)};
}

}  // namespace ridgeline::cpu
