#include "ridgeline/nn/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::nn {
namespace {

constexpr const char* kMetadata = "__metadata__";
constexpr size_t kMostNumbers =
    64;  // of a shape: far above Shape's own limit, which is checked later

// Follows the only form that a header may have:
//   { "__metadata__": {text: text},
//     name: {"dtype": text, "shape": [n, ...], "data_offsets": [n, n]} }
// A callback that returns false ends the parse; `problem` then says why.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Header header;
  std::string problem;

  bool start_object(size_t) override {
    if (at_ == At::start) return go(At::root);
    if (at_ != At::root_value) return unexpected("an object");
    keys_.clear();
    if (key_ == kMetadata) return go(At::metadata);
    header.tensors.push_back({key_, {}, {}, 0, 0});
    return go(At::tensor);
  }

  bool key(std::string& key) override {
    if (!(at_ == At::root ? names_ : keys_).insert(key).second) {
      return stop(fmt::format("the key {} is there twice", quote(key)));
    }
    // Names appear in messages and may one day become paths.
    if (std::any_of(key.begin(), key.end(),
                    [](char c) { return static_cast<uint8_t>(c) < 0x20; })) {
      return stop(fmt::format("the key {} has control characters", quote(key)));
    }
    key_ = key;
    if (at_ == At::root) return go(At::root_value);
    if (at_ == At::metadata) return go(At::metadata_value);
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return stop(
          fmt::format("tensor {} has the unknown key {}", quote(tensor().name), quote(key)));
    }
    return go(At::tensor_value);
  }

  bool end_object() override {
    if (at_ == At::root) return go(At::end);
    if (at_ == At::tensor && keys_.size() != 3) {
      return stop(
          fmt::format("tensor {} lacks dtype, shape or data_offsets", quote(tensor().name)));
    }
    return go(At::root);
  }

  bool string(std::string& text) override {
    if (at_ == At::metadata_value) {
      header.metadata[key_] = text;
      return go(At::metadata);
    }
    if (at_ != At::tensor_value || key_ != "dtype") return unexpected("a text");
    tensor().dtype = text;
    return go(At::tensor);
  }

  bool start_array(size_t) override {
    if (at_ != At::tensor_value || key_ == "dtype") return unexpected("an array");
    numbers_.clear();
    return go(At::numbers);
  }

  bool number_unsigned(uint64_t value) override {
    if (at_ != At::numbers) return unexpected("a number");
    if (numbers_.size() == kMostNumbers) {
      return stop(fmt::format("tensor {} has too long a {}", quote(tensor().name), key_));
    }
    numbers_.push_back(value);
    return true;
  }

  bool end_array() override {
    if (key_ == "shape") {
      tensor().shape = numbers_;
    } else if (numbers_.size() == 2) {
      tensor().begin = numbers_[0];
      tensor().end = numbers_[1];
    } else {
      return stop(fmt::format("tensor {} has {} data_offsets; there must be 2",
                              quote(tensor().name), numbers_.size()));
    }
    return go(At::tensor);
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(int64_t value) override { return unexpected(fmt::format("{}", value)); }
  bool number_float(double, const std::string& text) override { return unexpected(text); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return stop(fmt::format("bad JSON at byte {} of the header", position));
  }

  bool complete() const { return at_ == At::end; }

 private:
  // The position in that form of the next event.
  enum class At {
    start,
    root,
    root_value,
    metadata,
    metadata_value,
    tensor,
    tensor_value,
    numbers,
    end
  };

  HeaderEntry& tensor() { return header.tensors.back(); }
  bool go(At at) {
    at_ = at;
    return true;
  }
  bool stop(std::string why) {
    if (problem.empty()) problem = std::move(why);
    return false;
  }
  bool unexpected(const std::string& what) {
    return stop(key_.empty() ? fmt::format("{} stands where an object should", what)
                             : fmt::format("{} does not belong at the key {}", what, quote(key_)));
  }

  At at_ = At::start;
  std::string key_;
  std::set<std::string> names_, keys_;
  std::vector<uint64_t> numbers_;
};

}  // namespace

Header parse_header(std::string_view json, const std::string& origin) {
  HeaderReader reader;
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  if (!reader.problem.empty() || !reader.complete()) {
    throw_error(ErrorKind::model, "{}: bad safetensors header: {}", origin,
                reader.problem.empty() ? "it ends early" : reader.problem);
  }
  return std::move(reader.header);
}

}  // namespace ridgeline::nn
