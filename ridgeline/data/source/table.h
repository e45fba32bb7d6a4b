#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/source/table_format.h"

namespace ridgeline::data {

// Reads a table of separated values (CSV, TSV and similar; plain or gzip), one field per column:
// numbers as int64 or fp64, words as categories, booleans or texts. Cells may be quoted as in RFC
// 4180; lines end in LF or CRLF; blank lines are skipped. Throws Error(data) with the line and the
// column for a line with another number of cells, for a cell that is not a number in a column of
// numbers, and for whatever CsvReader refuses.
FieldSet read_table(const std::filesystem::path& path, const TableOptions& options = {});

// Reads bytes from elsewhere: `open` returns them from their beginning, and is called twice.
FieldSet read_table(const std::function<std::unique_ptr<ByteStream>()>& open,
                    const TableOptions& options);

}  // namespace ridgeline::data
