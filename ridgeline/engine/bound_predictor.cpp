#include "ridgeline/engine/bound_predictor.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace ridgeline::engine {
namespace {

void softmax(std::vector<float>& values) {
  const float most = *std::ranges::max_element(values);
  float sum = 0;
  for (float& each : values) sum += each = std::exp(each - most);
  for (float& each : values) each /= sum;
}

}  // namespace

BoundPredictor::BoundPredictor(Machine& machine, const LoadedModel& loaded, const nn::Model& model,
                               PredictorOptions options, const OneSampleOptions& one_sample,
                               const BoundPredictor* weights_of)
    : machine_(machine), batch_(options.batch) {
  if (weights_of != nullptr) options.weights_of = weights_of->predictor_.get();
  const bool host = machine.device().is_host();
  if (host && one_sample.resident) {
    throw_error(ErrorKind::usage, "a resident net is for a GPU: give the device cuda");
  }
  if (host || !bind_net(loaded, model, options, one_sample)) bind_plan(loaded, model, options);
}

// Returns false if the model or the device does not support it.
bool BoundPredictor::bind_net(const LoadedModel& loaded, const nn::Model& model,
                              const PredictorOptions& options, const OneSampleOptions& one_sample) {
  std::string why = "takes one sample at a time";
  if (batch_ == 1 && options.answer != Answer::labels && !options.lengths) {
    lowered_ = lower_inference(loaded.config, model, loaded.scaling, loaded.classes, options);
    std::unordered_map<ValueId, const float*> weights;
    for (size_t i = 0; i < lowered_->params.size(); ++i) {
      const Tensor& host = model.params()[i].value.view();
      if (host.dtype == DType::fp32 && lowered_->params[i].dtype == DType::fp32) {
        weights[lowered_->params[i].id] = static_cast<const float*>(host.data);
      }
    }
    const auto find = [&](const Value& value) {
      const auto found = weights.find(value.id);
      return found == weights.end() ? nullptr : found->second;
    };
    const auto chain = find_layer_chain(lowered_->program, find, why);
    if (chain) net_ = make_one_sample_net(machine_.runtime(), *chain, one_sample, why);
    if (net_) {
      softmax_ = chain->softmax;
      bytes_ = lowered_->inputs.dtype == DType::uint8;
      scale_ = float(chain->scale);
      shift_ = float(chain->shift);
      for (const ChainLayer& layer : chain->layers) {
        if (!layer.cell) continue;
        state_bytes_ += size_t(layer.out) * sizeof(float) * (*layer.cell == CellKind::lstm ? 2 : 1);
      }
      width_ = chain->layers.back().out;
      net_inputs_.resize(size_t(chain->layers.front().in));
      net_outputs_.resize(size_t(width_));
      sample_bytes_ = size_t(size_of(lowered_->inputs));
      auto buffer = std::make_shared<Buffer>(sample_bytes_);
      host_inputs_ = {buffer, buffer->data()};
      inputs_ = bytes_ ? host_inputs_.get() : reinterpret_cast<std::byte*>(net_inputs_.data());
      outputs_ = reinterpret_cast<const std::byte*>(net_outputs_.data());
      return true;
    }
    lowered_.reset();
  }
  if (one_sample.resident) {
    throw_error(ErrorKind::usage, "this model cannot stay on the chip: {}", why);
  }
  return false;
}

void BoundPredictor::bind_plan(const LoadedModel& loaded, const nn::Model& model,
                               const PredictorOptions& options) {
  predictor_ = std::make_unique<Predictor>(machine_, loaded.config, model, loaded.scaling,
                                           loaded.classes, options);
  Runner& runner = predictor_->runner();
  program_ = &runner.plan().program();
  for (const Tensor& state : runner.carried()) state_bytes_ += state.bytes();
  const Value& output = predictor_->output_value();
  width_ = output.shape.numel() / batch_;
  output_type_ = output.dtype;
  const Tensor outputs = runner.plan().peek(output.id);
  const DeviceBuffer& inputs = predictor_->input_memory();
  sample_bytes_ = inputs.size() / size_t(batch_);
  if (options.lengths) return bind_sequences(outputs);
  if (machine_.device().is_host()) {
    inputs_ = inputs.data();
    outputs_ = static_cast<const std::byte*>(outputs.data);
    return;
  }
  Runtime& runtime = machine_.runtime();
  host_inputs_ = host_memory(runtime, inputs.size());
  host_outputs_ = host_memory(runtime, outputs.bytes());
  std::fill_n(host_inputs_.get(), inputs.size(), std::byte{});
  inputs_ = host_inputs_.get();
  outputs_ = host_outputs_.get();
  // upload() copies between any two memories if one is the GPU's.
  const Tensor tick = runner.plan().peek(runner.lowered().tick.id);
  runner.set_inputs(0, 0, {});
  const auto all = [this, &runtime, &inputs, outputs, tick] {
    runtime.upload(inputs.data(), host_inputs_.get(), inputs.size());
    runtime.clear(tick.data, tick.bytes());
    predictor_->runner().plan().run();
    runtime.upload(host_outputs_.get(), outputs.data, outputs.bytes());
  };
  all();  // kernels are loaded on their first call
  runtime.synchronize();
  predictor_->runner().clear_carried();
  try {
    launch_ = runtime.capture(all, 1);
  } catch (const Error&) {  // a step that cannot be captured in a graph
    launch_ = all;
  }
}

// Samples and their lengths come together, and the predictor separates them.
void BoundPredictor::bind_sequences(const Tensor& outputs) {
  sample_bytes_ += sizeof(int32_t);
  auto buffer = std::make_shared<Buffer>(sample_bytes_ * size_t(batch_));
  host_inputs_ = {buffer, buffer->data()};
  inputs_ = host_inputs_.get();
  outputs_ = static_cast<const std::byte*>(outputs.data);
  if (!machine_.device().is_host()) {
    host_outputs_ = host_memory(machine_.runtime(), outputs.bytes());
    outputs_ = host_outputs_.get();
  }
  launch_ = [this, outputs] {
    const auto* samples = reinterpret_cast<const uint8_t*>(inputs_);
    predictor_->load({samples, sample_bytes_ * size_t(batch_)});
    predictor_->runner().launch(0, 1);
    if (host_outputs_) {
      machine_.runtime().download(host_outputs_.get(), outputs.data, outputs.bytes());
    }
  };
}

bool BoundPredictor::takes_device_memory() const {
  return predictor_ != nullptr && !machine_.device().is_host() && output_type_ == DType::fp32;
}

void BoundPredictor::run_on_device(const void* samples, int64_t count, float* outputs) {
  Runtime& runtime = machine_.runtime();
  Runner& runner = predictor_->runner();
  runtime.upload(predictor_->input_memory().data(), samples, sample_bytes_ * size_t(count));
  runner.launch(0, 1);
  const Tensor from = runner.plan().peek(predictor_->output_value().id);
  runtime.upload(outputs, from.data, size_t(count * width_) * sizeof(float));
}

void BoundPredictor::run() {
  if (net_) return run_net();
  if (!launch_) return predictor_->runner().launch(0, 1);
  launch_();
  machine_.runtime().synchronize();
}

void BoundPredictor::run_net() {
  if (bytes_) {
    const auto* from = reinterpret_cast<const uint8_t*>(host_inputs_.get());
    for (size_t i = 0; i < net_inputs_.size(); ++i) {
      net_inputs_[i] = float(from[i]) * scale_ + shift_;
    }
  }
  net_->run(net_inputs_.data(), net_outputs_.data());
  if (softmax_) softmax(net_outputs_);
}

void BoundPredictor::outputs(int64_t count, float* to) const {
  const int64_t all = count * width_;
  dispatch_float(output_type_, [&]<typename T>(T) {
    const T* from = reinterpret_cast<const T*>(outputs_);
    for (int64_t i = 0; i < all; ++i) to[i] = float(from[i]);
  });
}

void BoundPredictor::save_state(void* bytes) const {
  if (net_) return net_->save_state(static_cast<float*>(bytes));
  auto* to = static_cast<std::byte*>(bytes);
  for (const Tensor& state : predictor_->runner().carried()) {
    machine_.runtime().download(to, state.data, state.bytes());
    to += state.bytes();
  }
}

void BoundPredictor::restore_state(const void* bytes) {
  if (net_) return net_->restore_state(static_cast<const float*>(bytes));
  const auto* from = static_cast<const std::byte*>(bytes);
  for (const Tensor& state : predictor_->runner().carried()) {
    machine_.runtime().upload(state.data, from, state.bytes());
    from += state.bytes();
  }
}

void BoundPredictor::reset_state() {
  if (!net_) return predictor_->runner().clear_carried();
  const std::vector<float> zeros(state_bytes_ / sizeof(float), 0.0f);
  net_->restore_state(zeros.data());
}

std::vector<std::string> BoundPredictor::kernel_names() const {
  return net_ ? std::vector{net_->name()} : predictor_->runner().kernel_names();
}

}  // namespace ridgeline::engine
