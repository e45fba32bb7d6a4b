#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/source/table_column.h"
#include "ridgeline/data/table_options.h"

namespace ridgeline::data {

// The form of a table.
struct TableFormat {
  char separator = ',';
  bool header = false;
  size_t records = 0;                // found in the sample, a header included
  char decimal = '.';                // before the fraction of a number
  std::vector<TableColumn> columns;  // empty of cells
};

constexpr size_t kTableSample = size_t{1} << 20;  // bytes from which the form is detected
constexpr int64_t kTableSampleRecords = 1000;
// The most columns of a table. A column of no cells takes some 200 bytes.
constexpr int64_t kMostColumns = int64_t{1} << 20;

// Finds the form from the first bytes of a table; `whole`: there are no others. A line is a header
// if none of its cells is a number and a column below holds numbers; where no column does, if its
// words are distinct and do not occur below, which is also so if there is no line below. Names that
// count the columns, 0, 1, 2, ..., as pandas' do, are a header as well. A column
// holds numbers if at least nine in ten of its cells do that are not missing: a cell of it that is
// no number is then a fault of the table, to be named, and not a category. Numbers have decimal
// commas if more of their cells can be read that way only; 1,234 counts among these in tables cut
// by ';', as spreadsheets write them, and is 1234 in others. Throws data when the sample holds no
// record.
TableFormat find_table_format(std::string_view sample, bool whole, const TableOptions& options,
                              const std::string& file);

// Spreadsheets may say the separator in a line of its own at the beginning: "sep=;". Returns the
// bytes of that line, 0 if there is none, and sets `separator`.
size_t separator_line(std::string_view sample, char& separator);

// Detects only the separator.
char find_separator(std::string_view sample, bool whole);
// Returns whether the separator divides every line of the sample into the same number of cells, two
// or more.
bool alike_lines(std::string_view sample, bool whole, char separator);

}  // namespace ridgeline::data
