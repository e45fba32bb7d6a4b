#include "ridgeline/data/text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/data/csv.h"
#include "ridgeline/data/csv_columns.h"
#include "ridgeline/data/json_fields.h"

namespace ridgeline::data {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

class LineText final : public TextReader {
 public:
  LineText(std::unique_ptr<ByteStream> bytes, const TextPlace& place)
      : bytes_(std::move(bytes)),
        buffer_(*bytes_, kChunk, place.begins_file),
        line_(place.line - 1) {}

  const std::string& file() const override { return bytes_->name(); }

  bool next(TextRecord& record) override {
    buffer_.drop(used_);
    used_ = 0;
    ++line_;
    bool more = true;
    size_t searched = 0;
    const void* end = nullptr;
    for (;;) {
      if (buffer_.size() > searched) {
        end = std::memchr(buffer_.data() + searched, '\n', buffer_.size() - searched);
      }
      if (end != nullptr || !more) break;
      searched = buffer_.size();
      more = buffer_.more(line_);
    }
    if (end == nullptr && buffer_.size() == 0) return false;
    size_t length = buffer_.size();
    used_ = length;
    if (end != nullptr) {
      length = size_t(static_cast<const char*>(end) - buffer_.data());
      used_ = length + 1;
    }
    if (length > 0 && buffer_.data()[length - 1] == '\r') --length;
    record = {{buffer_.data(), length}, {}, line_};
    check_text(record.text, file(), line_);
    return true;
  }

 private:
  std::unique_ptr<ByteStream> bytes_;
  RecordBuffer buffer_;
  size_t used_ = 0;
  int64_t line_;
};

class CsvText final : public TextReader {
 public:
  CsvText(std::unique_ptr<ByteStream> bytes, const TextColumns& columns, const TextPlace& place)
      : bytes_(std::move(bytes)), reader_(*bytes_, ',', kChunk, place.begins_file) {
    const CsvColumns found = find_csv_columns(reader_, columns, file());
    text_ = found.text;
    label_ = found.label;
    if (place.columns > 0) reader_.continue_at(place.line, place.columns);
  }

  const std::string& file() const override { return bytes_->name(); }

  bool next(TextRecord& record) override {
    if (!reader_.next(fields_)) return false;
    const size_t last = std::max(*std::ranges::max_element(text_), label_.value_or(0));
    if (last >= fields_.size()) {
      throw_error(ErrorKind::data, "{}: line {}: has {} columns, but column {} was asked for",
                  file(), reader_.line(), fields_.size(), last + 1);
    }
    record.line = reader_.line();
    record.label = label_ ? fields_[*label_] : std::string_view();
    record.text = fields_[text_[0]];
    if (text_.size() > 1) {
      joined_.assign(record.text);
      for (size_t i = 1; i < text_.size(); ++i) joined_.append(" ").append(fields_[text_[i]]);
      record.text = joined_;
    }
    return true;
  }

 private:
  std::unique_ptr<ByteStream> bytes_;
  CsvReader reader_;
  std::vector<size_t> text_;
  std::optional<size_t> label_;
  std::vector<std::string_view> fields_;
  std::string joined_;
};

class JsonText final : public TextReader {
 public:
  JsonText(std::unique_ptr<ByteStream> bytes, const TextColumns& columns, const TextPlace& place)
      : lines_(std::move(bytes), place), columns_(columns) {
    if (columns_.text.empty()) columns_.text = {"text"};
    for (const std::string& key : columns_.text) fields_.want(key);
    if (!columns_.label.empty()) fields_.want(columns_.label);
  }

  const std::string& file() const override { return lines_.file(); }

  bool next(TextRecord& record) override {
    TextRecord line;
    do {
      if (!lines_.next(line)) return false;
    } while (line.text.find_first_not_of(" \t") == std::string_view::npos);
    fields_.read(line.text, file(), line.line);
    text_.clear();
    for (const std::string& key : columns_.text) {
      if (!text_.empty()) text_ += ' ';
      text_ += fields_.value(key);
    }
    label_ = columns_.label.empty() ? std::string() : fields_.value(columns_.label);
    record = {text_, label_, line.line};
    return true;
  }

 private:
  LineText lines_;
  TextColumns columns_;
  JsonFields fields_;
  std::string text_, label_;
};

}  // namespace

TextFormat text_format(const std::filesystem::path& path) {
  std::filesystem::path ending = path.extension();
  if (ending == ".gz") ending = path.stem().extension();
  if (ending == ".csv") return TextFormat::csv;
  if (ending == ".jsonl" || ending == ".json") return TextFormat::jsonl;
  return TextFormat::lines;
}

std::unique_ptr<TextReader> open_text(std::unique_ptr<ByteStream> bytes, const TextColumns& columns,
                                      const TextPlace& place) {
  switch (columns.format) {
    case TextFormat::csv:
      return std::make_unique<CsvText>(std::move(bytes), columns, place);
    case TextFormat::jsonl:
      return std::make_unique<JsonText>(std::move(bytes), columns, place);
    default:
      return std::make_unique<LineText>(std::move(bytes), place);
  }
}

std::unique_ptr<TextReader> open_text(const std::filesystem::path& path,
                                      const TextColumns& columns) {
  TextColumns settled = columns;
  if (settled.format == TextFormat::automatic) settled.format = text_format(path);
  return open_text(open_bytes(path), settled, {});
}

}  // namespace ridgeline::data
