#pragma once

#include <mutex>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/predict.h"
#include "ridgeline/ridgeline.h"

namespace ridgeline {

// A model and, once it was asked something, the plans that answer.
struct Model::State {
  State(engine::LoadedModel model, const DeviceOptions& options)
      : loaded(std::move(model)), batch(options.batch) {}

  engine::LoadedModel loaded;
  int64_t batch;
  std::mutex mutex;
  std::unique_ptr<engine::Machine> machine;
  std::unique_ptr<engine::Predictor> outputs, labels;

  engine::Predictor& predictor(engine::Answer answer);
};

// Makes public models of the library's own.
struct ModelAccess {
  static Model make(engine::LoadedModel model, const DeviceOptions& options = {}) {
    return Model(std::make_shared<Model::State>(std::move(model), options));
  }
};

}  // namespace ridgeline
