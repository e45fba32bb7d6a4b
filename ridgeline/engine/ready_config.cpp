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

bool is_image(const Field& field) {
  return field.kind == FieldKind::number && field.dtype == DType::uint8 && field.shape.rank() >= 2;
}

// Two convolutions and their pools need some room.
bool takes_convolutions(const Field& field) {
  const int rank = field.shape.rank();
  return is_image(field) && rank <= 3 && field.shape[rank - 1] >= 8 && field.shape[rank - 2] >= 8;
}

std::string list(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(nn::toml_text(name));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

// What the flags say of how the file is read.
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

std::string first_layers(const std::vector<const Described*>& features) {
  const Described& first = *features.front();
  std::string text;
  if (features.size() == 1 && takes_convolutions(first.field)) {
    for (const int out : {16, 32}) {
      text += fmt::format(
          "  {{ type = \"conv2d\", out = {}, kernel = 3, padding = 1 }},\n  {{ type = \"relu\" "
          "}},\n"
          "  {{ type = \"maxpool2d\", kernel = 2 }},\n",
          out);
    }
    return text;
  }
  if (first.field.kind == FieldKind::sequence) return sequence_layers(first);
  const auto many = [](const Described* each) {
    return each->field.kind == FieldKind::category &&
           each->field.categories.size() > kManyCategories;
  };
  if (std::ranges::any_of(features, many)) text += "  { type = \"column_embedding\" },\n";
  return text + "  { type = \"linear\", out = 64 },\n  { type = \"relu\" },\n";
}

// The fields that a net of all of them would learn from: texts and, beside others, sequences are
// left out by training itself.
std::vector<const Described*> features_of(std::span<const Described> fields,
                                          const std::string& target) {
  std::vector<const Described*> plain, sequences;
  for (const Described& each : fields) {
    if (each.field.name == target || each.field.kind == FieldKind::text) continue;
    (each.field.kind == FieldKind::sequence ? sequences : plain).push_back(&each);
  }
  if (plain.empty() && sequences.size() == 1) return sequences;
  return plain;
}

}  // namespace

bool counts_samples(const Described& described) {
  const auto& [field, summary] = described;
  constexpr int64_t kFewest = 20;
  if (field.kind != FieldKind::number || is_float(field.dtype) || field.shape.rank() > 0 ||
      field.samples < kFewest || summary.most - summary.least != double(field.samples - 1)) {
    return false;
  }
  std::vector<double> values(size_t(field.samples));
  read_doubles(field, 0, field.samples, values);
  return std::ranges::adjacent_find(values, [](double a, double b) { return b != a + 1; }) ==
         values.end();
}

std::string ready_config(const std::filesystem::path& path, std::span<const Described> fields,
                         const DescribedTarget& target, const DescribeOptions& options) {
  const std::vector<const Described*> all = features_of(fields, target.name);
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
  if (features.size() < all.size()) {
    std::vector<std::string> names;
    for (const Described* each : features) names.push_back(each->field.name);
    text += fmt::format("features = {}  # without columns that count the samples\n", list(names));
  }
  text += source_keys(options.source);
  if (missing) text += "missing = \"mean\"\n";
  if (rare) text += "unseen = \"missing\"  # some categories are rare\n";
  int64_t outputs = int64_t(target.classes.size());
  for (const Described& each : fields) {
    if (each.field.name != target.name || target.kind == data::TargetKind::classes) continue;
    outputs = each.field.shape.numel();
  }
  text += fmt::format(
      "split = {{ test = 0.2 }}\n\n[model]\nlayers = [\n{}"
      "  {{ type = \"linear\", out = 64 }},\n  {{ type = \"relu\" }},\n"
      "  {{ type = \"linear\", out = {} }},\n]\n\n[train]\n",
      first_layers(features), outputs);
  const int64_t samples = std::max<int64_t>(1, features.front()->field.samples);
  // A batch of more than there is to train on would be refused.
  const int64_t batch = samples >= 10000  ? 256
                        : samples >= 1000 ? 64
                                          : std::clamp<int64_t>(samples / 2, 1, 16);
  return text +
         fmt::format("batch = {}\nepochs = {}\noptimizer = {{ type = \"adam\", lr = 0.001 }}\n",
                     batch, std::clamp<int64_t>(200000 / samples, 5, 100));
}

}  // namespace ridgeline::engine
