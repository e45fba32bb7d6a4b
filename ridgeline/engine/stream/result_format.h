#pragma once

#include <string_view>

namespace ridgeline::engine {

// automatic: by the output's ending, else csv
enum class InferFormat { automatic, csv, json, npy };

enum class OutputKind {
  automatic,      // values of a regressor, else probabilities
  probabilities,  // of each class, beside the label; of a model trained with mse, its outputs
  logits,         // what the last layer gives, before any softmax
  labels,         // alone
  values,         // in the units of the data
};

// Return whether a file that begins so is an output of infer(), or a rank's own part of one.
bool is_infer_output(std::string_view head);
bool is_infer_part(std::string_view head);

}  // namespace ridgeline::engine
