#include "ridgeline/data/prepare/strict_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ridgeline/core/text_format.h"

namespace ridgeline::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMostJsonBytes = size_t{256} << 20;
constexpr int kMostStrictDepth = 8;

}  // namespace

OrderedJson parse_strict_json(std::string_view text, const std::string& origin, ErrorKind kind) {
  const auto refuse = [&](const std::string& what) {
    throw_error(kind, "{}: bad description of the data's preparation: {}", origin, what);
  };
  if (text.size() > kMostJsonBytes) {
    refuse(fmt::format("{} bytes, above {}", text.size(), kMostJsonBytes));
  }
  std::vector<std::set<std::string>> keys;  // of the open objects
  std::string twice;
  bool deep = false;
  const auto watch = [&](int depth, OrderedJson::parse_event_t event, OrderedJson& value) {
    using Event = OrderedJson::parse_event_t;
    if (depth >= kMostStrictDepth) deep = true;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end && !keys.empty()) keys.pop_back();
    if (event == Event::key && !keys.empty()) {
      const auto name = value.get<std::string>();
      if (!keys.back().insert(name).second && twice.empty()) twice = name;
    }
    return !deep;
  };
  OrderedJson json = OrderedJson::parse(text, watch, false);
  if (deep) refuse("too many levels");
  if (!twice.empty()) refuse(fmt::format("the key {} is there twice", quote(twice)));
  if (!json.is_object()) refuse("not a JSON object");
  return json;
}

StrictObject::StrictObject(const OrderedJson& json, std::string place, const std::string& origin,
                           ErrorKind kind)
    : json_(&json), place_(std::move(place)), origin_(&origin), kind_(kind) {
  if (!json.is_object()) {
    throw_error(kind_, "{}: {} is not an object", *origin_, place_);
  }
}

void StrictObject::refuse(const std::string& key, std::string_view what) const {
  throw_error(kind_, "{}: {}: {} {}", *origin_, place_, quote(key), what);
}

const OrderedJson& StrictObject::at(const std::string& key) {
  const auto found = json_->find(key);
  if (found == json_->end()) refuse(key, "is missing");
  asked_.insert(key);
  return *found;
}

const OrderedJson& StrictObject::list(const std::string& key) {
  const OrderedJson& json = at(key);
  if (!json.is_array()) refuse(key, "is not a list");
  return json;
}

std::string StrictObject::text(const std::string& key) {
  const OrderedJson& json = at(key);
  if (!json.is_string()) refuse(key, "is not a text");
  return json.get<std::string>();
}

bool StrictObject::boolean(const std::string& key) {
  const OrderedJson& json = at(key);
  if (!json.is_boolean()) refuse(key, "is neither true nor false");
  return json.get<bool>();
}

int64_t StrictObject::whole(const std::string& key, int64_t least, int64_t most) {
  const OrderedJson& json = at(key);
  const bool large = json.is_number_unsigned() && json.get<uint64_t>() > uint64_t(INT64_MAX);
  if (!json.is_number_integer() || large || json.get<int64_t>() < least ||
      json.get<int64_t>() > most) {
    refuse(key, fmt::format("is not a whole number from {} to {}", least, most));
  }
  return json.get<int64_t>();
}

double StrictObject::finite(const OrderedJson& json, const std::string& key) const {
  if (!json.is_number() || !std::isfinite(json.get<double>())) {
    refuse(key, "holds something other than finite numbers");
  }
  return json.get<double>();
}

double StrictObject::number(const std::string& key) { return finite(at(key), key); }

std::vector<std::string> StrictObject::texts(const std::string& key) {
  std::vector<std::string> result;
  for (const OrderedJson& json : list(key)) {
    if (!json.is_string()) refuse(key, "holds something other than texts");
    result.push_back(json.get<std::string>());
  }
  return result;
}

std::vector<double> StrictObject::numbers(const std::string& key, size_t count) {
  const OrderedJson& all = list(key);
  if (all.size() != count) {
    refuse(key, fmt::format("holds {} numbers, but {} belong there", all.size(), count));
  }
  std::vector<double> result;
  result.reserve(count);
  for (const OrderedJson& json : all) result.push_back(finite(json, key));
  return result;
}

Shape StrictObject::shape(const std::string& key) {
  std::vector<int64_t> dims;
  int64_t product = 1;
  for (const OrderedJson& json : list(key)) {
    constexpr int64_t kMost = int64_t{1} << 31;
    const bool fits = json.is_number_unsigned() && json.get<uint64_t>() <= uint64_t(kMost);
    if (!fits || __builtin_mul_overflow(product, json.get<int64_t>(), &product) ||
        product > kMost) {
      refuse(key, "is not a shape");
    }
    dims.push_back(json.get<int64_t>());
  }
  if (dims.size() > size_t(Shape::kMaxRank)) refuse(key, "has too many dimensions");
  return Shape(dims);
}

size_t StrictObject::choice(const std::string& key, std::span<const std::string_view> names) {
  const std::string word = text(key);
  const auto found = std::ranges::find(names, word);
  if (found == names.end()) refuse(key, fmt::format("is {}, which is not known", quote(word)));
  return size_t(found - names.begin());
}

StrictObject StrictObject::object(const std::string& key) {
  return {at(key), place_ + "." + key, *origin_, kind_};
}

std::vector<StrictObject> StrictObject::objects(const std::string& key) {
  std::vector<StrictObject> result;
  for (const OrderedJson& json : list(key)) {
    result.emplace_back(json, fmt::format("{}.{}[{}]", place_, key, result.size()), *origin_,
                        kind_);
  }
  return result;
}

void StrictObject::finish() const {
  for (const auto& [key, value] : json_->items()) {
    if (!asked_.contains(key)) refuse(key, "is not a key that is known");
  }
}

}  // namespace ridgeline::data
