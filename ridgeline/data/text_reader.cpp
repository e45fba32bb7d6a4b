#include "ridgeline/data/text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "ridgeline/core/error.h"
#include "ridgeline/data/csv.h"

namespace ridgeline::data {
namespace {

// The file and its unpacked bytes, before what reads them.
class OpenText : public TextReader {
 public:
  explicit OpenText(const std::filesystem::path& path) : file_(path), source_(file_) {}
  const std::string& file() const override { return file_.name(); }

 protected:
  InputFile file_;
  ByteSource source_;
};

class LineText final : public OpenText {
 public:
  explicit LineText(const std::filesystem::path& path) : OpenText(path), buffer_(source_) {}

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
  RecordBuffer buffer_;
  size_t used_ = 0;
  int64_t line_ = 0;
};

class CsvText final : public OpenText {
 public:
  CsvText(const std::filesystem::path& path, const TextColumns& columns)
      : OpenText(path), reader_(source_) {
    if (columns.text.empty()) {
      throw_error(ErrorKind::usage,
                  "{}: which columns hold the text? Name them, or give their "
                  "numbers from 1",
                  file());
    }
    std::vector<std::string> names = columns.text;
    if (!columns.label.empty()) names.push_back(columns.label);
    const bool header = std::ranges::any_of(names, [](const auto& n) { return !number(n); });
    if (header && !reader_.next(fields_)) {
      throw_error(ErrorKind::data, "{}: is empty; a header with {} was expected", file(),
                  fmt::join(names, ", "));
    }
    for (const std::string& name : columns.text) text_.push_back(find(name, header));
    if (!columns.label.empty()) label_ = find(columns.label, header);
  }

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
  // A column's place, from 0, if it is written as a number.
  static std::optional<size_t> number(std::string_view text) {
    size_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
    return value - 1;
  }

  size_t find(const std::string& name, bool header) {
    if (header) {
      const auto at = std::ranges::find(fields_, name);
      if (at != fields_.end()) return size_t(at - fields_.begin());
    }
    if (const auto place = number(name)) return *place;
    throw_error(ErrorKind::data, "{}: line 1: no column '{}'; there are {}", file(), name,
                fmt::join(fields_, ", "));
  }

  CsvReader reader_;
  std::vector<size_t> text_;
  std::optional<size_t> label_;
  std::vector<std::string_view> fields_;
  std::string joined_;
};

class JsonText final : public TextReader {
 public:
  JsonText(const std::filesystem::path& path, const TextColumns& columns)
      : lines_(path), columns_(columns) {
    if (columns_.text.empty()) columns_.text = {"text"};
  }

  const std::string& file() const override { return lines_.file(); }

  bool next(TextRecord& record) override {
    TextRecord line;
    do {
      if (!lines_.next(line)) return false;
    } while (line.text.find_first_not_of(" \t") == std::string_view::npos);
    const auto object = nlohmann::json::parse(line.text, nullptr, false);
    if (!object.is_object()) {
      throw_error(ErrorKind::data, "{}: line {}: is not a JSON object", file(), line.line);
    }
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

std::unique_ptr<TextReader> open_text(const std::filesystem::path& path,
                                      const TextColumns& columns) {
  TextFormat format = columns.format;
  if (format == TextFormat::automatic) format = text_format(path);
  switch (format) {
    case TextFormat::csv:
      return std::make_unique<CsvText>(path, columns);
    case TextFormat::jsonl:
      return std::make_unique<JsonText>(path, columns);
    default:
      return std::make_unique<LineText>(path);
  }
}

}  // namespace ridgeline::data
