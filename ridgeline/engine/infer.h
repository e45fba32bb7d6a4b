#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/engine/model_io.h"

namespace ridgeline::engine {

enum class InferFormat { automatic, csv, json };  // automatic: by the output's ending, else csv

struct InferOptions {
  ModelOptions model;
  InferFormat format = InferFormat::automatic;
  int64_t batch = 256;           // rows a launch; results do not depend on it
  std::filesystem::path report;  // folder for report.html; empty: none
};

struct InferReport {
  int64_t rows = 0;
  double seconds = 0;  // of the network alone, without reading and writing
  std::vector<std::string> warnings;
};

// Labels and probabilities of every image in `input`: an IDX file of bytes, or raw bytes item after
// item, either with gzip. CSV has the header index,label,p0,...; JSON is one object a line. An
// `output` of "-" is stdout; a file appears whole or not at all.
InferReport infer(const std::filesystem::path& model, const std::filesystem::path& input,
                  const std::filesystem::path& output, const InferOptions& options);

}  // namespace ridgeline::engine
