#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/source/table_format.h"

namespace ridgeline::data {

// A table of separated values (CSV, TSV and their kin; plain or gzip), a field a column: numbers as
// int64 or fp64, words as categories, booleans or texts. Cells may be quoted as in RFC 4180; lines
// end in LF or CRLF; blank lines are skipped. Throws data with the line and the column on a line of
// another number of cells, on a cell that is no number in a column of numbers, and on what
// CsvReader refuses.
FieldSet read_table(const std::filesystem::path& path, const TableOptions& options = {});

// The same of bytes from elsewhere: `open` gives them from their beginning, and is called twice.
FieldSet read_table(const std::function<std::unique_ptr<ByteStream>()>& open,
                    const TableOptions& options);

}  // namespace ridgeline::data
