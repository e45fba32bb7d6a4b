// cpu.rnn.onednn: oneDNN's recurrent primitives, forward without a reserve. Its workspace for the
// backward pass is opaque, so for training oneDNN would have to compute the whole layer.
#ifdef RIDGELINE_HAVE_ONEDNN

#include <cstring>
#include <vector>

#include "ridgeline/cpu/onednn/kernels.h"
#include "ridgeline/cpu/onednn/primitive.h"

namespace ridgeline::cpu {
namespace {

constexpr const char* kRnn = "cpu.rnn.onednn";
using Desc = dnnl::memory::desc;
using FormatTag = dnnl::memory::format_tag;

Desc described(const dnnl::memory::dims& dims, FormatTag tag) {
  return {dims, dnnl::memory::data_type::f32, tag};
}

dnnl::rnn_direction direction_of(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return dnnl::rnn_direction::unidirectional_left2right;
    case Direction::reverse:
      return dnnl::rnn_direction::unidirectional_right2left;
    case Direction::both:
      break;
  }
  return dnnl::rnn_direction::bidirectional_concat;
}

// Returns oneDNN's number of our gate g: its GRU has the update gate first.
int64_t gate_of(CellKind cell, int64_t g) { return cell == CellKind::gru && g < 2 ? 1 - g : g; }

// Descriptions of all operands; the primitive chooses the weights' layouts.
struct Operands {
  Desc x, y, w_ih, w_hh, bias, state, final_state, cell, final_cell;

  explicit Operands(const Rnn& op) {
    const RnnShape& s = op.shape;
    const Dim D = s.directions(), G = gates(s.cell);
    x = described({s.steps, s.batch, s.in}, FormatTag::ntc);
    y = described({s.steps, s.batch, D * s.hidden}, FormatTag::ntc);
    w_ih = described({1, D, s.in, G, s.hidden}, FormatTag::any);
    w_hh = described({1, D, s.hidden, G, s.hidden}, FormatTag::any);
    bias = described({1, D, s.cell == CellKind::gru ? 4 : G, s.hidden}, FormatTag::ldgo);
    const Desc each = described({1, D, s.batch, s.hidden}, FormatTag::ldnc);
    if (op.h0) state = each;
    if (op.hT) final_state = each;
    if (op.c0) cell = each;
    if (op.cT) final_cell = each;
  }
};

struct ChosenPrimitive {
  dnnl::primitive primitive;
  Desc w_ih, w_hh;
};

template <typename Forward>
ChosenPrimitive chosen(const typename Forward::primitive_desc& description) {
  return {Forward(description), description.weights_layer_desc(), description.weights_iter_desc()};
}

ChosenPrimitive choose(const Rnn& op, const Operands& o, const dnnl::engine& engine) {
  constexpr auto kPass = dnnl::prop_kind::forward_inference;
  const auto direction = direction_of(op.shape.direction);
  switch (op.shape.cell) {
    case CellKind::lstm:
      return chosen<dnnl::lstm_forward>({{kPass, direction, o.x, o.state, o.cell, o.w_ih, o.w_hh,
                                          o.bias, o.y, o.final_state, o.final_cell},
                                         engine});
    case CellKind::gru:
      return chosen<dnnl::lbr_gru_forward>(
          {{kPass, direction, o.x, o.state, o.w_ih, o.w_hh, o.bias, o.y, o.final_state}, engine});
    default:
      break;
  }
  const auto activation = op.shape.cell == CellKind::rnn_relu ? dnnl::algorithm::eltwise_relu
                                                              : dnnl::algorithm::eltwise_tanh;
  return chosen<dnnl::vanilla_rnn_forward>(
      {{kPass, activation, direction, o.x, o.state, o.w_ih, o.w_hh, o.bias, o.y, o.final_state},
       engine});
}

// Our weights, gate by gate in oneDNN's order, then in the primitive's layout; converted in each
// run, because they may have changed.
class Weights {
 public:
  Weights(const dnnl::engine& engine, const RnnShape& s, int64_t width, const Desc& wanted)
      : s_(s),
        width_(width),
        ours_(described({1, s.directions(), width, gates(s.cell), s.hidden}, FormatTag::ldgoi),
              engine),
        theirs_(wanted, engine),
        reorder_(ours_, theirs_) {}

  const dnnl::memory& memory() const { return theirs_; }
  void load(int64_t d, const float* w) {
    const int64_t gate = s_.hidden * width_, count = gates(s_.cell);
    auto* to = static_cast<float*>(ours_.get_data_handle()) + d * count * gate;
    for (int64_t g = 0; g < count; ++g) {
      std::memcpy(to + gate_of(s_.cell, g) * gate, w + g * gate, size_t(gate) * sizeof(float));
    }
  }
  void reorder(dnnl::stream& stream) { reorder_.execute(stream, ours_, theirs_); }

 private:
  RnnShape s_;
  int64_t width_;
  dnnl::memory ours_, theirs_;
  dnnl::reorder reorder_;
};

class RnnStep final : public Step {
 public:
  RnnStep(const Rnn& op, const Binding& binding)
      : s_(op.shape),
        threads_(begin_with(binding)),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {
    const Operands operands(op);
    ChosenPrimitive chosen = choose(op, operands, engine_);
    primitive_ = std::move(chosen.primitive);
    weights_.reserve(2);
    weights_.emplace_back(engine_, s_, s_.in, chosen.w_ih);
    weights_.emplace_back(engine_, s_, s_.hidden, chosen.w_hh);
    bias_ = dnnl::memory(operands.bias, engine_);
    for (size_t d = 0; d < size_t(s_.directions()); ++d) {
      const RnnWeights& w = op.weights[d];
      ours_.push_back(
          {binding.read(w.w_ih).as<const float>(), binding.read(w.w_hh).as<const float>(),
           binding.read(w.b_ih).as<const float>(), binding.read(w.b_hh).as<const float>()});
    }
    const auto bind = [&](int argument, const Desc& description, const Tensor& tensor) {
      if (tensor.data != nullptr) {
        arguments_.insert({argument, dnnl::memory(description, engine_, tensor.data)});
      }
    };
    bind(DNNL_ARG_SRC_LAYER, operands.x, binding.read(op.x));
    bind(DNNL_ARG_SRC_ITER, operands.state, binding.read(op.h0));
    bind(DNNL_ARG_SRC_ITER_C, operands.cell, binding.read(op.c0));
    bind(DNNL_ARG_DST_LAYER, operands.y, binding.write(op.y));
    bind(DNNL_ARG_DST_ITER, operands.final_state, binding.write(op.hT));
    bind(DNNL_ARG_DST_ITER_C, operands.final_cell, binding.write(op.cT));
    arguments_.insert({DNNL_ARG_WEIGHTS_LAYER, weights_[0].memory()});
    arguments_.insert({DNNL_ARG_WEIGHTS_ITER, weights_[1].memory()});
    arguments_.insert({DNNL_ARG_BIAS, bias_});
  }

  void run() override {
    use_omp_threads(threads_);
    for (size_t d = 0; d < ours_.size(); ++d) {
      weights_[0].load(int64_t(d), ours_[d].w_ih);
      weights_[1].load(int64_t(d), ours_[d].w_hh);
      load_bias(int64_t(d), ours_[d].b_ih, ours_[d].b_hh);
    }
    executed([&] {
      for (Weights& each : weights_) each.reorder(stream_);
      primitive_.execute(stream_, arguments_);
    });
  }

 private:
  // Adds both biases; those of a GRU's third gate stay separate.
  void load_bias(int64_t d, const float* b_ih, const float* b_hh) {
    const int64_t H = s_.hidden, count = gates(s_.cell);
    const bool gru = s_.cell == CellKind::gru;
    auto* to = static_cast<float*>(bias_.get_data_handle()) + d * (gru ? 4 : count) * H;
    for (int64_t row = 0; row < count * H; ++row) {
      const bool apart = gru && row >= 2 * H;
      float* at = to + gate_of(s_.cell, row / H) * H + row % H;
      *at = b_ih != nullptr ? b_ih[row] + (apart ? 0.0f : b_hh[row]) : 0.0f;
      if (apart) at[H] = b_hh != nullptr ? b_hh[row] : 0.0f;
    }
  }

  struct WeightPointers {
    const float *w_ih, *w_hh, *b_ih, *b_hh;
  };
  RnnShape s_;
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::vector<Weights> weights_;
  dnnl::memory bias_;
  std::vector<WeightPointers> ours_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

Cover covers_onednn_rnn(const RemainingOps& rest) {
  const auto* op = rest.get<Rnn>(0);
  if (op == nullptr) return Cover::no("the next op is no rnn");
  if (op->y.dtype != DType::fp32) return Cover::no("fp32 only");
  if (op->y.shape.numel() == 0) return Cover::no("empty");
  if (op->reserve) return Cover::no("keeps no reserve for our backward ops");
  if (op->lengths) return Cover::no("samples must be of one length");
  // oneDNN takes either both states of an LSTM or none.
  if (op->shape.cell == CellKind::lstm &&
      (bool(op->h0) != bool(op->c0) || bool(op->hT) != bool(op->cT))) {
    return Cover::no("wants both h and c, or neither");
  }
  return Cover::of(1);
}

}  // namespace

KernelTable onednn_recurrent_kernels() {
  Kernel kernel;
  kernel.name = kRnn;
  kernel.traits.precisions = {Precision::fp32};
  kernel.traits.library = Library::onednn;
  kernel.traits.vendor = true;
  kernel.covers = covers_onednn_rnn;
  kernel.prepare = [](const Span& span, const Binding& binding) {
    return checked(kRnn, [&]() -> std::unique_ptr<Step> {
      return std::make_unique<RnnStep>(span.get<Rnn>(0), binding);
    });
  };
  return {kernel};
}

}  // namespace ridgeline::cpu

#else

#include "ridgeline/cpu/onednn/kernels.h"

namespace ridgeline::cpu {

KernelTable onednn_recurrent_kernels() { return {}; }

}  // namespace ridgeline::cpu

#endif
