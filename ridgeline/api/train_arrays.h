#pragma once

#include <memory>
#include <optional>

#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/ridgeline.h"

namespace ridgeline::api {

// The config with what arrays say about themselves: whether targets are classes or values.
engine::Config parse_for_arrays(const Config& config, const Samples& samples);

// Arrays as a data set for training. `known`: how a model prepares samples already, or null.
std::shared_ptr<const data::DataSet> prepare_arrays(const engine::Config& config,
                                                    const Samples& samples,
                                                    const std::optional<Samples>& test,
                                                    const std::optional<Samples>& validation,
                                                    bool hold_out,
                                                    const data::Preparation* known = nullptr);

// Whether the library can use these samples where they lie, because the preparation hands float32
// numbers on as they are. Throws usage for samples on a GPU that it cannot.
bool reads_in_place(const Tensor& inputs, const data::Preparation& preparation, const char* what);

// One batch for a model that has this preparation.
data::SampleSet prepare_batch(const Samples& samples, const data::Preparation& preparation,
                              const char* what);

}  // namespace ridgeline::api
