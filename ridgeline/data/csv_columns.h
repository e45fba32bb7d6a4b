#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/csv.h"
#include "ridgeline/data/text_reader.h"

namespace ridgeline::data {

// The indices of the texts and the label in each record, from 0.
struct CsvColumns {
  std::vector<size_t> text;
  std::optional<size_t> label;
};

// Takes the header from `reader` if a column is given by name. Throws Error(usage) if no text
// column is given, Error(data) if one does not exist.
CsvColumns find_csv_columns(CsvReader& reader, const TextColumns& columns, const std::string& file);

}  // namespace ridgeline::data
