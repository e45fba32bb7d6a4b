#include "ridgeline/engine/user_data_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "ridgeline/core/error.h"

namespace ridgeline::engine {
namespace {

using data::MissingRule;
using data::NumberScale;
using data::ScaleKind;
using data::TargetKind;
using data::UnseenRule;
using Header = data::TableOptions::Header;

// Each value is written by its first name.
constexpr std::pair<std::string_view, ScaleKind> kScales[] = {
    {"raw", ScaleKind::raw},  {"unit", ScaleKind::unit},    {"standard", ScaleKind::standard},
    {"none", ScaleKind::raw}, {"min-max", ScaleKind::unit},
};
constexpr std::pair<std::string_view, MissingRule> kMissing[] = {
    {"refuse", MissingRule::refuse},
    {"mean", MissingRule::mean},
    {"indicator", MissingRule::indicator},
};
constexpr std::pair<std::string_view, UnseenRule> kUnseen[] = {
    {"refuse", UnseenRule::refuse},
    {"missing", UnseenRule::missing},
};
constexpr std::pair<std::string_view, TargetKind> kKinds[] = {
    {"classes", TargetKind::classes},
    {"labels", TargetKind::labels},
    {"values", TargetKind::values},
};
constexpr std::pair<std::string_view, Header> kHeaders[] = {
    {"auto", Header::automatic},
    {"yes", Header::yes},
    {"no", Header::no},
};
constexpr std::pair<std::string_view, bool> kMissingTarget[] = {{"refuse", false}, {"drop", true}};
constexpr std::pair<std::string_view, int> kChannels[] = {{"auto", 0}, {"grey", 1}, {"rgb", 3}};

constexpr int64_t kMostTimesteps = int64_t{1} << 20;
constexpr double kMostPart = 0.99;

template <typename E, size_t N>
std::string_view name_in(const std::pair<std::string_view, E> (&table)[N], E value) {
  for (const auto& [name, entry] : table) {
    if (entry == value) return name;
  }
  return {};
}

NumberScale number_scale(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::raw:
      return NumberScale::none;
    case ScaleKind::unit:
      return NumberScale::min_max;
    case ScaleKind::standard:
      return NumberScale::standardise;
  }
  return NumberScale::none;
}

UserDataConfig::Column read_column(nn::ConfigTable& table) {
  UserDataConfig::Column column;
  column.name = table.text("name", std::nullopt);
  if (table.has("scale")) {
    column.scale = table.choice<ScaleKind>("scale", ScaleKind::standard, kScales);
  }
  column.log = table.boolean("log", false);
  if (table.has("clip")) {
    nn::ConfigTable clip = table.table("clip");
    column.clip = {clip.number("min", std::nullopt), clip.number("max", std::nullopt)};
    clip.finish();
    if (column.clip->first > column.clip->second) table.fail("clip", "has a min above its max");
  }
  if (table.has("missing")) {
    column.missing = table.choice<MissingRule>("missing", MissingRule::refuse, kMissing);
  }
  column.category = table.boolean("category", false);
  table.finish();
  return column;
}

void read_split(nn::ConfigTable& table, UserDataConfig& user) {
  const bool given = table.has("split");
  nn::ConfigTable split = table.table("split");
  user.validation_part = split.number("validation", 0.0, {0.0, kMostPart});
  if (split.has("test")) user.test_part = split.number("test", std::nullopt, {0.0, kMostPart});
  user.split_seed = uint64_t(split.integer("seed", 1, {0}));
  if (split.has("stratify")) user.stratify = split.boolean("stratify", true);
  split.finish();
  if (!given) return;
  if (!user.test.empty() && user.test_part.value_or(0) > 0) {
    table.fail("split", "takes a test part out of the samples, but data.test names one as well");
  }
  if (!user.validation.empty() && user.validation_part > 0) {
    table.fail("split", "takes a validation part, but data.validation names one as well");
  }
  if (user.validation_part + user.test_part.value_or(0) > kMostPart) {
    table.fail("split", "leaves nothing to train on");
  }
}

void check_type(nn::ConfigTable& table, const char* key, const std::string& text) {
  if (text.empty()) return;
  try {
    (void)data::parse_stored_type(text);
  } catch (const Error& error) {
    table.fail(key, fmt::format("is no type of numbers: {}", error.what()));
  }
}

void read_raw(nn::ConfigTable& table, UserDataConfig& user) {
  user.dtype = table.text("dtype", "");
  user.target_dtype = table.text("target_dtype", "");
  check_type(table, "dtype", user.dtype);
  check_type(table, "target_dtype", user.target_dtype);
  if (table.has("shape")) {
    for (const double extent : table.numbers("shape", {}, {1, double(kMostTimesteps)})) {
      if (extent != std::floor(extent)) table.fail("shape", "holds whole numbers");
      user.shape.push_back(int64_t(extent));
    }
    if (user.shape.empty() || user.shape.size() > 4) table.fail("shape", "has one to four extents");
  }
  if (user.dtype.empty() != user.shape.empty()) {
    table.fail(user.dtype.empty() ? "shape" : "dtype",
               "goes with the other of dtype and shape: a file of nothing but numbers needs both");
  }
}

std::string list(const std::vector<std::string>& all) {
  std::string joined;
  for (const std::string& each : all) joined += (joined.empty() ? "" : ", ") + nn::toml_text(each);
  return "[" + joined + "]";
}

std::string column_toml(const UserDataConfig::Column& column) {
  std::string text = fmt::format("{{ name = {}", nn::toml_text(column.name));
  if (column.scale) text += fmt::format(", scale = \"{}\"", name_in(kScales, *column.scale));
  if (column.log) text += ", log = true";
  if (column.clip) {
    text += fmt::format(", clip = {{ min = {}, max = {} }}", nn::toml_number(column.clip->first),
                        nn::toml_number(column.clip->second));
  }
  if (column.missing) text += fmt::format(", missing = \"{}\"", name_in(kMissing, *column.missing));
  if (column.category) text += ", category = true";
  return text + " }";
}

}  // namespace

UserDataConfig read_user_data(nn::ConfigTable& table) {
  UserDataConfig user;
  user.train = table.text("train", std::nullopt);
  if (user.train.empty()) table.fail("train", "is empty; name a file or a folder");
  user.validation = table.text("validation", "");
  user.test = table.text("test", "");
  user.target = table.texts("target", {});
  user.validation_target = table.text("validation_target", "");
  user.test_target = table.text("test_target", "");
  user.features = table.texts("features", {});
  if (table.has("target_kind")) {
    user.target_kind = table.choice<TargetKind>("target_kind", TargetKind::values, kKinds);
  }
  user.target_scale = table.choice<ScaleKind>("target_scale", user.target_scale, kScales);
  user.drop_missing_target =
      table.choice<bool>("missing_target", user.drop_missing_target, kMissingTarget);
  if (table.has("scale")) {
    user.scale = table.choice<ScaleKind>("scale", ScaleKind::standard, kScales);
  }
  user.missing = table.choice<MissingRule>("missing", user.missing, kMissing);
  user.unseen = table.choice<UnseenRule>("unseen", user.unseen, kUnseen);
  for (nn::ConfigTable& column : table.tables("columns")) {
    user.columns.push_back(read_column(column));
  }
  if (table.has("window")) {
    nn::ConfigTable window = table.table("window");
    user.windows = data::WindowRule{window.integer("length", std::nullopt, {1, kMostTimesteps}),
                                    window.integer("horizon", 1, {1, kMostTimesteps}),
                                    window.integer("stride", 1, {1, kMostTimesteps})};
    window.finish();
    if (user.drop_missing_target) {
      table.fail("missing_target",
                 "would tear holes into a series: with data.window, every "
                 "timestep needs its target");
    }
  }
  user.weight = table.text("weight", "");
  user.lengths = table.text("lengths", "");
  if (table.has("length")) user.length = table.integer("length", std::nullopt, {1, kMostTimesteps});
  read_split(table, user);
  user.header = table.choice<Header>("header", user.header, kHeaders);
  user.separator = table.text("separator", "");
  if (user.separator.size() > 1 && user.separator != "tab") {
    table.fail("separator", "must be one character, or tab");
  }
  user.channels = table.choice<int>("channels", user.channels, kChannels);
  read_raw(table, user);
  return user;
}

std::string to_toml(const UserDataConfig& user) {
  std::string text = fmt::format("train = {}\n", nn::toml_text(user.train));
  const auto add_text = [&](const char* key, const std::string& value) {
    if (!value.empty()) text += fmt::format("{} = {}\n", key, nn::toml_text(value));
  };
  add_text("validation", user.validation);
  add_text("test", user.test);
  if (!user.target.empty()) text += fmt::format("target = {}\n", list(user.target));
  add_text("validation_target", user.validation_target);
  add_text("test_target", user.test_target);
  if (!user.features.empty()) text += fmt::format("features = {}\n", list(user.features));
  if (user.target_kind) {
    text += fmt::format("target_kind = \"{}\"\n", name_in(kKinds, *user.target_kind));
  }
  text += fmt::format("target_scale = \"{}\"\n", name_in(kScales, user.target_scale));
  if (user.drop_missing_target) text += "missing_target = \"drop\"\n";
  if (user.scale) text += fmt::format("scale = \"{}\"\n", name_in(kScales, *user.scale));
  text += fmt::format("missing = \"{}\"\nunseen = \"{}\"\n", name_in(kMissing, user.missing),
                      name_in(kUnseen, user.unseen));
  if (!user.columns.empty()) {
    text += "columns = [\n";
    for (const UserDataConfig::Column& column : user.columns)
      text += "  " + column_toml(column) + ",\n";
    text += "]\n";
  }
  if (user.windows) {
    text += fmt::format("window = {{ length = {}, horizon = {}, stride = {} }}\n",
                        user.windows->window, user.windows->horizon, user.windows->stride);
  }
  add_text("weight", user.weight);
  add_text("lengths", user.lengths);
  if (user.length) text += fmt::format("length = {}\n", *user.length);
  text += fmt::format("split = {{ validation = {}", nn::toml_number(user.validation_part));
  if (user.test_part) text += fmt::format(", test = {}", nn::toml_number(*user.test_part));
  text += fmt::format(", seed = {}", user.split_seed);
  if (user.stratify) text += fmt::format(", stratify = {}", *user.stratify);
  text += fmt::format(" }}\nheader = \"{}\"\n", name_in(kHeaders, user.header));
  add_text("separator", user.separator);
  add_text("dtype", user.dtype);
  if (!user.shape.empty()) text += fmt::format("shape = [{}]\n", fmt::join(user.shape, ", "));
  add_text("target_dtype", user.target_dtype);
  return text + fmt::format("channels = \"{}\"\n", name_in(kChannels, user.channels));
}

data::PrepareRules UserDataConfig::rules() const {
  data::PrepareRules rules;
  rules.rule.scale = number_scale(scale.value_or(ScaleKind::standard));
  rules.rule.missing = missing;
  rules.rule.unseen = unseen;
  for (const Column& column : columns) {
    data::FeatureRule rule = rules.rule;
    if (column.scale) rule.scale = number_scale(*column.scale);
    rule.log = column.log;
    rule.clip = column.clip;
    if (column.missing) rule.missing = *column.missing;
    rules.fields[column.name] = rule;
  }
  rules.features = features;
  rules.target = target;
  rules.target_kind = target_kind;
  rules.target_scale = number_scale(target_scale);
  rules.image_scale = scale.value_or(ScaleKind::unit);
  rules.windows = windows;
  rules.length = length;
  return rules;
}

data::SourceOptions UserDataConfig::source_options() const {
  data::SourceOptions options;
  options.table.header = header;
  if (!separator.empty()) options.table.separator = separator == "tab" ? '\t' : separator[0];
  for (const Column& column : columns) {
    if (column.category) options.table.categories.push_back(column.name);
  }
  options.images.channels = channels;
  if (!dtype.empty()) {
    options.raw_type = data::parse_stored_type(dtype);
    options.raw_shape = Shape(shape);
  }
  return options;
}

}  // namespace ridgeline::engine
