#include "ridgeline/cpu/simd/net_infer_kernels.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "ridgeline/cpu/simd/gemv.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/weight_memory.h"

// A net for a few samples as one kernel: all layers in one call on the calling thread, with
// activations in its first-level cache and weights packed in prepare. It covers the longest span of
// ops that it supports, so that in a net with other layers it computes at least the last ones.
namespace ridgeline::cpu::simd {
namespace {

// With more samples, a product that keeps them in registers is better.
constexpr int64_t kMostSamples = 8;
// Above this many bytes of weights, several threads that each read a part are faster.
constexpr double kMuchWeight = 8 << 20;

// Returns why an op is not covered; empty if it is.
struct Misfit {
  const Program& program;

  static bool all(std::initializer_list<Value> values, DType dtype = DType::fp32) {
    return std::ranges::all_of(values,
                               [&](const Value& each) { return !each || each.dtype == dtype; });
  }
  // The weights are read only once, in prepare.
  bool fixed(std::initializer_list<Value> values) const {
    return std::ranges::all_of(values, [&](const Value& each) {
      return !each || program.info(each.id).role == Role::param ||
             program.info(each.id).role == Role::copy;
    });
  }
  static std::string no(bool fits, const char* why) { return fits ? "" : why; }

  std::string operator()(const Gather& op) const {
    const bool floats =
        op.y.dtype == DType::fp32 && (op.set.dtype == DType::fp32 || op.set.dtype == DType::uint8);
    const bool codes = op.y.dtype == DType::int32 &&
                       (op.set.dtype == DType::int32 || op.set.dtype == DType::uint8);
    return no((floats || codes) && op.y.shape[0] <= kMostSamples,
              "gathers up to 8 samples of fp32 or codes");
  }
  std::string operator()(const Linear& op) const {
    if (!all({op.x, op.w, op.b, op.y})) return "takes fp32 only";
    if (op.x.shape.numel() == 0 || op.y.shape.numel() == 0) return "empty";
    if (!fixed({op.w, op.b})) return "takes weights that do not change";
    return no(op.n() <= kMostSamples, "takes up to 8 samples");
  }
  std::string operator()(const Rnn& op) const {
    const RnnWeights& w = op.weights[0];
    if (!all({op.x, w.w_ih, w.w_hh, w.b_ih, w.b_hh, op.h0, op.c0, op.y, op.hT, op.cT})) {
      return "takes fp32 only";
    }
    if (op.shape.direction != Direction::forward) return "goes forward only";
    if (op.lengths || op.reserve) return "takes no lengths and keeps no reserve";
    if (!fixed({w.w_ih, w.w_hh, w.b_ih, w.b_hh})) return "takes weights that do not change";
    return no(op.shape.batch <= kMostSamples, "takes up to 8 samples");
  }
  std::string operator()(const Activation& op) const {
    return no(all({op.x, op.y}), "takes fp32 only");
  }
  std::string operator()(const Softmax& op) const {
    return no(all({op.x, op.y}) && op.x.shape.numel() > 0, "takes fp32 only");
  }
  std::string operator()(const Argmax& op) const {
    return no(all({op.x}) && op.x.shape.numel() > 0, "takes fp32 only");
  }
  std::string operator()(const Embedding& op) const {
    return no(all({op.w, op.y}) && all({op.token}, DType::int32), "takes fp32 only");
  }
  std::string operator()(const SelectTimestep& op) const {
    return no(all({op.x, op.y}) && !op.lengths, "takes fp32 and no lengths");
  }
  std::string operator()(const Copy&) const { return {}; }
  std::string operator()(const Tick&) const { return {}; }
  template <typename Other>
  std::string operator()(const Other&) const {
    return "the next op is none that a prepared net takes";
  }
  std::string of(const Op& op) const { return std::visit(*this, op); }
};

// Returns the floats of the packed weights of an op.
int64_t packed_floats(const Op& op) {
  const GemvFunctions& f = gemv_functions();
  if (const auto* linear = std::get_if<Linear>(&op)) return f.packed(linear->in(), linear->out());
  const auto* rnn = std::get_if<Rnn>(&op);
  if (rnn == nullptr) return 0;
  const RnnShape& s = rnn->shape;
  return gates(s.cell) == 1 ? f.packed(s.in + s.hidden, s.hidden)
                            : f.packed_cell(s.cell, s.in, s.hidden);
}

// Timesteps whose inputs are multiplied in advance: their sums stay in the second-level cache, and
// their weights are read a sixteenth as often.
constexpr int64_t kAhead = 16;

// Returns the floats of the sums of these timesteps; 0: a single timestep multiplies its input
// itself.
int64_t ahead_floats(const RnnShape& s) {
  if (s.steps < 2 || gates(s.cell) == 1) return 0;
  return s.batch * std::min(kAhead, s.steps) * gemv_functions().packed_ahead(s.cell, s.hidden);
}

// Returns the memory of a cell's state during the timesteps, if the op has no output for the last
// one, and of its inputs' contributions to the sums.
size_t own_state(const Op& op) {
  const auto* rnn = std::get_if<Rnn>(&op);
  if (rnn == nullptr) return 0;
  const bool state = rnn->shape.cell == CellKind::lstm && !rnn->cT;
  return (state ? align_up(size_t(rnn->shape.batch * rnn->shape.hidden) * sizeof(float)) : 0) +
         align_up(size_t(ahead_floats(rnn->shape)) * sizeof(float));
}

Cover covers_net_infer(const RemainingOps& rest) {
  const Program& program = rest.program;
  const Misfit misfit{program};
  const auto at = [&](size_t i) -> const Op& {
    if (rest.looks != nullptr) ++*rest.looks;
    return program.ops[i];
  };
  if (std::string why = misfit.of(at(rest.begin)); !why.empty()) return Cover::no(why);
  if (rest.begin > 0 && misfit.of(at(rest.begin - 1)).empty()) {
    return Cover::no("begins with the first of the ops that it takes");
  }
  size_t end = rest.begin;
  double weights = 0;
  Cover cover;
  for (; end < program.ops.size() && misfit.of(at(end)).empty(); ++end) {
    weights += double(packed_floats(program.ops[end])) * sizeof(float);
    cover.workspace += own_state(program.ops[end]);
  }
  if (weights == 0) return Cover::no("there are no weights to pack");
  if (weights > kMuchWeight && cpu_runtime(rest.runtime).pool().size() > 1) {
    return Cover::no("more weights than one thread should read");
  }
  cover.ops = end - rest.begin;
  std::unordered_set<ValueId> seen;
  for (size_t i = rest.begin; i < end; ++i) {
    for (const Value& value : writes(program.ops[i])) {
      if (!rest.dead_after(value, cover.ops) || !seen.insert(value.id).second) continue;
      cover.skips.push_back(value.id);
      cover.workspace += align_up(size_t(size_of(program.info(value.id).value)));
    }
  }
  return cover;
}

class NetInferStep final : public Step {
 public:
  NetInferStep(const Span& span, const Binding& binding)
      : span_(span), binding_(&binding), weights_(all_floats(span)), next_(weights_.data()) {
    scratch_ = binding.workspace();
    for (size_t i = 0; i < span.size();) i += add(i);
    binding_ = nullptr;
  }

  void run() override {
    for (const auto& stage : stages_) stage->run();
    backward_ = !backward_;
  }

 private:
  static int64_t all_floats(const Span& span) {
    int64_t floats = 0;
    for (size_t i = 0; i < span.size(); ++i) floats += packed_floats(span.op(i));
    return floats;
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

  template <typename F>
  void stage(F f) {
    stages_.push_back(make_step(std::move(f)));
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
    stage([args, this, multiply = f.multiply]() mutable {
      args.backward = backward_;
      multiply(args);
    });
    if (activation != nullptr && !args.relu) add_activation(*activation, args.y, args.y);
  }

  void add_activation(const Activation& op, const float* x, float* y) {
    stage([act = simd_activation(op), x, y, count = op.y.shape.numel(),
           activate = gemv_functions().activate] { activate(act, x, y, count); });
  }
  void add_op(const Activation& op) { add_activation(op, floats(op.x), floats(op.y)); }

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
    stage([args, ahead, this, steps = s.steps, &f] {
      CellArgs now = args;
      now.backward = backward_;
      const int64_t row = f.packed_ahead(now.cell, now.hidden);
      for (int64_t t = 0; t < steps; ++t) {
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
    });
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
    stage([args, this, steps = s.steps, &f] {
      GemvArgs now = args;
      now.backward = backward_;
      for (int64_t t = 0; t < steps; ++t) {
        f.multiply(now);
        for (int64_t b = 0; !now.relu && b < now.samples; ++b) {
          float* y = now.y + b * now.y_stride;
          f.activate(SimdActivation::tanh, y, y, now.out);
        }
        now.more = now.y;
        now.more_stride = now.y_stride;
        now.x += now.in;
        now.y += now.out;
        now.backward = !now.backward;
      }
    });
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
  WeightMemory weights_;
  float* next_;  // where the next packed weights go
  std::byte* scratch_ = nullptr;
  std::unordered_map<ValueId, std::byte*> memory_;
  std::vector<std::unique_ptr<Step>> stages_;
  bool backward_ = false;  // streaming direction of the weights, which alternates
};

}  // namespace

KernelTable net_infer_kernels() {
  Kernel kernel;
  kernel.name = "cpu.net_infer.simd";
  kernel.covers = covers_net_infer;
  kernel.prepare = [](const Span& span, const Binding& binding) -> std::unique_ptr<Step> {
    return std::make_unique<NetInferStep>(span, binding);
  };
  return computing_in(kFloatOnly, {kernel});
}

}  // namespace ridgeline::cpu::simd
