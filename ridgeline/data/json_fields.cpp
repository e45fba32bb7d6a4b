#include "ridgeline/data/json_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::data {
namespace {

constexpr size_t kMostDepth = 64, kMostKeys = 65'536;

// Follows one object. A callback that returns false ends the parse; `problem` then says why.
class FieldReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit FieldReader(std::map<std::string, JsonFields::Value>& values) : values_(values) {}

  std::string problem;
  bool whole() const { return object_ && depth_ == 0; }

  bool start_object(size_t) override {
    if (depth_ == 0) object_ = true;
    return open();
  }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& key) override {
    if (depth_ != 1) return true;
    if (!keys_.insert(key).second) return stop("the key " + quote(key) + " is there twice");
    if (keys_.size() > kMostKeys) return stop(fmt::format("more than {} keys", kMostKeys));
    const auto found = values_.find(key);
    wanted_ = found == values_.end() ? nullptr : &found->second;
    if (wanted_ != nullptr) *wanted_ = {.found = true, .good = false, .text = {}};
    return true;
  }

  bool string(std::string& text) override { return take(text); }
  bool number_integer(int64_t number) override { return take(std::to_string(number)); }
  bool number_unsigned(uint64_t number) override { return take(std::to_string(number)); }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return stop("is not a JSON object");
  }

 private:
  bool take(const std::string& text) {
    if (depth_ == 1 && wanted_ != nullptr) *wanted_ = {.found = true, .good = true, .text = text};
    return true;
  }
  bool open() {
    if (++depth_ > kMostDepth) return stop(fmt::format("nests deeper than {}", kMostDepth));
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }
  bool stop(std::string why) {
    if (problem.empty()) problem = std::move(why);
    return false;
  }

  std::map<std::string, JsonFields::Value>& values_;
  JsonFields::Value* wanted_ = nullptr;  // for the key read last
  std::set<std::string> keys_;
  size_t depth_ = 0;
  bool object_ = false;
};

}  // namespace

void JsonFields::read(std::string_view text, const std::string& file, int64_t line) {
  for (auto& [key, value] : values_) value = {};
  FieldReader reader(values_);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  const auto fail = [&](const std::string& why) {
    throw_error(ErrorKind::data, "{}: line {}: {}", file, line, why);
  };
  if (!reader.problem.empty()) fail(reader.problem);
  if (!reader.whole()) fail("is not a JSON object");
  for (const auto& [key, value] : values_) {
    if (!value.found) fail("has no key " + quote(key));
    if (!value.good) fail(quote(key) + " is neither text nor a whole number");
  }
}

}  // namespace ridgeline::data
