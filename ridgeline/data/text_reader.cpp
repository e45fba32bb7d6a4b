#include "ridgeline/data/text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/words.h"
#include "ridgeline/data/csv.h"
#include "ridgeline/data/csv_columns.h"

namespace ridgeline::data {
namespace {

class LineText final : public TextReader {
 public:
  LineText(std::unique_ptr<ByteStream> bytes, const TextPlace& place)
      : bytes_(std::move(bytes)), buffer_(*bytes_), line_(place.line - 1) {}

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
      : bytes_(std::move(bytes)), reader_(*bytes_) {
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
  }

  const std::string& file() const override { return lines_.file(); }

  bool next(TextRecord& record) override {
    TextRecord line;
    do {
      if (!lines_.next(line)) return false;
    } while (line.text.find_first_not_of(" \t") == std::string_view::npos);
    const nlohmann::json object = parse(line);
    text_.clear();
    for (const std::string& key : columns_.text) {
      if (!text_.empty()) text_ += ' ';
      text_ += value(object, key, line.line);
    }
    label_ = columns_.label.empty() ? std::string() : value(object, columns_.label, line.line);
    record = {text_, label_, line.line};
    return true;
  }

 private:
  nlohmann::json parse(const TextRecord& line) {
    keys_.clear();
    const auto note = [this](int depth, nlohmann::json::parse_event_t event, nlohmann::json& key) {
      const bool ours = depth == 1 && event == nlohmann::json::parse_event_t::key;
      if (ours) keys_.push_back(key.get<std::string>());
      return true;
    };
    nlohmann::json object = nlohmann::json::parse(line.text, note, false);
    if (!object.is_object()) {
      throw_error(ErrorKind::data, "{}: line {}: is not a JSON object", file(), line.line);
    }
    if (keys_.size() != object.size()) {
      std::ranges::sort(keys_);
      throw_error(ErrorKind::data, "{}: line {}: the key {} is there twice", file(), line.line,
                  quote(*std::ranges::adjacent_find(keys_)));
    }
    return object;
  }

  std::string value(const nlohmann::json& object, const std::string& key, int64_t line) const {
    const auto found = object.find(key);
    if (found == object.end()) {
      throw_error(ErrorKind::data, "{}: line {}: has no key \"{}\"", file(), line, key);
    }
    if (found->is_string()) return found->get<std::string>();
    if (found->is_number_integer()) return found->dump();
    throw_error(ErrorKind::data, "{}: line {}: \"{}\" is neither text nor a whole number", file(),
                line, key);
  }

  LineText lines_;
  TextColumns columns_;
  std::vector<std::string> keys_;  // of the line's object, as written
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
