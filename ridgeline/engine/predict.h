#pragma once

#include <functional>
#include <memory>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/engine/weights.h"
#include "ridgeline/nn/fold_norm.h"

namespace ridgeline::engine {

// What is asked of a model: all its outputs (probabilities, or values), what its last layer gives
// before any softmax, or only the largest class of each sample, which leaves the outputs where they
// were computed.
enum class Answer { outputs, logits, labels };

struct PredictorOptions {
  int64_t batch = 1;  // the most samples that a call takes
  Answer answer = Answer::outputs;
  DType inputs = DType::uint8;  // of the samples; fp32 ones are not scaled
  bool lengths = false;  // samples are sequences: an int32, their timesteps, is before the inputs
  bool carry_state = false;  // recurrent state stays from call to call
  // Another predictor of the same model on the same machine, whose weights this one uses too.
  const class Predictor* weights_of = nullptr;
  // Called when only the plan is left to make.
  std::function<void()> memory_ready;
};

// The options for samples as append_inputs() prepares them for this model, or its bytes.
PredictorOptions predictor_options(const LoadedModel& loaded, int64_t batch,
                                   Answer answer = Answer::outputs);

// The program that computes these answers.
nn::Lowered lower_inference(const Config& config, const nn::Model& model,
                            const data::Scaling& scaling, int classes,
                            const PredictorOptions& predictor);

// A model's answers for chunks of samples: a plan and the memory it works on.
class Predictor {
 public:
  // The weights of `model` are copied to the device, batch normalisations within those of the
  // layers that they follow (nn::fold_norms).
  Predictor(Machine& machine, const Config& config, const nn::Model& model,
            const data::Scaling& scaling, int classes, const PredictorOptions& options);
  // This constructor takes the options one by one.
  Predictor(Machine& machine, const Config& config, const nn::Model& model,
            const data::Scaling& scaling, int classes, int64_t batch,
            const std::function<void()>& memory_ready = {}, Answer answer = Answer::outputs,
            DType inputs = DType::uint8);

  // Returns the outputs [batch, classes] of samples: probabilities, or what the last layer of a
  // model trained with mse gives. Outputs past the samples given mean nothing. Samples are the
  // bytes of numbers of the type `inputs`.
  std::vector<double> run(std::span<const uint8_t> samples);

  // The parts of run(), for callers that time each.
  void load(std::span<const uint8_t> samples);
  void compute();  // waits for the device
  std::vector<double> outputs() const;
  std::vector<int32_t> labels() const;  // [batch], of Answer::labels

  Runner& runner() { return *runner_; }

  // Where samples and outputs lie on the device, for callers that copy them themselves.
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
  std::vector<uint8_t> split_inputs_;  // of samples that come with their lengths
  std::vector<int32_t> split_lengths_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace ridgeline::engine
