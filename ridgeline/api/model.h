#pragma once

#include <mutex>

#include "ridgeline/engine/evaluation.h"
#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/predict.h"
#include "ridgeline/ridgeline.h"

namespace ridgeline {

// A model and, after the first call, the plans that predict.
struct Model::State {
  State(engine::LoadedModel model, const DeviceOptions& options)
      : loaded(std::move(model)), batch(options.batch) {}

  engine::LoadedModel loaded;
  int64_t batch;
  std::mutex mutex;
  std::unique_ptr<engine::Machine> machine;
  std::unique_ptr<engine::Predictor> outputs, labels;

  engine::Machine& device();
  engine::Predictor& predictor(engine::Answer answer);
  // Discards the plans, because the weights have changed.
  void forget_plans() {
    outputs.reset();
    labels.reset();
  }
};

struct QueueAccess {
  static GpuQueue make(Runtime& runtime) { return GpuQueue(&runtime); }
};

namespace api {

engine::ModelOptions model_options(const DeviceOptions& options);

// Converts one array to the fields of a preparation: its only field, or a column for each of
// several. Throws Error(usage), naming `what`, for samples of another shape.
data::FieldSet input_fields(const Tensor& samples, const data::Preparation& preparation,
                            const char* what);

Evaluation scores_of(const engine::Evaluation& result);

// Throws Error(usage) for an array on another GPU than the runtime's device.
void check_place(const Array& array, const Device& device, const char* what);

void count_copied(int64_t bytes);

}  // namespace api

// Makes public models from the library's own.
struct ModelAccess {
  static Model make(engine::LoadedModel model, const DeviceOptions& options = {}) {
    return Model(std::make_shared<Model::State>(std::move(model), options));
  }
  static Model::State& state(const Model& model) { return *model.state_; }
};

}  // namespace ridgeline
