#pragma once

#include <functional>
#include <memory>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/engine/weights.h"
#include "ridgeline/nn/fold_norm.h"

namespace ridgeline::engine {

// The requested output of a model: all its outputs (probabilities, or values), the last layer's
// output before any softmax, or only the most likely class of each sample, which leaves the outputs
// on the device.
enum class Answer { outputs, logits, labels };

struct PredictorOptions {
  int64_t batch = 1;  // the most samples that a call takes
  Answer answer = Answer::outputs;
  DType inputs = DType::uint8;  // of the samples; fp32 ones are not scaled
  bool lengths = false;         // samples are sequences: each begins with an int32, its timesteps
  bool carry_state = false;     // recurrent state is carried from call to call
  // Another predictor of the same model on the same machine, whose weights this one uses too.
  const class Predictor* weights_of = nullptr;
  // Called when only the plan remains to be made.
  std::function<void()> memory_ready;
};

// Returns the options for samples as append_inputs() prepares them for this model, or for its
// bytes.
PredictorOptions predictor_options(const LoadedModel& loaded, int64_t batch,
                                   Answer answer = Answer::outputs);

// Returns the program that computes these outputs.
nn::Lowered lower_inference(const Config& config, const nn::Model& model,
                            const data::Scaling& scaling, int classes,
                            const PredictorOptions& predictor);

// Computes a model's outputs for chunks of samples: a plan and its memory.
class Predictor {
 public:
  // Copies the weights of `model` to the device; batch normalisations are folded into the layers
  // that they follow (nn::fold_norms).
  Predictor(Machine& machine, const Config& config, const nn::Model& model,
            const data::Scaling& scaling, int classes, const PredictorOptions& options);
  // This constructor takes the options one by one.
  Predictor(Machine& machine, const Config& config, const nn::Model& model,
            const data::Scaling& scaling, int classes, int64_t batch,
            const std::function<void()>& memory_ready = {}, Answer answer = Answer::outputs,
            DType inputs = DType::uint8);

  // Returns the outputs [batch, classes] of samples: probabilities, or the last layer's output of a
  // model trained with mse. Outputs past the given samples are undefined. Samples are the bytes of
  // numbers of the type `inputs`.
  std::vector<double> run(std::span<const uint8_t> samples);

  // The parts of run(), for callers that time each.
  void load(std::span<const uint8_t> samples);
  void compute();  // waits for the device
  std::vector<double> outputs() const;
  std::vector<int32_t> labels() const;  // [batch], of Answer::labels

  Runner& runner() { return *runner_; }

  // The device memory of samples and outputs, for callers that copy these themselves.
  const DeviceBuffer& input_memory() const { return images_; }
  const Value& output_value() const { return lowered_.outputs; }

 private:
  Predictor(Machine& machine, const Config& config, const nn::Model& model,
            const std::optional<nn::FoldedModel>& folded, const data::Scaling& scaling, int classes,
            const PredictorOptions& options);

  Machine& machine_;
  nn::Lowered lowered_;
  std::shared_ptr<const Weights> weights_;
  DeviceBuffer images_, order_, lengths_;
  std::vector<uint8_t> split_inputs_;  // inputs separated from their lengths
  std::vector<int32_t> split_lengths_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace ridgeline::engine
