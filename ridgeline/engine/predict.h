#pragma once

#include <memory>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/engine/weights.h"

namespace ridgeline::engine {

// A model's probabilities for chunks of images: a plan and the memory it works on.
class Predictor {
 public:
  // The weights of `model` are copied to the device; `batch` is the most items a call takes.
  Predictor(Machine& machine, const Config& config, const nn::Model& model,
            const data::Scaling& scaling, int classes, int64_t batch);

  // Probabilities [batch, classes] of items given as bytes; rows past those given mean nothing.
  std::vector<double> run(std::span<const uint8_t> items);

  Runner& runner() { return *runner_; }

 private:
  Machine& machine_;
  nn::Lowered lowered_;
  Weights weights_;
  DeviceBuffer images_, order_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace ridgeline::engine
