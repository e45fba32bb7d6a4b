#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ridgeline::data {

// The values of some keys of a JSON object, read without keeping the rest of it: an object takes
// its own size in memory, however many values it holds and however deep they nest.
class JsonFields {
 public:
  void want(const std::string& key) { values_[key]; }
  // Throws data, with file and line, when `text` is no JSON object, nests deeper than 64 or has
  // more than 65,536 keys, when a key is there twice, and when a wanted key is missing or its value
  // is neither a text nor a whole number.
  void read(std::string_view text, const std::string& file, int64_t line);
  const std::string& value(const std::string& key) const { return values_.at(key).text; }

  struct Value {
    bool found = false, good = false;
    std::string text;  // a whole number in decimal
  };

 private:
  std::map<std::string, Value> values_;
};

}  // namespace ridgeline::data
