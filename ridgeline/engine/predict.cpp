#include "ridgeline/engine/predict.h"

#include <numeric>

#include "ridgeline/engine/resident_set.h"

namespace ridgeline::engine {
namespace {

nn::Lowered lower_inference(const Config& config, const nn::Model& model,
                            const data::Scaling& scaling, int classes, int64_t batch, Answer answer,
                            DType inputs) {
  nn::LowerOptions options = lower_options(config, scaling, classes);
  options.mode = nn::Mode::infer;
  options.predictions = answer == Answer::labels;
  options.set_inputs = inputs;
  // The outputs of the last layer are what a model that was trained with mse gives.
  if (answer == Answer::logits) options.loss = {nn::LossKind::mse};
  options.batch = options.set_samples = options.order_samples = batch;
  return nn::lower(model, options);
}

}  // namespace

Predictor::Predictor(Machine& machine, const Config& config, const nn::Model& model,
                     const data::Scaling& scaling, int classes, int64_t batch,
                     const std::function<void()>& memory_ready, Answer answer, DType inputs)
    : machine_(machine),
      lowered_(lower_inference(config, model, scaling, classes, batch, answer, inputs)),
      weights_(machine_.runtime(), model, lowered_),
      images_(machine_.runtime(), size_t(size_of(lowered_.inputs))),
      order_(machine_.runtime(), size_t(size_of(lowered_.order))) {
  Externals shared;
  weights_.bind(lowered_, shared);
  const auto bind = [&](const Value& value, const DeviceBuffer& memory) {
    shared[value.id] = {memory.data(), value.dtype, value.shape, machine_.device()};
  };
  bind(lowered_.inputs, images_);
  bind(lowered_.order, order_);
  std::vector<int32_t> order(size_t(lowered_.order.shape.numel()));
  std::iota(order.begin(), order.end(), 0);
  machine_.runtime().upload(order_.data(), order.data(), order.size() * sizeof order[0]);
  if (memory_ready) memory_ready();
  runner_ = std::make_unique<Runner>(machine_, lowered_, shared);
}

std::vector<double> Predictor::run(std::span<const uint8_t> samples) {
  load(samples);
  runner_->launch(0, 1);
  return outputs();
}

void Predictor::load(std::span<const uint8_t> samples) {
  machine_.runtime().upload(images_.data(), samples.data(), samples.size());
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
