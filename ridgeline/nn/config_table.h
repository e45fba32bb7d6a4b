#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridgeline::nn {

// The range of a key's numbers, both ends included.
template <typename T>
struct Bounds {
  T low = std::numeric_limits<T>::lowest();
  T high = std::numeric_limits<T>::max();
};

// The smallest double above zero: Bounds{kPositive} reads "greater than 0".
constexpr double kPositive = std::numeric_limits<double>::denorm_min();
constexpr double kBelowOne = 1.0 - std::numeric_limits<double>::epsilon() / 2;

// A table of a config file, read strictly. Getters record the key they were asked for; finish()
// then refuses every other key and names the nearest known one. All errors are Error(usage) with
// file, line and column, or the override that set the value.
class ConfigTable {
 public:
  // Parses TOML and applies `sets` ("a.b.0.c=value"), in order. `origin` is the file's name.
  static ConfigTable parse(const std::string& text, const std::string& origin,
                           const std::vector<std::string>& sets = {});

  bool has(const std::string& key);  // notes the key as known
  bool is_text(const std::string& key);

  int64_t integer(const std::string& key, std::optional<int64_t> fallback,
                  Bounds<int64_t> bounds = {});
  // Reads `count` integers: an array of them, or a single one that stands for all.
  std::vector<int64_t> integers(const std::string& key, size_t count,
                                std::optional<int64_t> fallback, Bounds<int64_t> bounds = {});
  double number(const std::string& key, std::optional<double> fallback, Bounds<double> bounds = {});
  // Reads an array of numbers, or a single one.
  std::vector<double> numbers(const std::string& key, std::vector<double> fallback,
                              Bounds<double> bounds = {});
  bool boolean(const std::string& key, std::optional<bool> fallback);
  std::string text(const std::string& key, std::optional<std::string> fallback);
  // Reads an array of texts, or a single one.
  std::vector<std::string> texts(const std::string& key, std::vector<std::string> fallback);

  // Reads an array of texts and integers, or a single one; integers are returned as texts.
  std::vector<std::string> words(const std::string& key);

  // Reads one of `names`; anything else is refused, with the nearest of them.
  std::string choice(const std::string& key, std::optional<std::string> fallback,
                     std::span<const std::string_view> names);
  template <typename E, size_t N>
  E choice(const std::string& key, std::optional<E> fallback,
           const std::pair<std::string_view, E> (&table)[N]) {
    std::string_view names[N];
    std::optional<std::string> standard;
    for (size_t i = 0; i < N; ++i) {
      names[i] = table[i].first;
      if (fallback == table[i].second) standard = std::string(names[i]);
    }
    const std::string text = choice(key, standard, names);
    for (const auto& [name, value] : table) {
      if (text == name) return value;
    }
    return table[0].second;  // not reached: choice() returns one of the names
  }

  // Returns the keys that were not asked for yet, all of which must be numbers.
  std::map<std::string, double> numbers_left();

  // An absent table reads as an empty one, so that its keys get their defaults.
  ConfigTable table(const std::string& key);
  std::vector<ConfigTable> tables(const std::string& key);  // an array of tables; empty if absent

  void finish() const;

  // "mlp.toml:3:7: model.layers.0.out: <message>", with the key's own place when it is present.
  [[noreturn]] void fail(const std::string& key, const std::string& message) const;

 private:
  const std::string& whole(const std::string& key, const std::string& text) const;

  struct Document;
  ConfigTable(std::shared_ptr<const Document> document, std::vector<std::string> path)
      : document_(std::move(document)), path_(std::move(path)) {}
  std::vector<std::string> path_to(const std::string& key) const;

  std::shared_ptr<const Document> document_;
  std::vector<std::string> path_;   // {"model", "layers", "0"}; empty: the whole file
  std::vector<std::string> known_;  // keys asked for
};

// The TOML form of values, for to_toml() of configs and layers.
std::string toml_text(std::string_view text);  // quoted, escaped
std::string toml_number(double value);         // the fewest digits that parse to the same number

}  // namespace ridgeline::nn
