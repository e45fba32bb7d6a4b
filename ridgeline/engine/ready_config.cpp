#include "ridgeline/engine/ready_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ridgeline/core/text_format.h"
#include "ridgeline/nn/config_table.h"

namespace ridgeline::engine {
namespace {

using data::Field;
using data::FieldKind;

// A category of more words gets a learnt embedding.
constexpr size_t kManyCategories = 50;
// A word that is rarer may be missing from the training part.
constexpr int64_t kFewSamples = 10;

// With fewer samples, a part for validation would be too small to choose the best weights by.
constexpr int64_t kLeastValidated = 100;
constexpr double kValidationPart = 0.1;
// A network of this size can learn fewer samples than this by heart, which dropout prevents.
constexpr int64_t kManySamples = 10000;
// A class that has fewer than this share of the samples of an average class is rare.
constexpr double kRareClass = 0.2;

// A series is learnt from its own past, by windows of this many timesteps.
constexpr int64_t kWindow = 16, kLeastSeries = 10 * kWindow;

// Whether a field holds dates or times, judged by one of them: 2020-01-31, 31.1.2020 12:00. Dates
// that repeat are read as categories.
bool is_date(const Field& field) {
  const bool category = field.kind == FieldKind::category && !field.categories.empty();
  if (!category && (field.kind != FieldKind::text || field.samples == 0)) return false;
  const std::string text = category ? field.categories.front() : read_text(field, 0);
  constexpr std::string_view kMarks = "-/.:";
  const auto marks =
      std::ranges::count_if(text, [&](char c) { return kMarks.find(c) != std::string_view::npos; });
  return text.size() >= 6 && text.size() <= 35 && text[0] >= '0' && text[0] <= '9' && marks >= 2;
}

bool is_image(const Field& field) {
  return field.kind == FieldKind::number && field.dtype == DType::uint8 && field.shape.rank() >= 2;
}

// Two convolutions and their pools need some room.
constexpr int64_t kLeastSide = 8;

bool takes_convolutions(const Field& field) {
  const int rank = field.shape.rank();
  return is_image(field) && rank <= 3 && field.shape[rank - 1] >= kLeastSide &&
         field.shape[rank - 2] >= kLeastSide;
}

// Images [height, width, channels], as other programs than this one hold them.
bool has_channels_last(const Field& field) {
  return is_image(field) && field.shape.rank() == 3 && field.shape[0] >= kLeastSide &&
         field.shape[1] >= kLeastSide && field.shape[2] <= 4;
}

std::string list(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(nn::toml_text(name));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

// Returns the keys of the config for what the flags say of how the file is read.
std::string source_keys(const data::SourceOptions& source) {
  std::string text;
  const data::TableOptions& table = source.table;
  using Header = data::TableOptions::Header;
  if (table.header != Header::automatic) {
    text += fmt::format("header = \"{}\"\n", table.header == Header::yes ? "yes" : "no");
  }
  if (table.separator != '\0') {
    const std::string name = table.separator == '\t' ? "tab" : std::string(1, table.separator);
    text += fmt::format("separator = {}\n", nn::toml_text(name));
  }
  for (const std::string& name : table.categories) {
    text += fmt::format("{}{{ name = {}, category = true }}{}",
                        &name == &table.categories.front() ? "columns = [" : ", ",
                        nn::toml_text(name), &name == &table.categories.back() ? "]\n" : "");
  }
  if (source.images.height > 0) {
    text += fmt::format("resize = [{}, {}]\n", source.images.height, source.images.width);
  }
  if (source.images.channels > 0) {
    text += fmt::format("channels = \"{}\"\n", source.images.channels == 1 ? "grey" : "rgb");
  }
  if (source.raw_type) {
    const std::string type = source.raw_type->name();  // "int16, big-endian"
    text += fmt::format("dtype = \"{}{}\"\n", source.raw_type->swapped ? ">" : "",
                        type.substr(0, type.find(',')));
    text += fmt::format("shape = [{}]\n", fmt::join(source.raw_shape->dims(), ", "));
  }
  return text;
}

// Layers that read the timesteps of a sequence: tokens become vectors first.
std::string sequence_layers(const Described& described) {
  const auto& [field, summary] = described;
  const bool tokens = !is_float(field.dtype) && field.shape.rank() == 0 && summary.least >= 0;
  std::string text;
  if (tokens) {
    text = fmt::format("  {{ type = \"embedding\", vocabulary = {}, out = 32 }},\n",
                       int64_t(summary.most) + 1);
  }
  return text + "  { type = \"gru\", hidden = 64 },\n  { type = \"select\", at = -1 },\n";
}

// A hidden layer. On scikit-learn's diabetes, breast cancer, wine and digits, and four generated
// tables of 150 to 2000 samples, two of 128 with a dropout of 0.2 did better on average (eight
// splits each) than two of 64, with or without dropout.
std::string hidden_layer(int64_t out, bool dropout) {
  return fmt::format("  {{ type = \"linear\", out = {} }},\n  {{ type = \"relu\" }},\n{}", out,
                     dropout ? "  { type = \"dropout\", p = 0.2 },\n" : "");
}

std::string hidden_layers(const std::vector<const Described*>& features, bool dropout) {
  const Described& first = *features.front();
  std::string text;
  const bool last = has_channels_last(first.field);
  if (features.size() == 1 && (last || takes_convolutions(first.field))) {
    if (last) text += "  { type = \"transpose\", axes = [2, 0, 1] },  # the channels come first\n";
    for (const int out : {16, 32}) {
      text += fmt::format(
          "  {{ type = \"conv2d\", out = {}, kernel = 3, padding = 1 }},\n  {{ type = \"relu\" "
          "}},\n"
          "  {{ type = \"maxpool2d\", kernel = 2 }},\n",
          out);
    }
    return text + hidden_layer(64, dropout);
  }
  if (first.field.kind == FieldKind::sequence) {
    return sequence_layers(first) + hidden_layer(64, dropout);
  }
  const auto many = [](const Described* each) {
    return each->field.kind == FieldKind::category &&
           each->field.categories.size() > kManyCategories;
  };
  if (std::ranges::any_of(features, many)) text += "  { type = \"column_embedding\" },\n";
  return text + hidden_layer(128, dropout) + hidden_layer(128, dropout);
}

// The fields that a net would learn from: texts and, beside others, sequences are left out by
// training itself. A date as a category would say nothing of later dates.
std::vector<const Described*> features_of(std::span<const Described> fields,
                                          const std::string& target) {
  std::vector<const Described*> plain, sequences;
  for (const Described& each : fields) {
    if (each.field.name == target || each.field.kind == FieldKind::text) continue;
    if (has_no_value(each) || is_date(each.field)) continue;
    (each.field.kind == FieldKind::sequence ? sequences : plain).push_back(&each);
  }
  if (plain.empty() && sequences.size() == 1) return sequences;
  return plain;
}

// Whether training itself would take a field that features_of() does not.
bool is_left_out(const Described& each) {
  return has_no_value(each) || (each.field.kind == FieldKind::category && is_date(each.field));
}

// Refuses a target that teaches nothing.
void check_target(const std::filesystem::path& path, const Described& learnt,
                  const DescribedTarget& target, bool folders) {
  const bool none = has_no_value(learnt);
  if (!none && (target.kind != data::TargetKind::classes || target.classes.size() > 1)) return;
  throw_error(ErrorKind::usage, "{}: the target {} has {}, so there is nothing to learn{}",
              path.string(), quote(target.name),
              none ? std::string("no values")
                   : fmt::format("only the value {}", quote(target.classes.front().first)),
              folders ? "; each class needs a folder" : "; name another by --target");
}

bool has_rare_class(const DescribedTarget& target) {
  const auto by_samples = [](const auto& a, const auto& b) { return a.second < b.second; };
  int64_t samples = 0;
  for (const auto& [name, count] : target.classes) samples += count;
  const auto least = std::ranges::min_element(target.classes, by_samples);
  return double(least->second) < kRareClass * double(samples) / double(target.classes.size());
}

}  // namespace

bool has_no_value(const Described& described) {
  return !described.field.has_lengths() && described.field.samples > 0 &&
         described.summary.missing >= described.field.samples * described.field.shape.numel();
}

bool counts_samples(const Described& described) {
  const auto& [field, summary] = described;
  constexpr int64_t kFewest = 20;
  if (field.kind != FieldKind::number || is_float(field.dtype) || field.shape.rank() > 0 ||
      field.samples < kFewest || summary.most - summary.least != double(field.samples - 1)) {
    return false;
  }
  std::vector<double> values(size_t(field.samples));
  read_doubles(field, 0, field.samples, values);
  std::ranges::sort(values);  // a table may have been shuffled
  return std::ranges::adjacent_find(values, [](double a, double b) { return b != a + 1; }) ==
         values.end();
}

std::string ready_config(const std::filesystem::path& path, std::span<const Described> fields,
                         const DescribedTarget& target, const DescribeOptions& options) {
  const Described& learnt = *std::ranges::find(
      fields, target.name, [](const Described& each) { return each.field.name; });
  check_target(path, learnt, target, is_image(fields.front().field));
  const int64_t without_target = learnt.summary.missing;
  std::vector<const Described*> all = features_of(fields, target.name);
  const bool series = all.empty() && target.kind == data::TargetKind::values &&
                      without_target == 0 && learnt.field.samples >= kLeastSeries &&
                      std::ranges::all_of(fields, [&](const Described& each) {
                        return &each == &learnt || is_date(each.field);
                      });
  if (series) all.push_back(&learnt);
  if (all.empty()) {
    const auto text = std::ranges::find(fields, FieldKind::text,
                                        [](const Described& each) { return each.field.kind; });
    throw_error(ErrorKind::usage, "{}: no field is left to learn from{}", path.string(),
                text == fields.end() ? std::string()
                                     : fmt::format("; {} holds texts, which a net reads character "
                                                   "by character: docs/charcnn.md has a config",
                                                   quote(text->field.name)));
  }
  std::vector<const Described*> features;
  std::ranges::copy_if(all, std::back_inserter(features),
                       [](const Described* each) { return !counts_samples(*each); });
  if (features.empty()) features = all;
  bool missing = false, rare = false;
  for (const Described* each : features) {
    missing = missing || (each->summary.missing > 0 && !each->field.has_lengths());
    rare = rare || (each->field.kind == FieldKind::category &&
                    std::ranges::any_of(each->summary.counts,
                                        [](int64_t count) { return count < kFewSamples; }));
  }
  std::string text = fmt::format(
      "# Written by `ridgeline data describe`. Change what you like; docs/config.md has all keys.\n"
      "[data]\ntrain = {}\ntarget = {}\n",
      nn::toml_text(path.string()),
      nn::toml_text(options.target.empty() ? target.name : options.target));
  if (series) {
    text +=
        fmt::format("features = {}\nwindow = {{ length = {} }}  # the next value by those before\n",
                    list({target.name}), kWindow);
  } else if (features.size() < all.size() || std::ranges::any_of(fields, is_left_out)) {
    std::vector<std::string> names;
    for (const Described* each : features) names.push_back(each->field.name);
    text += fmt::format(
        "features = {}  # without dates, counters of the samples and columns without values\n",
        list(names));
  }
  text += source_keys(options.source);
  if (!options.target_dtype.empty()) {
    text += fmt::format("target_dtype = {}\n", nn::toml_text(options.target_dtype));
  }
  if (without_target > 0) text += "missing_target = \"drop\"  # some samples have none\n";
  if (missing) text += "missing = \"mean\"\n";
  if (rare) text += "unseen = \"missing\"  # some categories are rare\n";
  const bool classes = target.kind == data::TargetKind::classes;
  const int64_t outputs = classes ? int64_t(target.classes.size()) : learnt.field.shape.numel();
  const int64_t samples = std::max<int64_t>(1, learnt.field.samples - without_target);
  // The validation part of a series is consecutive and holds some windows.
  const int64_t least = series ? int64_t(4 * kWindow / kValidationPart) : kLeastValidated;
  const bool validated = samples >= least;
  text += fmt::format(
      "split = {{ {}test = 0.2 }}\n\n[model]\nlayers = [\n{}"
      "  {{ type = \"linear\", out = {} }},\n]\n\n[train]\n",
      validated ? fmt::format("validation = {}, ", kValidationPart) : "",
      hidden_layers(features, samples < kManySamples), outputs);
  // A batch of more than there is to train on would be refused.
  const int64_t batch = samples >= 10000  ? 256
                        : samples >= 1000 ? 64
                                          : std::clamp<int64_t>(samples / 2, 1, 16);
  text += fmt::format("batch = {}\nepochs = {}\noptimizer = {{ type = \"adam\", lr = 0.001 }}\n",
                      batch, std::clamp<int64_t>(200000 / samples, 5, 100));
  if (validated) {
    text +=
        "keep = \"best\"   # the weights that do best on the validation part\n"
        "patience = 20   # epochs without a better one, after which the run ends\n";
  }
  if (classes && has_rare_class(target)) {
    text +=
        "# Some classes are rare. This would make each class count as much as any other:\n"
        "# loss = { type = \"cross-entropy\", weights = \"balanced\" }\n";
  }
  return text;
}

}  // namespace ridgeline::engine
