#include "ridgeline/nn/config_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/nn/config_document.h"

namespace ridgeline::nn {
namespace {

std::string described(const toml::node& node) {
  if (const auto* value = node.as_string()) return "the text " + quote(value->get());
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  return "a date or time";
}

template <typename T>
std::string described(const Bounds<T>& bounds) {
  const bool low = bounds.low != Bounds<T>{}.low;
  const bool high = bounds.high != Bounds<T>{}.high;
  std::string text;
  if (low) {
    text = bounds.low == T(kPositive) && kPositive == double(bounds.low)
               ? "greater than 0"
               : fmt::format("at least {}", bounds.low);
  }
  if (low && high) text += " and ";
  if (high) {
    text += double(bounds.high) == kBelowOne ? "below 1" : fmt::format("at most {}", bounds.high);
  }
  return text;
}

}  // namespace

// The state that the getters share: the parsed file, accessed by a list of keys.
struct ConfigTable::Document : ConfigDocument {
  using ConfigDocument::ConfigDocument;
};

ConfigTable ConfigTable::parse(const std::string& text, const std::string& origin,
                               const std::vector<std::string>& sets) {
  auto document = std::make_shared<Document>(text, origin);
  for (const std::string& set : sets) document->apply(set);
  return ConfigTable(std::move(document), {});
}

std::vector<std::string> ConfigTable::path_to(const std::string& key) const {
  std::vector<std::string> path = path_;
  path.push_back(key);
  return path;
}

bool ConfigTable::has(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  return document_->find(path_to(key)) != nullptr;
}

bool ConfigTable::is_text(const std::string& key) {
  return has(key) && document_->find(path_to(key))->is_string();
}

int64_t ConfigTable::integer(const std::string& key, std::optional<int64_t> fallback,
                             Bounds<int64_t> bounds) {
  if (!has(key)) {
    if (!fallback) fail(key, "missing; give a whole number");
    return *fallback;
  }
  const toml::node& node = *document_->find(path_to(key));
  if (!node.is_integer()) {
    fail(key, fmt::format("must be a whole number, is {}", described(node)));
  }
  const int64_t value = node.as_integer()->get();
  if (value < bounds.low || value > bounds.high) {
    fail(key, fmt::format("must be {}, is {}", described(bounds), value));
  }
  return value;
}

std::vector<int64_t> ConfigTable::integers(const std::string& key, size_t count,
                                           std::optional<int64_t> fallback,
                                           Bounds<int64_t> bounds) {
  const toml::node* node = has(key) ? document_->find(path_to(key)) : nullptr;
  if (node == nullptr || node->is_integer()) {
    return std::vector<int64_t>(count, integer(key, fallback, bounds));
  }
  const toml::array* array = node->as_array();
  std::vector<int64_t> numbers;
  for (size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const toml::node& each = (*array)[i];
    if (!each.is_integer()) break;
    numbers.push_back(each.as_integer()->get());
  }
  if (array == nullptr || numbers.size() != count || array->size() != count) {
    fail(key, count == 1 ? fmt::format("must be a whole number, is {}", described(*node))
                         : fmt::format("must be a whole number or an array of {}, is {}", count,
                                       described(*node)));
  }
  for (const int64_t value : numbers) {
    if (value < bounds.low || value > bounds.high) {
      fail(key, fmt::format("must be {}, is {}", described(bounds), value));
    }
  }
  return numbers;
}

double ConfigTable::number(const std::string& key, std::optional<double> fallback,
                           Bounds<double> bounds) {
  if (!has(key)) {
    if (!fallback) fail(key, "missing; give a number");
    return *fallback;
  }
  const toml::node& node = *document_->find(path_to(key));
  if (!node.is_number()) fail(key, fmt::format("must be a number, is {}", described(node)));
  const double value = *node.value<double>();
  if (!std::isfinite(value)) fail(key, fmt::format("must be a finite number, is {}", value));
  if (value < bounds.low || value > bounds.high) {
    fail(key, fmt::format("must be {}, is {}", described(bounds), value));
  }
  return value;
}

std::vector<double> ConfigTable::numbers(const std::string& key, std::vector<double> fallback,
                                         Bounds<double> bounds) {
  if (!has(key)) return fallback;
  const toml::node& node = *document_->find(path_to(key));
  if (node.is_number()) return {number(key, std::nullopt, bounds)};
  const toml::array* array = node.as_array();
  if (array == nullptr) {
    fail(key, fmt::format("must be an array of numbers, is {}", described(node)));
  }
  std::vector<double> all;
  for (size_t i = 0; i < array->size(); ++i) {
    const toml::node& each = (*array)[i];
    if (!each.is_number()) fail(key, fmt::format("must hold numbers, holds {}", described(each)));
    const double value = *each.value<double>();
    if (!(value >= bounds.low && value <= bounds.high)) {
      fail(key, fmt::format("must hold numbers {}, holds {}", described(bounds), value));
    }
    all.push_back(value);
  }
  return all;
}

bool ConfigTable::boolean(const std::string& key, std::optional<bool> fallback) {
  if (!has(key)) {
    if (!fallback) fail(key, "missing; give true or false");
    return *fallback;
  }
  const toml::node& node = *document_->find(path_to(key));
  if (!node.is_boolean()) fail(key, fmt::format("must be true or false, is {}", described(node)));
  return node.as_boolean()->get();
}

// A path ends at a NUL, and so does a message.
const std::string& ConfigTable::whole(const std::string& key, const std::string& text) const {
  if (text.find('\0') != std::string::npos) fail(key, "must hold no NUL, is " + quote(text));
  return text;
}

std::string ConfigTable::text(const std::string& key, std::optional<std::string> fallback) {
  if (!has(key)) {
    if (!fallback) fail(key, "missing; give a text");
    return *fallback;
  }
  const toml::node& node = *document_->find(path_to(key));
  if (!node.is_string()) fail(key, fmt::format("must be a text, is {}", described(node)));
  return whole(key, node.as_string()->get());
}

std::vector<std::string> ConfigTable::texts(const std::string& key,
                                            std::vector<std::string> fallback) {
  if (!has(key)) return fallback;
  const toml::node& node = *document_->find(path_to(key));
  if (node.is_string()) return {whole(key, node.as_string()->get())};
  const toml::array* array = node.as_array();
  std::vector<std::string> all;
  for (size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const toml::node& each = (*array)[i];
    if (!each.is_string()) fail(key, fmt::format("must hold texts, holds {}", described(each)));
    all.push_back(whole(key, each.as_string()->get()));
  }
  if (array == nullptr) fail(key, fmt::format("must be an array of texts, is {}", described(node)));
  return all;
}

std::vector<std::string> ConfigTable::words(const std::string& key) {
  std::vector<std::string> all;
  if (!has(key)) return all;
  const toml::node& node = *document_->find(path_to(key));
  const auto add = [&](const toml::node& each) {
    if (const auto* number = each.as_integer()) {
      all.push_back(fmt::format("{}", number->get()));
    } else if (const auto* text = each.as_string()) {
      all.push_back(whole(key, text->get()));
    } else {
      fail(key, fmt::format("must hold whole numbers or texts, holds {}", described(each)));
    }
  };
  if (const toml::array* array = node.as_array()) {
    for (size_t i = 0; i < array->size(); ++i) add((*array)[i]);
  } else {
    add(node);
  }
  return all;
}

std::string ConfigTable::choice(const std::string& key, std::optional<std::string> fallback,
                                std::span<const std::string_view> names) {
  if (!has(key) && !fallback) {
    fail(key, fmt::format("missing; give one of {}", fmt::join(names, ", ")));
  }
  std::string value = text(key, fallback);
  if (std::find(names.begin(), names.end(), value) != names.end()) return value;
  const std::string near = nearest(value, names);
  fail(key, fmt::format("unknown value {}; {}known: {}", quote(value),
                        near.empty() ? "" : fmt::format("did you mean '{}'? ", near),
                        fmt::join(names, ", ")));
}

std::map<std::string, double> ConfigTable::numbers_left() {
  std::map<std::string, double> numbers;
  const toml::node* node = document_->find(path_);
  if (node == nullptr) return numbers;
  std::vector<std::string> left;
  for (const auto& [key, value] : *node->as_table()) {
    if (std::ranges::find(known_, key.str()) == known_.end()) left.emplace_back(key.str());
  }
  for (const std::string& key : left) numbers[key] = number(key, std::nullopt);
  return numbers;
}

ConfigTable ConfigTable::table(const std::string& key) {
  if (has(key)) {
    const toml::node& node = *document_->find(path_to(key));
    if (!node.is_table()) fail(key, fmt::format("must be a table, is {}", described(node)));
  }
  return ConfigTable(document_, path_to(key));
}

std::vector<ConfigTable> ConfigTable::tables(const std::string& key) {
  std::vector<ConfigTable> tables;
  if (!has(key)) return tables;
  const toml::node& node = *document_->find(path_to(key));
  if (!node.is_array()) {
    fail(key, fmt::format("must be an array of tables, is {}", described(node)));
  }
  const toml::array& array = *node.as_array();
  for (size_t i = 0; i < array.size(); ++i) {
    std::vector<std::string> path = path_to(key);
    path.push_back(fmt::format("{}", i));
    if (!array[i].is_table()) {
      throw_error(ErrorKind::usage, "{}{}: must be a table, is {}", document_->place(path),
                  fmt::join(path, "."), described(array[i]));
    }
    tables.push_back(ConfigTable(document_, std::move(path)));
  }
  return tables;
}

void ConfigTable::finish() const {
  const toml::node* node = document_->find(path_);
  if (node == nullptr) return;
  const std::vector<std::string_view> known(known_.begin(), known_.end());
  for (const auto& [key, value] : *node->as_table()) {
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    const std::string near = nearest(key.str(), known);
    throw_error(ErrorKind::usage, "{}unknown key {}{}; {}",
                document_->place(path_to(std::string(key.str())), &key), quote(key.str()),
                path_.empty() ? "" : fmt::format(" in {}", fmt::join(path_, ".")),
                near.empty() ? fmt::format("known: {}", fmt::join(known, ", "))
                             : fmt::format("did you mean '{}'?", near));
  }
}

void ConfigTable::fail(const std::string& key, const std::string& message) const {
  const std::vector<std::string> path = path_to(key);
  // Keys and messages may contain any bytes of the file.
  throw Error(ErrorKind::usage, one_line(fmt::format("{}{}: {}", document_->place(path),
                                                     fmt::join(path, "."), message)));
}

std::string toml_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string toml_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace ridgeline::nn
