#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/data/scaling.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/nn/model_file.h"

namespace ridgeline::engine {

// A model file and what its metadata says about it.
struct LoadedModel {
  Config config;
  nn::Model model;
  data::Scaling scaling;
  int classes = 0;      // 0: its outputs are values
  std::string symbols;  // by code, of the text it was trained on; else empty
  std::optional<data::Preparation> preparation{};  // for a model of a user's own data
  std::vector<std::string> warnings;
};

struct ModelOptions {
  RunConfig run;                       // device, threads, tuning; the precision is the next line's
  std::optional<Precision> precision;  // overrides the precision it was trained in
  bool strict = false;  // NaN and infinite weights are errors, and missing checksums are reported
};

// Throws Error(model) if the file is not one of ours or does not match its own description.
LoadedModel load_model(const std::filesystem::path& file, const ModelOptions& options);
// Loads the bytes of a model file; messages begin with `origin`.
LoadedModel load_model(std::vector<std::byte> bytes, const std::string& origin,
                       const ModelOptions& options);

// Returns the description in a model file: nn::model_metadata, and how bytes become inputs.
nn::Metadata describe_model(const nn::Model& model, const Config& config,
                            const data::Scaling& scaling, int classes,
                            const std::string& symbols = {},
                            const data::Preparation* preparation = nullptr);

// Returns a model of the same layers and weights, whose settings are the config's.
nn::Model copy_of(const nn::Model& model, const Config& config);

// Returns the model in a folder that train --out made, or the file itself; throws Error(model) if
// the folder has none.
std::filesystem::path model_path(const std::filesystem::path& file_or_folder);

}  // namespace ridgeline::engine
