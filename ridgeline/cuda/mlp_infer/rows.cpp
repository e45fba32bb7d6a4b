#include "ridgeline/cuda/mlp_infer/rows.h"

#include "ridgeline/cuda/captured_step.h"
#include "ridgeline/cuda/mlp_infer/mlp_infer.h"
#include "ridgeline/cuda/tile/product.h"

namespace ridgeline::cuda {
namespace {

// The ops of an inference program, from the gather to the tick.
struct InferOps {
  struct Layer {
    const Linear* linear = nullptr;
    const Activation* activation = nullptr;  // of all but the last
  };
  const Gather* images = nullptr;
  std::vector<Layer> layers;
  const Softmax* softmax = nullptr;
  const Argmax* argmax = nullptr;  // or null
  const Tick* tick = nullptr;
  size_t ops = 0;
  std::vector<ValueId> inside;
  std::string refusal;

  std::vector<int> widths() const {
    std::vector<int> all{int(layers.front().linear->in())};
    for (const Layer& layer : layers) all.push_back(int(layer.linear->out()));
    return all;
  }
};

class InferMatcher {
 public:
  explicit InferMatcher(const Rest& rest) : rest_(rest) {}

  InferOps run() {
    found_.refusal = match();
    return std::move(found_);
  }

 private:
  template <typename T>
  const T* next() {
    const T* op = rest_.get<T>(found_.ops);
    if (op != nullptr) ++found_.ops;
    return op;
  }

  std::string match() {
    found_.images = next<Gather>();
    if (found_.images == nullptr || found_.images->set.dtype != DType::uint8) {
      return "does not begin with a gather of bytes";
    }
    Value x = found_.images->y;
    found_.inside.push_back(x.id);
    while (const auto* linear = next<Linear>()) {
      if (linear->x.id != x.id || linear->w.dtype != x.dtype || linear->n() != x.shape[0]) {
        return "layers are not a chain";
      }
      x = linear->y;
      found_.inside.push_back(x.id);
      const auto* activation = next<Activation>();
      found_.layers.push_back({linear, activation});
      if (activation == nullptr) break;
      if (activation->x.id != x.id) return "layers are not a chain";
      x = activation->y;
      found_.inside.push_back(x.id);
    }
    if (found_.layers.empty() || found_.layers.back().activation != nullptr) {
      return "does not end in a linear layer";
    }
    found_.softmax = next<Softmax>();
    if (found_.softmax == nullptr || found_.softmax->x.id != x.id) return "no softmax follows";
    found_.argmax = next<Argmax>();
    if (found_.argmax != nullptr && found_.argmax->x.id != found_.softmax->y.id) {
      return "the largest of something else is asked for";
    }
    found_.tick = next<Tick>();
    if (found_.tick == nullptr || found_.tick->tick.id != found_.images->tick.id) {
      return "no tick follows";
    }
    for (const ValueId id : found_.inside) {
      if (!rest_.dead_after(rest_.program.info(id).value, found_.ops)) {
        return "something between is read later";
      }
    }
    return {};
  }

  const Rest& rest_;
  InferOps found_;
};

std::string refuse_types(const Rest& rest, const InferOps& found) {
  const DType dtype = found.images->y.dtype;
  const bool half = dtype == DType::bf16 || dtype == DType::fp16;
  if (!half && rest.program.precision != Precision::tf32) return "takes bf16, fp16 and tf32 only";
  if (found.softmax->y.dtype != DType::fp32) return "wants probabilities in fp32";
  for (const auto& [linear, activation] : found.layers) {
    if (linear->b && linear->b.dtype != dtype && linear->b.dtype != DType::fp32) {
      return "wants biases of the values' type, or fp32";
    }
    if (linear->y.dtype != dtype || (activation != nullptr && activation->y.dtype != dtype)) {
      return "wants all values of one type";
    }
  }
  return {};
}

std::string refuse(const Rest& rest, const InferOps& found) {
  if (!found.refusal.empty()) return found.refusal;
  if (cuda_runtime(rest.runtime).architecture() != 90) return "needs sm_90";
  if (found.layers.size() > size_t(kMlpInferLayers)) {
    return fmt::format("takes up to {} layers", kMlpInferLayers);
  }
  if (std::string reason = refuse_types(rest, found); !reason.empty()) return reason;
  for (const auto& layer : found.layers) {
    const Linear& op = *layer.linear;
    if (op.in() % 8 != 0) return "takes widths in eights";
    if (std::string reason = refuse_large({op.n(), op.in(), op.out()}); !reason.empty()) {
      return reason;
    }
  }
  if (found.layers.back().linear->out() > kMlpInferClasses) {
    return fmt::format("takes up to {} outputs", kMlpInferClasses);
  }
  return {};
}

MlpInferType type_of(DType dtype) {
  return dtype == DType::bf16   ? MlpInferType::bf16
         : dtype == DType::fp16 ? MlpInferType::fp16
                                : MlpInferType::tf32;
}

MlpInferLayout layout_of(const InferOps& found, int rows, const Runtime& runtime) {
  return mlp_infer_layout(type_of(found.images->y.dtype), found.widths(),
                          int(found.images->y.shape[0]), rows, cuda_runtime(runtime).processors());
}

Cover covers(const Rest& rest, int rows) {
  const InferOps found = InferMatcher(rest).run();
  if (std::string reason = refuse(rest, found); !reason.empty()) return Cover::no(reason);
  const MlpInferLayout layout = layout_of(found, rows, rest.runtime);
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  Cover cover = Cover::of(found.ops);
  cover.skips = found.inside;
  return cover;
}

class MlpInferStep final : public CapturedStep {
 public:
  MlpInferStep(const InferOps& found, int rows, const Binding& binding)
      : CapturedStep(binding, fmt::format("mlp_infer of {} rows, {}", found.images->y.shape[0],
                                          fmt::join(found.widths(), "-"))),
        type_(type_of(found.images->y.dtype)),
        layout_(layout_of(found, rows, binding.runtime())),
        counter_(binding.runtime(), 1) {
    const Gather& gather = *found.images;
    args_.set = binding.read(gather.set).as<uint8_t>();
    args_.order = binding.read(gather.order).as<int32_t>();
    args_.first = binding.read(gather.first).as<int64_t>();
    args_.tick = binding.write(found.tick->tick).as<int32_t>();
    args_.done = counter_.get();
    args_.scale = float(gather.scale);
    args_.shift = float(gather.shift);
    args_.n = int(gather.y.shape[0]);
    for (const auto& [linear, activation] : found.layers) {
      MlpInferLayer& layer = args_.layer[args_.layers++];
      layer.w = binding.read(linear->w).data;
      layer.b = binding.read(linear->b).data;
      layer.in = int(linear->in());
      layer.out = int(linear->out());
      layer.wide_bias = linear->b && linear->b.dtype == DType::fp32;
      if (activation != nullptr) layer.curve = curve_of(activation->kind);
    }
    args_.probabilities = binding.write(found.softmax->y).as<float>();
    if (found.argmax != nullptr) args_.predictions = binding.write(found.argmax->y).as<int32_t>();
  }

  void run() override { check(launch_mlp_infer(type_, args_, layout_, stream()), what()); }

 private:
  MlpInferType type_;
  MlpInferLayout layout_;
  TileCounters counter_;
  MlpInferArgs args_;
};

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding, int rows) {
  const InferOps found = InferMatcher({span.program, span.begin, binding.runtime()}).run();
  return std::make_unique<MlpInferStep>(found, rows, binding);
}

}  // namespace

Table mlp_infer_rows() {
  Table table;
  for (const int rows : {16, 32, 64}) {
    table.push_back(cuda_row(fmt::format("cuda.mlp_infer.rows{}", rows), covers, prepare, rows));
  }
  return table;
}

}  // namespace ridgeline::cuda
