#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/data/text_reader.h"
#include "ridgeline/data/vocabulary.h"

namespace ridgeline::data {

// How texts become samples of bytes, and labels become class numbers.
struct TextCoding {
  Vocabulary vocabulary{std::string(Vocabulary::paper())};
  int64_t length = 1014;  // codes per sample
  bool backward = true;   // the last character kept comes first
  // A label is one of these names, or an integer counted from first_label on. Without names:
  // numbers only, `classes` of them (0: as many as occur in the file).
  std::vector<std::string> class_names;
  int classes = 0;
  int first_label = 0;
};

// Returns the class number of a label as written; throws Error(data) with file and line.
int32_t class_of(std::string_view label, const TextCoding& coding, const std::string& file,
                 int64_t line);

// Loads a whole labelled file: images are codes, uint8 [n, length]. Throws Error(data) if it holds
// no record.
SampleSet load_text(const std::filesystem::path& path, const TextColumns& columns,
                    const TextCoding& coding, std::string name);

}  // namespace ridgeline::data
