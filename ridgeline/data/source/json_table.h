#pragma once

#include <filesystem>
#include <memory>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/source/table_format.h"

namespace ridgeline::data {

// Reads a table of JSON lines (plain or gzip): one object per line, one field per key, in the order
// in which keys first occur. Numbers, booleans and strings are treated as in a table of separated
// values; null and an absent key are missing values. An array of numbers is a sample of that shape
// or, if lengths differ, a sequence: of numbers (int32 if all are integers: tokens), or of arrays
// of one length (vectors). The keys of an object inside become fields of their own: address.city.
// Only categories and texts of `options` are used. Throws Error(data) with the line and the key for
// a line that is not an object, a repeated key, an object in an array, and a value of another kind
// than those before it.
FieldSet read_json_table(const std::filesystem::path& path, const TableOptions& options = {});
FieldSet read_json_table(std::unique_ptr<ByteStream> bytes, const TableOptions& options = {});

}  // namespace ridgeline::data
