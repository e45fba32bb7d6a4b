#pragma once

#include <string_view>

namespace ridgeline::engine {

// automatic: by the output's file extension, else csv
enum class InferFormat { automatic, csv, json, npy };

enum class OutputKind {
  automatic,      // values of a regressor, else probabilities
  probabilities,  // of each class, beside the label; of a model trained with mse, its outputs
  logits,         // the last layer's output, before any softmax
  labels,         // only labels
  values,         // in the units of the data
};

// Return whether a file with this beginning is an output of infer(), or a rank's part of one.
bool is_infer_output(std::string_view head);
bool is_infer_part(std::string_view head);

}  // namespace ridgeline::engine
