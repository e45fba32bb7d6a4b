#include "ridgeline/cpu/simd/net_infer_step.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <utility>

#include "ridgeline/cpu/simd/gemv.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/weight_memory.h"

namespace ridgeline::cpu::simd {
namespace {

// Timesteps whose inputs are multiplied in advance: their sums stay in the second-level cache, and
// their weights are read a sixteenth as often.
constexpr int64_t kAhead = 16;

// Requests what another thread has written, all lines at once: fetched one by one as a product
// reaches them, they would take longer than the product.
void prefetch(const float* x, int64_t count) {
  constexpr int64_t kLine = 16;  // floats
  for (int64_t i = 0; i < count; i += kLine) __builtin_prefetch(x + i);
}

// Returns the floats of the sums of these timesteps; 0: a single timestep multiplies its input
// itself.
int64_t ahead_floats(const RnnShape& s) {
  if (s.steps < 2 || gates(s.cell) == 1) return 0;
  return s.batch * std::min(kAhead, s.steps) * gemv_functions().packed_ahead(s.cell, s.hidden);
}

class NetInferStep final : public Step {
 public:
  NetInferStep(const Span& span, const Binding& binding, NetTeam team)
      : span_(span),
        binding_(&binding),
        pool_(cpu_runtime(binding.runtime()).pool()),
        threads_(team == NetTeam::caller ? 1 : pool_.size()),
        weights_(all_floats(span)),
        next_(weights_.data()) {
    scratch_ = binding.workspace();
    for (size_t i = 0; i < span.size();) i += add(i);
    for (size_t i = 0; i < span.size(); ++i) floats_read_ += floats_read(span.op(i));
    binding_ = nullptr;
    const auto shared = [](const Stage& stage) { return stage.shared; };
    begin_ = size_t(std::ranges::find_if(stages_, shared) - stages_.begin());
    end_ = stages_.size();
    while (end_ > begin_ && !stages_[end_ - 1].shared) --end_;
  }

  // The stages before the first and after the last that threads share need no other thread.
  void run() override {
    const auto alone = [this](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) stages_[i].run(0, 1);
    };
    alone(0, begin_);
    if (begin_ < end_) {
      others_sleep() ? alone(begin_, end_) : run_shared();
      last_end_ = Clock::now();
    }
    alone(end_, stages_.size());
    backward_ = !backward_;
  }

 private:
  static int64_t all_floats(const Span& span) {
    int64_t floats = 0;
    for (size_t i = 0; i < span.size(); ++i) floats += net_infer_weights(span.op(i));
    return floats;
  }

  using Clock = std::chrono::steady_clock;

  void run_shared() {
    pool_.run([this](int thread) {
      for (size_t i = begin_; i < end_; ++i) {
        if (i > begin_) pool_.barrier();  // other threads wrote what this stage reads
        if (stages_[i].shared) {
          stages_[i].run(thread, threads_);
        } else if (thread == 0) {
          stages_[i].run(0, 1);
        }
      }
    });
  }

  // Returns true if the last call ended so long ago that the other threads sleep, and if a call is
  // short: computing alone then takes less time than waking them, unless more calls follow at once.
  bool others_sleep() const {
    constexpr std::chrono::microseconds kSpins(200);  // of a pool's threads
    constexpr int64_t kShort = 4 << 20;  // floats, which one thread reads in about as much time
    return floats_read_ < kShort && Clock::now() - last_end_ > kSpins;
  }

  // Returns the floats of weights that a call reads for an op.
  static int64_t floats_read(const Op& op) {
    const auto* rnn = std::get_if<Rnn>(&op);
    return net_infer_weights(op) * (rnn != nullptr ? rnn->shape.steps : 1);
  }

  // Returns the memory of a value: its own, or part of the workspace for one inside the span.
  std::byte* memory(const Value& value) {
    if (!value) return nullptr;
    const auto known = memory_.find(value.id);
    if (known != memory_.end()) return known->second;
    auto* data = static_cast<std::byte*>(binding_->read(value).data);
    if (data == nullptr) data = take(size_t(size_of(span_.program.info(value.id).value)));
    return memory_[value.id] = data;
  }
  float* floats(const Value& value) { return reinterpret_cast<float*>(memory(value)); }
  int32_t* codes(const Value& value) { return reinterpret_cast<int32_t*>(memory(value)); }
  std::byte* take(size_t bytes) {
    std::byte* taken = scratch_;
    scratch_ += align_up(bytes);
    return taken;
  }

  // A part of the net that one thread computes, or all threads of a team their parts of.
  struct Stage {
    std::function<void(int thread, int team)> run;
    bool shared = false;
  };

  template <typename F>
  void stage(F f) {
    stages_.push_back({[f = std::move(f)](int, int) mutable { f(); }});
  }

  // Adds the stage for the op at this position, and returns how many ops it covers.
  size_t add(size_t at) {
    if (const auto* linear = std::get_if<Linear>(&span_.op(at))) {
      const Activation* next =
          at + 1 < span_.size() ? std::get_if<Activation>(&span_.op(at + 1)) : nullptr;
      const bool fuses = next != nullptr && next->x.id == linear->y.id &&
                         binding_->write(linear->y).data == nullptr && used_once(linear->y, at);
      add_linear(*linear, fuses ? next : nullptr);
      return fuses ? 2 : 1;
    }
    std::visit([this](const auto& op) { add_op(op); }, span_.op(at));
    return 1;
  }
  bool used_once(const Value& value, size_t at) const {
    return span_.program.last_read(value.id) == int64_t(span_.begin + at + 1);
  }

  void add_linear(const Linear& op, const Activation* activation) {
    const GemvFunctions& f = gemv_functions();
    const Value& y = activation != nullptr ? activation->y : op.y;
    GemvArgs args{next_,   op.in(), 0,         op.out(), floats(op.x), op.in(),
                  nullptr, 0,       floats(y), op.out(), op.n()};
    args.relu = activation != nullptr && activation->kind == ActivationKind::relu;
    f.pack(floats(op.w), op.in(), nullptr, 0, op.out(), floats(op.b), nullptr, next_);
    next_ += f.packed(op.in(), op.out());
    const SimdActivation act =
        activation != nullptr && !args.relu ? simd_activation(*activation) : SimdActivation();
    const int64_t panels = f.panels(op.out());
    const auto run = [this, args, act, panels, &f](int thread, int team) {
      GemvArgs now = args;
      now.backward = backward_;
      now.panels = split(panels, thread, team);
      for (int64_t i = 0; team > 1 && i < now.samples; ++i) {
        prefetch(now.x + i * now.x_stride, now.in);
      }
      const Range outputs = f.multiply(now);
      for (int64_t i = 0; act != ActivationKind::none && i < now.samples; ++i) {
        float* y = now.y + i * now.y_stride + outputs.begin;
        f.activate(act, y, y, outputs.end - outputs.begin);
      }
    };
    stages_.push_back({run, threads_ > 1 && panels > 1});
  }

  void add_op(const Activation& op) {
    stage([act = simd_activation(op), x = floats(op.x), y = floats(op.y),
           count = op.y.shape.numel(),
           activate = gemv_functions().activate] { activate(act, x, y, count); });
  }

  void add_op(const Gather& op) {
    const int64_t n = op.y.shape[0], row = op.y.shape.numel() / n;
    const auto each = [&](auto copy) {
      stage([=, order = codes(op.order), tick = codes(op.tick),
             first = reinterpret_cast<const int64_t*>(memory(op.first))] {
        const int32_t* sample = order + *first + int64_t{*tick} * n;
        for (int64_t i = 0; i < n; ++i) copy(int64_t{sample[i]} * row, i * row);
      });
    };
    const auto* bytes = reinterpret_cast<const uint8_t*>(memory(op.set));
    if (op.y.dtype == DType::fp32 && op.set.dtype == DType::uint8) {
      each([=, y = floats(op.y), scale = float(op.scale), shift = float(op.shift),
            convert = gemv_functions().scale](int64_t from, int64_t to) {
        convert(bytes + from, y + to, row, scale, shift);
      });
    } else if (op.set.dtype == DType::uint8) {
      each([=, y = codes(op.y)](int64_t from, int64_t to) {
        std::copy_n(bytes + from, row, y + to);
      });
    } else {  // four bytes either way
      each([=, y = memory(op.y)](int64_t from, int64_t to) {
        std::memcpy(y + 4 * to, bytes + 4 * from, 4 * size_t(row));
      });
    }
  }

  void add_op(const Rnn& op) {
    gates(op.shape.cell) == 1 ? add_simple_rnn(op) : add_cell(op);
    if (!op.hT) return;
    const RnnShape& s = op.shape;
    stage([s, hT = floats(op.hT), y = floats(op.y)] {
      for (int64_t b = 0; b < s.batch; ++b) {
        std::copy_n(y + ((b + 1) * s.steps - 1) * s.hidden, s.hidden, hT + b * s.hidden);
      }
    });
  }

  void add_cell(const Rnn& op) {
    const GemvFunctions& f = gemv_functions();
    const RnnShape& s = op.shape;
    const RnnWeights& w = op.weights[0];
    CellArgs args{s.cell,        next_,          s.in,          s.hidden,
                  floats(op.x),  s.steps * s.in, floats(op.h0), s.hidden,
                  floats(op.c0), nullptr,        floats(op.y),  s.steps * s.hidden,
                  s.batch};
    if (s.cell == CellKind::lstm) {
      args.c_next =
          op.cT ? floats(op.cT)
                : reinterpret_cast<float*>(take(size_t(s.batch * s.hidden) * sizeof(float)));
    }
    f.pack_cell(s.cell, s.in, s.hidden, floats(w.w_ih), floats(w.w_hh), floats(w.b_ih),
                floats(w.b_hh), next_);
    next_ += f.packed_cell(s.cell, s.in, s.hidden);
    float* ahead = nullptr;
    if (const int64_t floats = ahead_floats(s); floats > 0) {
      ahead = reinterpret_cast<float*>(take(size_t(floats) * sizeof(float)));
      args.ahead_stride = floats / s.batch;
    }
    const auto run = [args, ahead, this, steps = s.steps, &f](int thread, int team) {
      CellArgs now = args;
      now.backward = backward_;
      now.panels = split(f.cell_panels(now.hidden), thread, team);
      const int64_t row = f.packed_ahead(now.cell, now.hidden);
      for (int64_t t = 0; t < steps; ++t) {
        if (t > 0 && team > 1) {
          pool_.barrier();  // other threads wrote units of the state
          for (int64_t i = 0; i < now.samples; ++i) prefetch(now.h + i * now.h_stride, now.hidden);
        }
        if (ahead != nullptr && t % kAhead == 0) {
          f.look_ahead(now, std::min(kAhead, steps - t), ahead);
        }
        if (ahead != nullptr) now.ahead = ahead + t % kAhead * row;
        f.step(now);
        now.h = now.y;
        now.h_stride = now.y_stride;
        now.c = now.c_next;
        now.x += now.in;
        now.y += now.hidden;
        now.backward = !now.backward;
      }
    };
    stages_.push_back({run, threads_ > 1});
  }

  // A cell of one gate is a product of input and state, followed by a function.
  void add_simple_rnn(const Rnn& op) {
    const GemvFunctions& f = gemv_functions();
    const RnnShape& s = op.shape;
    const RnnWeights& w = op.weights[0];
    GemvArgs args{next_,          s.in,          s.hidden, s.hidden,     floats(op.x),
                  s.steps * s.in, floats(op.h0), s.hidden, floats(op.y), s.steps * s.hidden,
                  s.batch};
    args.relu = s.cell == CellKind::rnn_relu;
    f.pack(floats(w.w_ih), s.in, floats(w.w_hh), s.hidden, s.hidden, floats(w.b_ih), floats(w.b_hh),
           next_);
    next_ += f.packed(s.in + s.hidden, s.hidden);
    const auto run = [args, this, steps = s.steps, &f](int thread, int team) {
      GemvArgs now = args;
      now.backward = backward_;
      now.panels = split(f.panels(now.out), thread, team);
      for (int64_t t = 0; t < steps; ++t) {
        if (t > 0 && team > 1) pool_.barrier();  // other threads wrote units of the state
        const Range units = f.multiply(now);
        for (int64_t b = 0; !now.relu && b < now.samples; ++b) {
          float* y = now.y + b * now.y_stride + units.begin;
          f.activate(ActivationKind::tanh, y, y, units.end - units.begin);
        }
        now.more = now.y;
        now.more_stride = now.y_stride;
        now.x += now.in;
        now.y += now.out;
        now.backward = !now.backward;
      }
    };
    stages_.push_back({run, threads_ > 1 && f.panels(s.hidden) > 1});
  }

  void add_op(const Softmax& op) {
    stage([x = floats(op.x), y = floats(op.y), n = op.x.shape[0], classes = op.x.shape[1],
           softmax = gemv_functions().softmax] { softmax(x, y, n, classes); });
  }
  void add_op(const Argmax& op) {
    stage([x = floats(op.x), y = codes(op.y), n = op.x.shape[0], classes = op.x.shape[1]] {
      for (int64_t i = 0; i < n; ++i) {
        const float* row = x + i * classes;
        y[i] = int32_t(std::max_element(row, row + classes) - row);
      }
    });
  }
  void add_op(const Embedding& op) {
    stage([token = codes(op.token), w = floats(op.w), y = floats(op.y), count = op.count(),
           width = op.width()] {
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(w + int64_t{token[i]} * width, width, y + i * width);
      }
    });
  }
  void add_op(const SelectTimestep& op) {
    const int64_t t = op.at >= 0 ? op.at : std::max<int64_t>(op.steps + op.at, 0);
    stage([=, steps = op.steps, n = op.batch(), width = op.features(), x = floats(op.x),
           y = floats(op.y)] {
      for (int64_t b = 0; b < n; ++b) {
        std::copy_n(x + (b * steps + t) * width, width, y + b * width);
      }
    });
  }
  void add_op(const Copy& op) {
    stage([from = memory(op.from), to = memory(op.to), bytes = size_t(size_of(op.to))] {
      std::memcpy(to, from, bytes);
    });
  }
  void add_op(const Tick& op) {
    stage([tick = codes(op.tick)] { ++*tick; });
  }
  template <typename Other>
  void add_op(const Other& op) {
    throw_error(ErrorKind::usage, "a prepared net was given {}", name(Op(op)));
  }

  Span span_;
  const Binding* binding_;  // while stages are added
  ThreadPool& pool_;
  int threads_;
  WeightMemory weights_;
  float* next_;  // where the next packed weights go
  std::byte* scratch_ = nullptr;
  std::unordered_map<ValueId, std::byte*> memory_;
  std::vector<Stage> stages_;
  size_t begin_, end_;            // of the stages from the first to the last that threads share
  int64_t floats_read_ = 0;       // of weights, by a call
  Clock::time_point last_end_{};  // of the stages that threads share
  bool backward_ = false;         // streaming direction of the weights, which alternates
};

}  // namespace

int64_t net_infer_weights(const Op& op) {
  const GemvFunctions& f = gemv_functions();
  if (const auto* linear = std::get_if<Linear>(&op)) return f.packed(linear->in(), linear->out());
  const auto* rnn = std::get_if<Rnn>(&op);
  if (rnn == nullptr) return 0;
  const RnnShape& s = rnn->shape;
  return gates(s.cell) == 1 ? f.packed(s.in + s.hidden, s.hidden)
                            : f.packed_cell(s.cell, s.in, s.hidden);
}

// Returns the memory of a cell's state during the timesteps, if the op has no output for the last
// one, and of its inputs' contributions to the sums.
size_t net_infer_state(const Op& op) {
  const auto* rnn = std::get_if<Rnn>(&op);
  if (rnn == nullptr) return 0;
  const bool state = rnn->shape.cell == CellKind::lstm && !rnn->cT;
  return (state ? align_up(size_t(rnn->shape.batch * rnn->shape.hidden) * sizeof(float)) : 0) +
         align_up(size_t(ahead_floats(rnn->shape)) * sizeof(float));
}

std::unique_ptr<Step> prepare_net_infer(const Span& span, const Binding& binding, NetTeam team) {
  return std::make_unique<NetInferStep>(span, binding, team);
}

}  // namespace ridgeline::cpu::simd
