#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/data/prepare/target.h"
#include "ridgeline/engine/stream/chunk.h"
#include "ridgeline/engine/stream/result_format.h"

namespace ridgeline::engine {

struct WriterOptions {
  InferFormat format = InferFormat::csv;        // not automatic
  OutputKind kind = OutputKind::probabilities;  // not automatic
  int64_t outputs = 0;                          // of a sample
  std::vector<std::string> class_names{};       // none: labels are numbers
  char letter = 'p';  // names the outputs: p0, p1, ...; with class names p_cat, p_dog, ...
  const data::Target* target = nullptr;  // of values: restored to the units of the data
  bool several_labels = false;           // a sample has several labels of 0 and 1 and no class
  std::vector<double> quantiles{};       // of values: each has an output for each of these
  bool wide = false;                     // outputs are fp64
  bool header = true;
  int64_t first = 0;  // the number of the first chunk
};

// Formats results: lines of CSV or JSON, or the numbers of a .npy array.
class ResultText {
 public:
  explicit ResultText(const WriterOptions& options);

  std::string header() const;
  // Appends all results of a chunk.
  void append(const ChunkResult& result, std::string& text) const;

  // Returns the header of a .npy array of this many samples; its size is always the same. Its keys
  // are in another order than NumPy's, by which is_infer_output() recognises our own files.
  std::string npy_header(int64_t samples) const;

 private:
  void append_line(int64_t index, int32_t label, std::span<const double> values,
                   std::string& text) const;
  void append_numbers(const ChunkResult& result, std::span<const double> values,
                      std::string& text) const;
  std::vector<std::string> column_names() const;
  // Whether samples have numbers alone, and no class.
  bool numbers() const { return options_.kind == OutputKind::values || options_.several_labels; }

  WriterOptions options_;
  std::vector<std::string> labels_;  // class names in output form
};

}  // namespace ridgeline::engine
