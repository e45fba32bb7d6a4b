#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/csv.h"
#include "ridgeline/data/text_reader.h"

namespace ridgeline::data {

// Where the texts and the label are in each record, from 0.
struct CsvColumns {
  std::vector<size_t> text;
  std::optional<size_t> label;
};

// Takes the header from `reader` if a column is given by name. Throws usage when no text column is
// given, data when one is not there.
CsvColumns find_csv_columns(CsvReader& reader, const TextColumns& columns, const std::string& file);

}  // namespace ridgeline::data
