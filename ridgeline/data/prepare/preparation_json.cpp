#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "ridgeline/core/text_format.h"
#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/data/prepare/strict_json.h"

namespace ridgeline::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;

constexpr std::array<std::string_view, 3> kMissing{"refuse", "mean", "indicator"};
constexpr std::array<std::string_view, 2> kUnseen{"refuse", "missing"};
constexpr std::array<std::string_view, 2> kCoding{"one-hot", "codes"};

// Returns the names of an enumeration that counts from 0, by number.
template <typename E>
std::array<std::string_view, 3> names() {
  return {name(E(0)), name(E(1)), name(E(2))};
}

Json shape_json(const Shape& shape) {
  Json dims = Json::array();
  for (const int64_t extent : shape.dims()) dims.push_back(extent);
  return dims;
}

Json write(const NumberFeature& f) {
  Json json{{"field", f.field},
            {"type", f.boolean ? "boolean" : "number"},
            {"shape", shape_json(f.shape)},
            {"log", f.log},
            {"missing", kMissing[size_t(f.missing)]},
            {"shift", f.shift},
            {"scale", f.scale},
            {"fill", f.fill}};
  if (f.clip) json["clip"] = {f.clip->first, f.clip->second};
  return json;
}

Json write(const CategoryFeature& f) {
  return {{"field", f.field},
          {"type", "category"},
          {"categories", f.categories},
          {"coding", kCoding[size_t(f.coding)]},
          {"missing", kMissing[size_t(f.missing)]},
          {"unseen", kUnseen[size_t(f.unseen)]},
          {"fill", f.fill}};
}

Json write(const ImageFeature& f) {
  return {{"field", f.field},
          {"type", "image"},
          {"shape", shape_json(f.shape)},
          {"channels", f.options.channels},
          {"filter", name(f.options.filter)},
          {"scale", f.scaling.scale},
          {"shift", f.scaling.shift}};
}

Json write(const SequenceFeature& f) {
  return {{"type", "sequence"},
          {"length", f.length},
          {"cut", f.cut},
          {"tokens", f.tokens},
          {"timestep", write(f.timestep)}};
}

Json write(const Target& t) {
  Json json{{"kind", name(t.kind)}, {"fields", t.fields},     {"shape", shape_json(t.shape)},
            {"classes", t.classes}, {"numbered", t.numbered}, {"shift", t.shift},
            {"scale", t.scale}};
  for (const FieldClasses& each : t.field_classes) {
    json["field_classes"].push_back({{"names", each.names}, {"numbered", each.numbered}});
  }
  return json;
}

MissingRule read_missing(StrictObject& in) { return MissingRule(in.choice("missing", kMissing)); }

NumberFeature read_number(StrictObject& in, bool boolean) {
  NumberFeature f;
  f.field = in.text("field");
  f.boolean = boolean;
  f.shape = in.shape("shape");
  f.log = in.boolean("log");
  f.missing = read_missing(in);
  const auto elements = size_t(f.shape.numel());
  f.shift = in.numbers("shift", elements);
  f.scale = in.numbers("scale", elements);
  f.fill = in.numbers("fill", f.missing == MissingRule::refuse ? 0 : elements);
  if (in.has("clip")) {
    const std::vector<double> clip = in.numbers("clip", 2);
    if (clip[0] > clip[1]) in.refuse("clip", "ends before it begins");
    f.clip = {clip[0], clip[1]};
  }
  return f;
}

Feature read_category(StrictObject& in) {
  CategoryFeature f;
  f.field = in.text("field");
  f.categories = in.texts("categories");
  f.coding = CategoryCoding(in.choice("coding", kCoding));
  f.missing = read_missing(in);
  f.unseen = UnseenRule(in.choice("unseen", kUnseen));
  const bool fills = f.missing != MissingRule::refuse || f.unseen == UnseenRule::missing;
  f.fill = in.numbers("fill", fills ? f.categories.size() : 0);
  if (f.categories.empty()) in.refuse("categories", "are none");
  return f;
}

Feature read_image_options(StrictObject& in) {
  ImageFeature f;
  f.field = in.text("field");
  f.shape = in.shape("shape");
  (void)in.whole("channels", 0, 4);  // follows from the shape
  const auto filter = ResizeFilter(in.choice("filter", names<ResizeFilter>()));
  f.scaling.scale = float(in.number("scale"));
  f.scaling.shift = float(in.number("shift"));
  if (f.shape.rank() < 2) in.refuse("shape", "is not that of an image");
  f.options = folder_options(f.shape);
  f.options.filter = filter;
  return f;
}

Feature read_sequence(StrictObject& in) {
  constexpr std::array<std::string_view, 1> kTimestep{"number"};
  constexpr int64_t kMostTimesteps = int64_t{1} << 31, kMostTokens = int64_t{1} << 24;
  SequenceFeature f;
  f.length = in.whole("length", 1, kMostTimesteps);
  f.cut = in.boolean("cut");
  f.tokens = in.whole("tokens", 0, kMostTokens);
  StrictObject timestep = in.object("timestep");
  (void)timestep.choice("type", kTimestep);
  f.timestep = read_number(timestep, false);
  timestep.finish();
  if (f.tokens > 0 && f.timestep.width() != 1) in.refuse("tokens", "are one a timestep");
  return f;
}

Feature read_feature(StrictObject in) {
  constexpr std::array<std::string_view, 5> kTypes{"number", "boolean", "category", "image",
                                                   "sequence"};
  const size_t type = in.choice("type", kTypes);
  Feature feature = type < 2    ? Feature(read_number(in, type == 1))
                    : type == 2 ? read_category(in)
                    : type == 3 ? read_image_options(in)
                                : read_sequence(in);
  in.finish();
  return feature;
}

Target read_target(StrictObject in) {
  Target t;
  t.kind = TargetKind(in.choice("kind", names<TargetKind>()));
  t.fields = in.texts("fields");
  t.shape = in.shape("shape");
  t.classes = in.texts("classes");
  t.numbered = in.boolean("numbered");
  const bool classes = t.kind == TargetKind::classes;
  const size_t elements = classes ? 0 : size_t(t.shape.numel());
  t.shift = in.numbers("shift", elements);
  t.scale = in.numbers("scale", elements);
  if (in.has("field_classes")) {
    for (StrictObject& each : in.objects("field_classes")) {
      t.field_classes.push_back({each.texts("names"), each.boolean("numbered")});
      each.finish();
    }
    if (classes || t.field_classes.size() != t.fields.size()) {
      in.refuse("field_classes", "do not fit the fields");
    }
  }
  if (t.fields.empty() || (classes && t.fields.size() != 1)) in.refuse("fields", "do not fit");
  if (classes == t.classes.empty()) in.refuse("classes", "do not fit the kind");
  in.finish();
  return t;
}

}  // namespace

std::string Preparation::to_json() const {
  Json json{{"version", kVersion}, {"features", Json::array()}};
  for (const Feature& feature : features_) {
    json["features"].push_back(std::visit([](const auto& f) { return write(f); }, feature));
  }
  json["left_out"] = left_out_;
  if (target_) json["target"] = write(*target_);
  if (windows_) {
    json["windows"] = {
        {"window", windows_->window}, {"horizon", windows_->horizon}, {"stride", windows_->stride}};
  }
  // Names come from files and may not be UTF-8 (names of folders, for example).
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Preparation Preparation::from_json(std::string_view text, const std::string& origin,
                                   ErrorKind kind) {
  const Json json = parse_strict_json(text, origin, kind);
  StrictObject in(json, "preparation", origin, kind);
  if (in.whole("version", 1, std::numeric_limits<int32_t>::max()) != kVersion) {
    in.refuse("version", "is not one that this program knows; use a newer one");
  }
  Preparation result;
  for (StrictObject& feature : in.objects("features")) {
    result.features_.push_back(read_feature(std::move(feature)));
  }
  if (result.features_.empty()) in.refuse("features", "are none");
  const bool several = result.features_.size() > 1;
  for (const Feature& feature : result.features_) {
    if (several && std::holds_alternative<SequenceFeature>(feature)) {
      in.refuse("features", "hold a sequence beside others");
    }
  }
  result.left_out_ = in.texts("left_out");
  if (in.has("target")) result.target_ = read_target(in.object("target"));
  if (in.has("windows")) {
    StrictObject windows = in.object("windows");
    constexpr int64_t kMost = int64_t{1} << 40;
    result.windows_ =
        WindowRule{windows.whole("window", 1, kMost), windows.whole("horizon", 1, kMost),
                   windows.whole("stride", 1, kMost)};
    windows.finish();
  }
  in.finish();
  return result;
}

}  // namespace ridgeline::data
