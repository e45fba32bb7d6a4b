#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/core/error.h"
#include "ridgeline/core/shape.h"

namespace ridgeline::data {

// Parses JSON of at most 256 MiB and eight levels without repeated keys. Throws an Error of `kind`
// that begins with `origin`.
nlohmann::ordered_json parse_strict_json(std::string_view text, const std::string& origin,
                                         ErrorKind kind);

// Reads the keys of a JSON object, each once and with its type; keys that are not read are refused
// at the end. Every Error names the key.
class StrictObject {
 public:
  StrictObject(const nlohmann::ordered_json& json, std::string place, const std::string& origin,
               ErrorKind kind);

  bool has(const std::string& key) const { return json_->contains(key); }
  std::string text(const std::string& key);
  bool boolean(const std::string& key);
  int64_t whole(const std::string& key, int64_t least, int64_t most);
  double number(const std::string& key);  // finite
  std::vector<std::string> texts(const std::string& key);
  std::vector<double> numbers(const std::string& key, size_t count);
  Shape shape(const std::string& key);
  size_t choice(const std::string& key, std::span<const std::string_view> names);  // its index
  StrictObject object(const std::string& key);
  std::vector<StrictObject> objects(const std::string& key);

  void finish() const;  // throws if a key was not read
  [[noreturn]] void refuse(const std::string& key, std::string_view what) const;

 private:
  const nlohmann::ordered_json& at(const std::string& key);
  const nlohmann::ordered_json& list(const std::string& key);
  double finite(const nlohmann::ordered_json& json, const std::string& key) const;

  const nlohmann::ordered_json* json_;
  std::string place_;
  const std::string* origin_;
  ErrorKind kind_;
  std::set<std::string> asked_;
};

}  // namespace ridgeline::data
