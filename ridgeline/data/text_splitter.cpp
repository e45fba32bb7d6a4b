#include "ridgeline/data/text_splitter.h"

#include <cstring>
#include <utility>

#include "ridgeline/data/csv_columns.h"

namespace ridgeline::data {
namespace {

constexpr size_t kSplitChunk = size_t{1} << 20;

}  // namespace

TextSplitter::TextSplitter(std::unique_ptr<ByteStream> bytes, const TextColumns& columns,
                           const TextPlace& place)
    : bytes_(std::move(bytes)), columns_(columns), line_(place.line) {
  if (columns_.format != TextFormat::csv) {
    lines_ = std::make_unique<RecordBuffer>(*bytes_, kSplitChunk, place.begins_file);
    return;
  }
  csv_ = std::make_unique<CsvReader>(*bytes_, ',', kSplitChunk, place.begins_file);
  const CsvColumns found = find_csv_columns(*csv_, columns_, bytes_->name());
  columns_.text.clear();
  for (const size_t column : found.text) columns_.text.push_back(std::to_string(column + 1));
  if (found.label) columns_.label = std::to_string(*found.label + 1);
  if (place.columns > 0) csv_->continue_at(place.line, place.columns);
}

TextSplitter::Block TextSplitter::next(int64_t records, std::vector<uint8_t>& out) {
  Block block;
  block.place.begins_file = false;
  bool first = true;
  std::string_view text;
  const size_t before = out.size();
  while (block.records < records && out.size() - before < kMostBytes) {
    bool blank = false;
    if (csv_) {
      const CsvReader::Raw found = csv_->next_raw(text);
      ended_ = found == CsvReader::Raw::end;
      if (ended_) break;
      blank = found == CsvReader::Raw::blank;
      line_ = csv_->line();
    } else if (ended_ = !next_line(text, blank); ended_) {
      break;
    }
    if (first) block.place.line = line_;
    first = false;
    if (!csv_) ++line_;
    block.records += !blank;
    out.insert(out.end(), text.begin(), text.end());
    // A block is read on its own, so its last line must end before what is appended.
    if (text.back() != '\n') out.push_back('\n');
  }
  if (csv_) block.place.columns = csv_->columns();
  return block;
}

bool TextSplitter::next_line(std::string_view& line, bool& blank) {
  lines_->drop(used_);
  used_ = 0;
  size_t searched = 0;
  const void* end = nullptr;
  for (bool more = true;;) {
    if (lines_->size() > searched) {
      end = std::memchr(lines_->data() + searched, '\n', lines_->size() - searched);
    }
    if (end != nullptr || !more) break;
    searched = lines_->size();
    more = lines_->more(line_);
  }
  if (end == nullptr && lines_->size() == 0) return false;
  used_ =
      end == nullptr ? lines_->size() : size_t(static_cast<const char*>(end) - lines_->data()) + 1;
  line = {lines_->data(), used_};
  // Lines of JSON may be blank, those of LineText may not.
  blank = columns_.format == TextFormat::jsonl &&
          line.find_first_not_of(" \t\r\n") == std::string_view::npos;
  return true;
}

}  // namespace ridgeline::data
