#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/engine/predict.h"
#include "ridgeline/one_sample.h"

namespace ridgeline::engine {

// A model that predicts from host memory to host memory: write samples to inputs(), call
// run(), read outputs(). On a CPU both are the plan's own memory. On a GPU one sample through
// a chain of layers is one launch on a cluster, or a resident kernel; anything else is a
// graph that begins by copying the inputs and ends by copying the outputs, both in pinned
// memory.
class BoundPredictor {
 public:
  // Throws Error(usage) if `resident` is asked for and the model or the device does not support it.
  // It shares the weights of `weights_of`, unless that is null.
  BoundPredictor(Machine& machine, const LoadedModel& loaded, const nn::Model& model,
                 PredictorOptions options, const OneSampleOptions& one_sample,
                 const BoundPredictor* weights_of = nullptr);

  int64_t batch() const { return batch_; }
  int64_t width() const { return width_; }  // outputs per sample
  // [batch] samples in the form that the program gathers, PredictorOptions::inputs, each after its
  // length if it has one (PredictorOptions::lengths).
  std::byte* inputs() const { return inputs_; }
  size_t sample_bytes() const { return sample_bytes_; }
  void run();
  // Does the same in GPU memory, with samples in the form that the program gathers, and does not
  // wait. Only if takes_device_memory(): a plan computes there, whose outputs are fp32.
  bool takes_device_memory() const;
  void run_on_device(const void* samples, int64_t count, float* outputs);
  // Writes the last run's outputs to to[count][width()].
  void outputs(int64_t count, float* to) const;

  size_t state_bytes() const { return state_bytes_; }
  void save_state(void* bytes) const;
  void restore_state(const void* bytes);
  void reset_state();

  std::vector<std::string> kernel_names() const;
  const Program& program() const { return predictor_ ? *program_ : lowered_->program; }

 private:
  bool bind_net(const LoadedModel& loaded, const nn::Model& model, const PredictorOptions& options,
                const OneSampleOptions& one_sample);
  void bind_plan(const LoadedModel& loaded, const nn::Model& model,
                 const PredictorOptions& options);
  void bind_sequences(const Tensor& outputs);
  void run_net();

  Machine& machine_;
  int64_t batch_, width_ = 0;
  size_t sample_bytes_ = 0, state_bytes_ = 0;
  std::byte* inputs_ = nullptr;
  const std::byte* outputs_ = nullptr;
  DType output_type_ = DType::fp32;
  // Used if a plan computes.
  std::unique_ptr<Predictor> predictor_;
  const Program* program_ = nullptr;
  std::shared_ptr<std::byte> host_inputs_, host_outputs_;
  std::function<void()> launch_;  // for a GPU, and for samples with lengths
  // Used if a net for one sample computes.
  std::optional<nn::Lowered> lowered_;
  std::unique_ptr<OneSampleNet> net_;
  bool softmax_ = false, bytes_ = false;
  float scale_ = 1, shift_ = 0;
  std::vector<float> net_inputs_, net_outputs_;
};

}  // namespace ridgeline::engine
