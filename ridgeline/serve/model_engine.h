#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/serve/batcher.h"

namespace ridgeline::serve {

// Makes plans of a model for 1, 2, 4, ... `most` samples on a device; their seconds are added to
// `busy`. `inputs` is the type of the prepared samples.
std::unique_ptr<Engine> make_engine(const engine::LoadedModel& model, const std::string& device,
                                    DType inputs, int64_t most,
                                    std::shared_ptr<std::atomic<double>> busy);

}  // namespace ridgeline::serve
