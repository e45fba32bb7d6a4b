#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ridgeline::data {

// Reads the values of some keys of a JSON object without keeping the rest: an object takes only its
// own size in memory, however many values it holds and however deep they nest.
class JsonFields {
 public:
  void want(const std::string& key) { values_[key]; }
  // Throws Error(data), with file and line, if `text` is not a JSON object, nests deeper than 64 or
  // has more than 65,536 keys, if a key is repeated, and if a wanted key is missing or its value is
  // neither a text nor an integer.
  void read(std::string_view text, const std::string& file, int64_t line);
  const std::string& value(const std::string& key) const { return values_.at(key).text; }

  struct Value {
    bool found = false, good = false;
    std::string text;  // an integer in decimal
  };

 private:
  std::map<std::string, Value> values_;
};

}  // namespace ridgeline::data
