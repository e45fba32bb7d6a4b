#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/engine/model_io.h"

namespace ridgeline::engine {

struct GenerateOptions {
  ModelOptions model;
  int64_t characters = 500;
  double temperature = 1;  // 0: always the likeliest character
  std::string prompt;      // empty: starts as after a line break
  uint64_t seed = 1;
};

struct GenerateReport {
  std::string text;    // the prompt and its continuation
  double seconds = 0;  // of the network alone
  std::vector<std::string> warnings;
};

// Generates text from a language model, character by character: each is drawn from the
// probabilities to the power of 1 / temperature, as a function of the seed. Throws Error(usage) for
// a model of another kind and for characters of the prompt that the model does not know.
GenerateReport generate(const std::filesystem::path& model, const GenerateOptions& options);

}  // namespace ridgeline::engine
