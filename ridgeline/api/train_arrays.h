#pragma once

#include <memory>
#include <optional>

#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/ridgeline.h"

namespace ridgeline::api {

// Completes the config from the arrays: whether targets are classes or values.
engine::Config parse_for_arrays(const Config& config, const Samples& samples);

// Makes a data set for training from arrays. `known` is a model's existing preparation, or null.
std::shared_ptr<const data::DataSet> prepare_arrays(const engine::Config& config,
                                                    const Samples& samples,
                                                    const std::optional<Samples>& test,
                                                    const std::optional<Samples>& validation,
                                                    bool hold_out,
                                                    const data::Preparation* known = nullptr);

// Whether the library can use these samples in place, because the preparation leaves float32
// numbers unchanged. Throws Error(usage) for samples on a GPU for which it cannot.
bool reads_in_place(const Tensor& inputs, const data::Preparation& preparation, const char* what);

// Prepares one batch for a model with this preparation.
data::SampleSet prepare_batch(const Samples& samples, const data::Preparation& preparation,
                              const char* what);

}  // namespace ridgeline::api
