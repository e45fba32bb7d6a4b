#include "ridgeline/nn/config_document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/nn/config_limits.h"

namespace ridgeline::nn {
namespace {

bool starts_with(std::span<const std::string> path, std::span<const std::string> prefix) {
  return path.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin());
}

std::optional<size_t> parse_index(const std::string& text) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return index;
}

toml::node* child(toml::node& node, const std::string& key) {
  if (toml::table* table = node.as_table()) return table->get(key);
  if (toml::array* array = node.as_array()) {
    const std::optional<size_t> index = parse_index(key);
    return index ? array->get(*index) : nullptr;
  }
  return nullptr;
}

std::vector<std::string> split_key(std::string_view key, const std::string& set) {
  std::vector<std::string> path;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    if (end == begin) {
      throw_error(ErrorKind::usage, "--set {}: '{}' has an empty part; write a.b.c=value", set,
                  printable(key));
    }
    if (path.size() == kMostKeyParts) {
      throw_error(ErrorKind::usage, "--set {}: has a key of too many parts; the most is {}",
                  quote(set), kMostKeyParts);
    }
    path.emplace_back(key.substr(begin, end - begin));
    begin = end + 1;
  }
  return path;
}

// Matches text whose quotes the shell has removed: cuda:1, data/digits, cross-entropy.
bool is_bare_word(std::string_view text) {
  constexpr std::string_view kMarks = "_-+./:~@%,";
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

// Matches what C reads as a number though TOML does not: 1e400, 007.
bool is_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size();
}

toml::table parse_value(const std::string& value, const std::string& set) {
  // A line break could end the value and begin another key.
  if (value.empty() || value.find_first_of("\r\n") != std::string::npos) {
    throw_error(ErrorKind::usage, "--set {}: give one value after '=', on one line", set);
  }
  // A word without brackets is one value, even if it has dots.
  const bool nested = value.find_first_of("[{") != std::string::npos;
  if (const auto excess = nested ? find_excess(value) : std::nullopt) {
    throw_error(ErrorKind::usage, "--set {}: its value {}", quote(set), excess->what);
  }
  try {
    return toml::parse("value = " + value);
  } catch (const toml::parse_error& error) {
    if (!is_bare_word(value) || is_number(value)) {
      throw_error(ErrorKind::usage, "--set {}: '{}' is no TOML value: {}", set, printable(value),
                  one_line(std::string(error.description())));
    }
  }
  toml::table table;
  table.insert("value", value);
  return table;
}

// Replaces the node at `key` of `parent` by a copy of `value`.
void assign(toml::node& parent, const std::string& key, const toml::node& value,
            const std::string& set) {
  if (toml::table* table = parent.as_table()) {
    value.visit([&](const auto& node) { table->insert_or_assign(key, node); });
    return;
  }
  toml::array* array = parent.as_array();
  if (array == nullptr) {
    throw_error(ErrorKind::usage, "--set {}: what holds '{}' is neither a table nor an array", set,
                printable(key));
  }
  const std::optional<size_t> index = parse_index(key);
  if (!index || *index >= array->size()) {
    throw_error(ErrorKind::usage, "--set {}: '{}' is no index of an array of {}; the first is 0",
                set, printable(key), array->size());
  }
  value.visit([&](const auto& node) { array->replace(array->cbegin() + ptrdiff_t(*index), node); });
}

}  // namespace

ConfigDocument::ConfigDocument(const std::string& text, const std::string& origin)
    : origin_(origin) {
  if (const auto excess = find_excess(text)) {
    throw_error(ErrorKind::usage, "{}:{}:{}: {}", origin, excess->line, excess->column,
                excess->what);
  }
  try {
    root_ = toml::parse(text);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw_error(ErrorKind::usage, "{}:{}:{}: {}", origin, at.line, at.column,
                one_line(std::string(error.description())));
  }
}

void ConfigDocument::apply(const std::string& given) {
  const std::string set = printable(given);  // for messages
  const size_t equals = given.find('=');
  if (equals == std::string::npos) {
    throw_error(ErrorKind::usage, "--set {}: has no '='; write a.b.c=value", set);
  }
  std::vector<std::string> path =
      split_key(trimmed(std::string_view(given).substr(0, equals)), set);
  const toml::table parsed =
      parse_value(std::string(trimmed(std::string_view(given).substr(equals + 1))), set);

  toml::node* node = &root_;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    const toml::node* held = child(*node, path[i]);
    // A text where a table is wanted is the table's type: optimizer = "adam".
    if (held == nullptr || held->is_string()) {
      toml::table table;
      if (held != nullptr) table.insert("type", *held->as_string());
      assign(*node, path[i], table, set);
    }
    node = child(*node, path[i]);
  }
  assign(*node, path.back(), *parsed.get("value"), set);
  sets_.emplace_back(std::move(path), set);
}

const toml::node* ConfigDocument::find(std::span<const std::string> path) const {
  // child() does not change the node; it returns a mutable one because apply() uses it too.
  toml::node* node = const_cast<toml::table*>(&root_);
  for (const std::string& key : path) {
    node = child(*node, key);
    if (node == nullptr) return nullptr;
  }
  return node;
}

std::string ConfigDocument::place(std::span<const std::string> path, const toml::key* key) const {
  for (auto set = sets_.rbegin(); set != sets_.rend(); ++set) {
    if (starts_with(path, set->first)) return fmt::format("--set {}: ", set->second);
  }
  toml::source_position at{};
  if (key != nullptr) at = key->source().begin;
  for (size_t length = path.size(); length > 0 && at.line == 0; --length) {
    if (const toml::node* node = find(path.first(length))) at = node->source().begin;
  }
  if (at.line > 0) return fmt::format("{}:{}:{}: ", origin_, at.line, at.column);
  // The table exists only because of an override.
  for (auto set = sets_.rbegin(); set != sets_.rend(); ++set) {
    if (starts_with(set->first, path)) return fmt::format("--set {}: ", set->second);
  }
  return origin_ + ": ";
}

}  // namespace ridgeline::nn
