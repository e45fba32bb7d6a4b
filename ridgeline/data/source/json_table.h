#pragma once

#include <filesystem>
#include <memory>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/source/table_format.h"

namespace ridgeline::data {

// A table of JSON lines (plain or gzip): an object a line, a field a key, in the order in which
// keys first occur. Numbers, true and false, and strings become what they become in a table of
// separated values; null and a key that is not there are missing. An array of numbers is a sample
// of that shape or, where lengths differ, a sequence: of numbers (int32 where all are whole:
// tokens), or of arrays of one length (vectors). Of `options`, only categories and texts matter.
// Throws data with the line and the key on a line that is no object, a key that is there twice, an
// object inside, and a value of another kind than those before it.
FieldSet read_json_table(const std::filesystem::path& path, const TableOptions& options = {});
FieldSet read_json_table(std::unique_ptr<ByteStream> bytes, const TableOptions& options = {});

}  // namespace ridgeline::data
