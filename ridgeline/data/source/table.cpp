#include "ridgeline/data/source/table.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/csv.h"
#include "ridgeline/data/record_buffer.h"
#include "ridgeline/data/source/bounded_bytes.h"
#include "ridgeline/data/source/number.h"

namespace ridgeline::data {
namespace {

class TableReader {
 public:
  TableReader(ByteStream& bytes, TableFormat format, int64_t first_line)
      : reader_(bytes, format.separator),
        format_(std::move(format)),
        file_(bytes.name()),
        block_(std::clamp<int64_t>(kBlockCells / int64_t(format_.columns.size()), 1, 64)),
        numbers_(size_t(block_) * format_.columns.size()),
        words_(size_t(block_) * format_.columns.size()) {
    reader_.continue_at(first_line, 0);
  }

  FieldSet read() {
    std::vector<std::string_view> cells;
    if (format_.header) reader_.next(cells);
    for (;;) {
      take_plain_records();
      if (!reader_.next(cells)) break;
      add_record(cells);
    }
    if (format_.columns.front().size() == 0) {
      throw_error(ErrorKind::data, "{}: holds {} and no records; {}", file_,
                  format_.header ? "a header" : "nothing",
                  format_.header ? "add them, or say header = \"no\" if this line is one"
                                 : "was it saved?");
    }
    FieldSet set(file_);
    for (size_t c = 0; c < format_.columns.size(); ++c) {
      TableColumn& column = format_.columns[c];
      // A separator at the end of every line makes a column of no name and no cells.
      const bool last = c > 0 && c + 1 == format_.columns.size();
      const bool unnamed = format_.header && column.name() == std::to_string(c + 1);
      if (last && unnamed && column.blank()) continue;
      set.add(std::move(column).finish(file_));
    }
    return set;
  }

 private:
  // Takes the buffered records that are simple: cells without quotes, plain numbers, ASCII words.
  // It stops at the first other one, which CsvReader then takes.
  void take_plain_records() {
    constexpr size_t kReadAhead = 8;  // of read_decimal
    const std::string_view window = reader_.window();
    if (window.size() < kReadAhead) return;
    const size_t whole_lines = window.substr(0, window.size() - kReadAhead).rfind('\n') + 1;
    const char *at = window.data(), *const end = at + whole_lines;
    int64_t lines = 0;
    for (bool plain = true; plain;) {
      int64_t block = 0;
      while (block < block_ && (plain = at != end && take_plain_record(at, block))) ++block;
      add_block(block);
      lines += block;
    }
    reader_.skip(size_t(at - window.data()), lines);
  }

  // Takes the record at `at` as number `record` of the block and moves past it, or leaves `at`
  // unchanged. A line end must follow somewhere.
  bool take_plain_record(const char*& at, int64_t record) {
    const char* next = at;
    const size_t columns = format_.columns.size();
    double* numbers = numbers_.data() + size_t(record) * columns;
    std::string_view* words = words_.data() + size_t(record) * columns;
    for (size_t c = 0; c < columns; ++c) {
      const bool number = format_.columns[c].kind() == TableColumn::Kind::number;
      if (!(number ? take_number(next, numbers[c]) : take_word(next, words[c]))) return false;
      if (c + 1 < columns) {
        if (*next != format_.separator) return false;
      } else {
        if (*next == '\r') ++next;
        if (*next != '\n') return false;
      }
      ++next;
    }
    // An empty line is skipped; it is not a missing value.
    if (columns == 1 && (*at == '\n' || *at == '\r')) return false;
    at = next;
    return true;
  }

  bool take_number(const char*& at, double& number) const {
    while (*at == ' ' && format_.separator != ' ') ++at;
    if (format_.decimal == ',') return false;  // the fast path knows points
    if (*at == format_.separator || *at == '\n') {
      number = std::numeric_limits<double>::quiet_NaN();
      return true;
    }
    return read_decimal(at, number);
  }

  bool take_word(const char*& at, std::string_view& word) const {
    const char* const begin = at;
    unsigned seen = 0;
    while (*at != format_.separator && *at != '\n' && *at != '\r' && *at != '"' && *at != '\0') {
      seen |= static_cast<unsigned char>(*at++);
    }
    word = {begin, size_t(at - begin)};
    const bool ends = *at == format_.separator || *at == '\n' || *at == '\r';
    return ends && seen < 0x80 && !is_missing_word(word);
  }

  void add_block(int64_t records) {
    const size_t columns = format_.columns.size();
    for (size_t c = 0; c < columns; ++c) {
      TableColumn& column = format_.columns[c];
      if (column.kind() == TableColumn::Kind::number) {
        column.add(numbers_.data() + c, columns, size_t(records));
      } else {
        for (size_t r = 0; r < size_t(records); ++r) column.add(words_[r * columns + c]);
      }
    }
  }

  void add_record(const std::vector<std::string_view>& cells) {
    // The columns were found in an earlier pass, and the file may have changed since.
    if (cells.size() != format_.columns.size()) {
      throw_error(ErrorKind::data, "{}: line {} has {} cells, but the table has {} columns", file_,
                  reader_.line(), cells.size(), format_.columns.size());
    }
    for (size_t c = 0; c < format_.columns.size(); ++c) {
      TableColumn& column = format_.columns[c];
      double number = 0;
      if (is_missing_word(cells[c])) {
        column.add_missing();
      } else if (column.kind() == TableColumn::Kind::words) {
        column.add(cells[c]);
      } else if (parse_number(cells[c], format_.decimal, number)) {
        column.add(number);
      } else if (is_missing_number(cells[c])) {
        column.add_missing();
      } else {
        refuse_cell(c, cells[c]);
      }
    }
  }

  [[noreturn]] void refuse_cell(size_t c, std::string_view cell) const {
    const char other = format_.decimal == ',' ? '.' : ',';
    const bool mixed = cell.find(other) != std::string_view::npos;
    throw_error(ErrorKind::data,
                "{}: line {}: column {} ({}): {} is not a number, but the column holds numbers; {}",
                file_, reader_.line(), c + 1, quote(format_.columns[c].name()), quote(cell),
                mixed ? fmt::format("most numbers here have a decimal {}: write all of them alike",
                                    format_.decimal == ',' ? "comma" : "point")
                      : "mend it, leave it empty, or read the column as a category");
  }

  CsvReader reader_;
  TableFormat format_;
  const std::string& file_;
  static constexpr int64_t kBlockCells = 1 << 16;
  int64_t block_;                // records turned into columns at a time
  std::vector<double> numbers_;  // of a block, record by record
  std::vector<std::string_view> words_;
};

constexpr size_t kFirstSample = size_t{16} << 10;
constexpr int64_t kFewLines = 10;  // enough lines for the first sample

}  // namespace

FieldSet read_table(const std::function<std::unique_ptr<ByteStream>()>& open,
                    const TableOptions& options) {
  const auto first = open();
  std::string sample;
  bool whole = false;
  // A small table takes little memory. One with very many columns has lines longer than the usual
  // sample, which grows until it holds some of them.
  for (size_t size = kFirstSample; !whole; size *= 2) {
    const size_t have = sample.size();
    sample.resize(size);
    const auto rest = std::as_writable_bytes(std::span(sample)).subspan(have);
    const size_t got = first->read(rest);
    sample.resize(have + got);
    whole = got < rest.size();
    if (size < kTableSample) continue;
    if (std::ranges::count(sample, '\n') > kFewLines || size >= RecordBuffer::kMostRecord) break;
  }
  if (sample.empty()) throw_error(ErrorKind::data, "{}: is empty: it has no bytes", first->name());
  TableOptions said = options;
  const size_t skipped = separator_line(sample, said.separator);
  if (options.separator != '\0') said.separator = options.separator;
  TableFormat format =
      find_table_format(std::string_view(sample).substr(skipped), whole, said, first->name());
  const auto bytes = open();
  std::vector<std::byte> ignored(skipped);
  bytes->read(ignored);
  return TableReader(*bytes, std::move(format), skipped > 0 ? 2 : 1).read();
}

FieldSet read_table(const std::filesystem::path& path, const TableOptions& options) {
  return read_table([&] { return open_bounded(path); }, options);
}

}  // namespace ridgeline::data
