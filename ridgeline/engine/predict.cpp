#include "ridgeline/engine/predict.h"

#include <cstring>
#include <numeric>

#include "ridgeline/engine/prepared_inputs.h"
#include "ridgeline/engine/resident_set.h"

namespace ridgeline::engine {

nn::Lowered lower_inference(const Config& config, const nn::Model& model,
                            const data::Scaling& scaling, int classes,
                            const PredictorOptions& predictor) {
  nn::LowerOptions options = lower_options(config, scaling, classes);
  options.mode = nn::Mode::infer;
  options.predictions = predictor.answer == Answer::labels;
  options.set_inputs = predictor.inputs;
  options.carry_state = predictor.carry_state;
  options.lengths = predictor.lengths;
  // A model with an output for each timestep has probabilities for each.
  const Shape& output = model.output();
  if (classes > 0 && output.rank() == 2 && output[1] == classes) options.targets = output[0];
  // A model that was trained with mse outputs the last layer unchanged.
  if (predictor.answer == Answer::logits) options.loss = {nn::LossKind::mse};
  options.batch = options.set_samples = options.order_samples = predictor.batch;
  return nn::lower(model, options);
}

PredictorOptions predictor_options(const LoadedModel& loaded, int64_t batch, Answer answer) {
  PredictorOptions options;
  options.batch = batch;
  options.answer = answer;
  if (loaded.preparation) {
    options.inputs = input_dtype(*loaded.preparation);
    options.lengths = loaded.preparation->sequence() != nullptr;
  }
  return options;
}

namespace {

// Lowers the model with its norms folded, if it has any; ops belong to the layers of `model`.
nn::Lowered lower_inference(const Config& config, const nn::Model& model,
                            const std::optional<nn::FoldedModel>& folded,
                            const data::Scaling& scaling, int classes,
                            const PredictorOptions& predictor) {
  if (!folded) return lower_inference(config, model, scaling, classes, predictor);
  nn::Lowered lowered = lower_inference(config, folded->model, scaling, classes, predictor);
  for (int& layer : lowered.op_layer) {
    if (layer >= 0) layer = folded->layers[size_t(layer)];
  }
  return lowered;
}

}  // namespace

Predictor::Predictor(Machine& machine, const Config& config, const nn::Model& model,
                     const data::Scaling& scaling, int classes, int64_t batch,
                     const std::function<void()>& memory_ready, Answer answer, DType inputs)
    : Predictor(machine, config, model, scaling, classes,
                {batch, answer, inputs, /*lengths=*/false, /*carry_state=*/false,
                 /*weights_of=*/nullptr, memory_ready}) {}

Predictor::Predictor(Machine& machine, const Config& config, const nn::Model& model,
                     const data::Scaling& scaling, int classes, const PredictorOptions& options)
    : Predictor(machine, config, model, nn::fold_norms(model), scaling, classes, options) {}

Predictor::Predictor(Machine& machine, const Config& config, const nn::Model& model,
                     const std::optional<nn::FoldedModel>& folded, const data::Scaling& scaling,
                     int classes, const PredictorOptions& options)
    : machine_(machine),
      lowered_(lower_inference(config, model, folded, scaling, classes, options)),
      weights_(options.weights_of != nullptr
                   ? options.weights_of->weights_
                   : std::make_shared<const Weights>(machine_.runtime(),
                                                     folded ? folded->model : model, lowered_)),
      images_(machine_.runtime(), size_t(size_of(lowered_.inputs))),
      order_(machine_.runtime(), size_t(size_of(lowered_.order))) {
  Externals shared;
  weights_->bind(lowered_, shared);
  const auto bind = [&](const Value& value, const DeviceBuffer& memory) {
    shared[value.id] = {memory.data(), value.dtype, value.shape, machine_.device()};
  };
  bind(lowered_.inputs, images_);
  bind(lowered_.order, order_);
  if (options.lengths) {
    lengths_ = DeviceBuffer(machine_.runtime(), size_t(size_of(lowered_.lengths)));
    bind(lowered_.lengths, lengths_);
    split_inputs_.resize(images_.size());
    split_lengths_.resize(size_t(options.batch));
  }
  std::vector<int32_t> order(size_t(lowered_.order.shape.numel()));
  std::iota(order.begin(), order.end(), 0);
  machine_.runtime().upload(order_.data(), order.data(), order.size() * sizeof order[0]);
  if (options.memory_ready) options.memory_ready();
  runner_ = std::make_unique<Runner>(machine_, lowered_, shared, std::vector<std::string>{},
                                     /*fixed_weights=*/true);
}

std::vector<double> Predictor::run(std::span<const uint8_t> samples) {
  load(samples);
  runner_->launch(0, 1);
  return outputs();
}

void Predictor::load(std::span<const uint8_t> samples) {
  if (split_lengths_.empty()) {
    machine_.runtime().upload(images_.data(), samples.data(), samples.size());
    return;
  }
  const size_t inputs = images_.size() / split_lengths_.size(), each = inputs + sizeof(int32_t);
  const size_t count = samples.size() / each;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&split_lengths_[i], samples.data() + i * each, sizeof(int32_t));
    std::memcpy(split_inputs_.data() + i * inputs, samples.data() + i * each + sizeof(int32_t),
                inputs);
  }
  machine_.runtime().upload(images_.data(), split_inputs_.data(), count * inputs);
  machine_.runtime().upload(lengths_.data(), split_lengths_.data(), count * sizeof(int32_t));
}

void Predictor::compute() {
  runner_->launch(0, 1);
  machine_.runtime().synchronize();
}

std::vector<double> Predictor::outputs() const {
  const Value& value = lowered_.outputs;
  if (value.dtype == DType::fp64) return runner_->read<double>(value);
  return dispatch_float(value.dtype, [&](auto zero) {
    const auto values = runner_->read<decltype(zero)>(value);
    std::vector<double> wide;
    wide.reserve(values.size());
    for (const auto each : values) wide.push_back(double(float(each)));
    return wide;
  });
}

std::vector<int32_t> Predictor::labels() const {
  return runner_->read<int32_t>(lowered_.predictions);
}

}  // namespace ridgeline::engine
