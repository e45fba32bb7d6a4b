#include "ridgeline/data/source/json_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ridgeline/core/text_format.h"
#include "ridgeline/data/source/bounded_bytes.h"
#include "ridgeline/data/source/json_column.h"
#include "ridgeline/data/source/table_format.h"
#include "ridgeline/data/text_reader.h"

namespace ridgeline::data {
namespace {

constexpr int kMostTableDepth = 16;  // of objects and arrays inside one another
constexpr int kMostTableArrays = 2;  // a list of vectors
// A name repeats the keys around it, and a column has a cell for each line: memory that may be far
// larger than the file. So much is fine in any case, and so many times what the file itself holds.
constexpr size_t kNamesAnyway = size_t{1} << 16, kMostNames = 16;
constexpr int64_t kCellsAnyway = int64_t{1} << 24, kMostCells = 1000;

class JsonTable {
 public:
  JsonTable(std::unique_ptr<ByteStream> bytes, const TableOptions& options)
      : lines_(open_text(std::move(bytes), {.format = TextFormat::lines}, {})), options_(options) {}

  FieldSet read() {
    for (TextRecord line; lines_->next(line);) {
      if (line.text.find_first_not_of(" \t") == std::string_view::npos) continue;
      add(line);
    }
    if (samples_ == 0) throw_error(ErrorKind::data, "{}: holds no records", lines_->file());
    check_known(options_.categories);
    check_known(options_.texts);
    FieldSet set(lines_->file());
    for (JsonColumn& column : columns_) {
      if (column.empty() && parents_.contains(column.name())) continue;  // null, or an object
      column.fill(samples_);
      set.add(std::move(column).finish(lines_->file()));
    }
    return set;
  }

 private:
  void add(const TextRecord& line) {
    add_keys(line, parse(line), "");
    ++samples_;
    const auto columns = int64_t(columns_.size());
    if (columns > kMostColumns) refuse(line, fmt::format("more than {} keys so far", kMostColumns));
    if (samples_ * columns > kCellsAnyway + kMostCells * values_) {
      refuse(line, fmt::format("{} keys so far, of which a line has {:.1f}: too few for a table; "
                               "use the same keys in all lines",
                               columns, double(values_) / double(samples_)));
    }
  }

  // The keys of an object inside follow its own key and a dot, as in pandas' json_normalize.
  void add_keys(const TextRecord& line, const nlohmann::ordered_json& object,
                const std::string& before) {
    for (const auto& [key, value] : object.items()) {
      const std::string name = before + key;
      if (value.is_object()) {
        parents_.insert(name);
        add_keys(line, value, name + ".");
        continue;
      }
      JsonColumn& column = column_of(name);
      ++values_;
      column.fill(samples_);
      const std::string fault = column.add(value);
      if (!fault.empty()) refuse(line, fmt::format("the key {} {}", quote(name), fault));
    }
  }

  nlohmann::ordered_json parse(const TextRecord& line) const {
    std::vector<std::string> keys, parents{""};  // those at each depth, with a dot
    int arrays = 0;                              // around the value
    size_t names = 0;                            // bytes of all keys
    bool deep = false, long_names = false;
    using Event = nlohmann::ordered_json::parse_event_t;
    const auto note = [&](int depth, Event event, nlohmann::ordered_json& value) {
      arrays += int(event == Event::array_start) - int(event == Event::array_end);
      deep = deep || depth >= kMostTableDepth || arrays > kMostTableArrays;
      if (event == Event::key && arrays == 0 && !deep && !long_names) {
        keys.push_back(parents[size_t(depth) - 1] + value.get<std::string>());
        parents.resize(size_t(depth));
        parents.push_back(keys.back() + ".");
        names += keys.back().size();
        long_names = names > kNamesAnyway + kMostNames * line.text.size();
      }
      return !deep && !long_names;
    };
    auto object = nlohmann::ordered_json::parse(line.text, note, false);
    if (deep) refuse(line, "has arrays or objects inside one another too deeply");
    if (long_names) refuse(line, "has many keys inside keys that are too long; shorten these");
    if (!object.is_object()) refuse(line, "is not a JSON object");
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end()) refuse(line, fmt::format("the key {} is there twice", quote(*twice)));
    return object;
  }

  JsonColumn& column_of(const std::string& key) {
    const auto [place, fresh] = places_.emplace(key, columns_.size());
    if (fresh) {
      const bool category =
          std::ranges::find(options_.categories, key) != options_.categories.end();
      const bool text = std::ranges::find(options_.texts, key) != options_.texts.end();
      columns_.emplace_back(key, text       ? TextRule::text
                                 : category ? TextRule::category
                                            : TextRule::automatic);
    }
    return columns_[place->second];
  }

  void check_known(const std::vector<std::string>& asked) const {
    for (const std::string& name : asked) {
      if (places_.contains(name)) continue;
      throw_error(ErrorKind::usage, "{}: has no key {}", lines_->file(), quote(name));
    }
  }

  [[noreturn]] void refuse(const TextRecord& line, const std::string& what) const {
    throw_error(ErrorKind::data, "{}: line {}: {}", lines_->file(), line.line, what);
  }

  std::unique_ptr<TextReader> lines_;
  TableOptions options_;
  std::vector<JsonColumn> columns_;
  std::unordered_map<std::string, size_t> places_;
  std::unordered_set<std::string> parents_;  // keys of objects
  int64_t samples_ = 0, values_ = 0;
};

}  // namespace

FieldSet read_json_table(std::unique_ptr<ByteStream> bytes, const TableOptions& options) {
  return JsonTable(std::move(bytes), options).read();
}

FieldSet read_json_table(const std::filesystem::path& path, const TableOptions& options) {
  return read_json_table(open_bounded(path), options);
}

}  // namespace ridgeline::data
