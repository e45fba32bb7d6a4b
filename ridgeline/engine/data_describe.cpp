#include "ridgeline/engine/data_describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/prepare/target.h"
#include "ridgeline/data/summary.h"
#include "ridgeline/engine/own_data.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/nn/config_table.h"

namespace ridgeline::engine {
namespace {

using data::Field;
using data::FieldKind;
using data::FieldSummary;
using Json = nlohmann::ordered_json;

constexpr size_t kFieldsShown = 60, kWordsShown = 10;

struct Described {
  Field field;
  FieldSummary summary;
};

struct DescribedTarget {
  std::string name;
  data::TargetKind kind{};
  std::vector<std::pair<std::string, int64_t>> classes{};  // with their numbers of samples
};

std::string number(double value) { return fmt::format("{:.6g}", value); }

// "fp32 [28, 28]", "category", "text"
std::string type_of(const Field& field) {
  std::string text;
  switch (field.kind) {
    case FieldKind::number:
      text = name(field.dtype);
      break;
    case FieldKind::sequence:
      text = fmt::format("sequence of {}", name(field.dtype));
      break;
    default:
      text = data::name(field.kind);
  }
  if (field.shape.rank() > 0) text += " " + to_string(field.shape);
  return text;
}

// "cat 12, dog 30, ...", the most frequent first.
std::string counts_of(std::vector<std::pair<std::string, int64_t>> counts) {
  std::ranges::stable_sort(counts, std::ranges::greater{},
                           [](const auto& entry) { return entry.second; });
  std::string text;
  for (size_t i = 0; i < std::min(counts.size(), kWordsShown); ++i) {
    text +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", printable(counts[i].first), counts[i].second);
  }
  return counts.size() > kWordsShown ? text + ", ..." : text;
}

std::vector<std::pair<std::string, int64_t>> counted_words(const Described& described) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (size_t i = 0; i < described.summary.counts.size(); ++i) {
    counts.emplace_back(described.field.categories[i], described.summary.counts[i]);
  }
  return counts;
}

std::string values_of(const Described& described) {
  const auto& [field, s] = described;
  std::string text;
  if (field.has_lengths()) {
    text =
        fmt::format("{} to {} {} long, {} on average", s.least_length, s.most_length,
                    field.kind == FieldKind::text ? "bytes" : "timesteps", number(s.mean_length));
    if (field.kind == FieldKind::text) return text;
    text += "; ";
  }
  if (!s.counts.empty() || field.kind == FieldKind::category) {
    const std::string words = counts_of(counted_words(described));
    if (field.kind == FieldKind::boolean) return words;
    return fmt::format("{}: {}", counted(int64_t(s.counts.size()), "category", "categories"),
                       words);
  }
  if (s.numbers == 0) return text + "no values";
  text += fmt::format("{} to {}, mean {}, deviation {}", number(s.least), number(s.most),
                      number(s.mean), number(s.deviation));
  if (s.infinite > 0) text += fmt::format("; {} infinite", s.infinite);
  return text;
}

DescribedTarget describe_target(const std::vector<Described>& fields, const std::string& name) {
  const auto found = std::ranges::find_if(
      fields, [&](const Described& described) { return described.field.name == name; });
  DescribedTarget target{name};
  target.kind = data::guess_target(found->field, found->summary);
  if (target.kind != data::TargetKind::classes) return target;
  target.classes = counted_words(*found);
  for (const auto& [value, count] : found->summary.values) {
    target.classes.emplace_back(std::to_string(value), count);
  }
  return target;
}

std::string missing_target(const std::vector<Described>& fields, const std::string& name) {
  for (const auto& [field, summary] : fields) {
    const int64_t bad = summary.missing + summary.infinite;
    if (field.name != name || bad == 0) continue;
    return fmt::format("; {} or infinite: training refuses {}", counted(bad, "missing", "missing"),
                       bad == 1 ? "it" : "them");
  }
  return "";
}

std::string target_text(const DescribedTarget& target, const std::vector<Described>& fields) {
  std::string text = fmt::format("target     {}: ", printable(target.name));
  switch (target.kind) {
    case data::TargetKind::classes:
      text += fmt::format("{}: {}", counted(int64_t(target.classes.size()), "class", "classes"),
                          counts_of(target.classes));
      break;
    case data::TargetKind::labels:
      text += "labels of 0 and 1, several a sample";
      break;
    case data::TargetKind::values:
      text += "values to predict (regression)";
      break;
  }
  return text + missing_target(fields, target.name) + "\n";
}

std::string part_text(const data::SetPart& part, const std::vector<Described>& fields,
                      const std::optional<DescribedTarget>& target) {
  std::string text =
      fmt::format("{}{}, {}, {}B\n", part.name.empty() ? "" : part.name + ": ",
                  counted(part.set.size(), "sample"), counted(int64_t(fields.size()), "field"),
                  engineering(double(part.set.bytes())));
  size_t names = 5, types = 4;
  const auto shown = std::span(fields).first(std::min(fields.size(), kFieldsShown));
  for (const Described& described : shown) {
    names = std::max(names, std::min<size_t>(32, printable(described.field.name).size()));
    types = std::max(types, type_of(described.field).size());
  }
  text += fmt::format("{:<{}}  {:<{}}  {:>7}  {}\n", "field", names, "type", types, "missing",
                      "values");
  for (const Described& described : shown) {
    text += fmt::format(
        "{:<{}}  {:<{}}  {:>7}  {}{}\n", printable(described.field.name), names,
        type_of(described.field), types, described.summary.missing, values_of(described),
        described.field.stored.empty() ? ""
                                       : fmt::format(" (stored as {})", described.field.stored));
  }
  if (fields.size() > kFieldsShown) {
    text += fmt::format("... and {} more (--json has all)\n", fields.size() - kFieldsShown);
  }
  if (target) text += target_text(*target, fields);
  return text;
}

Json field_json(const Described& described, bool checksums) {
  const auto& [field, s] = described;
  Json shape = Json::array();
  for (const int64_t extent : field.shape.dims()) shape.push_back(extent);
  Json json{{"name", field.name}, {"kind", data::name(field.kind)}, {"dtype", name(field.dtype)},
            {"shape", shape},     {"bytes", field.bytes()},         {"missing", s.missing}};
  if (!field.stored.empty()) json["stored"] = field.stored;
  if (field.has_lengths()) {
    json["lengths"] = {{"least", s.least_length}, {"most", s.most_length}, {"mean", s.mean_length}};
  }
  if (field.kind == FieldKind::boolean || field.kind == FieldKind::category) {
    json["categories"] = field.categories;
    json["counts"] = s.counts;
  } else if (field.kind != FieldKind::text) {
    json["infinite"] = s.infinite;
    if (s.numbers > 0) {
      json["least"] = s.least;
      json["most"] = s.most;
      json["mean"] = s.mean;
      json["deviation"] = s.deviation;
    }
  }
  if (checksums) json["sha256"] = data::checksum(field);
  return json;
}

Json part_json(const data::SetPart& part, const std::vector<Described>& fields,
               const std::optional<DescribedTarget>& target, bool checksums) {
  Json json{{"name", part.name},
            {"samples", part.set.size()},
            {"bytes", part.set.bytes()},
            {"fields", Json::array()}};
  for (const Described& described : fields)
    json["fields"].push_back(field_json(described, checksums));
  if (target) {
    Json classes = Json::array(), counts = Json::array();
    for (const auto& [name, count] : target->classes) {
      classes.push_back(name);
      counts.push_back(count);
    }
    json["target"] = {{"name", target->name}, {"kind", data::name(target->kind)}};
    if (target->kind == data::TargetKind::classes) {
      json["target"]["classes"] = classes;
      json["target"]["counts"] = counts;
    }
  }
  return json;
}

// Whether images are large enough for two convolutions and their pools.
bool takes_convolutions(const Field& field) {
  const int rank = field.shape.rank();
  return field.dtype == DType::uint8 && (rank == 2 || rank == 3) && field.shape[rank - 1] >= 8 &&
         field.shape[rank - 2] >= 8;
}

// Returns layers that read the timesteps of a sequence; tokens become vectors first.
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

// Returns a config with a network for the fields, small enough to train quickly on any machine.
std::string ready_config(const std::filesystem::path& path, const std::vector<Described>& fields,
                         const DescribedTarget& target, const DescribeOptions& options) {
  const Field* first = nullptr;
  const Described* sequence = nullptr;  // if it is the only feature
  bool missing = false, others = false;
  int64_t outputs = 1;
  for (const Described& described : fields) {
    const auto& [field, summary] = described;
    if (field.name == target.name) {
      outputs = target.kind == data::TargetKind::classes ? int64_t(target.classes.size())
                                                         : field.shape.numel();
    } else {
      if (first == nullptr) first = &field;
      if (field.kind == FieldKind::sequence) {
        others = others || sequence != nullptr;
        sequence = &described;
      }
      others = others || !field.has_lengths();
      missing = missing || (summary.missing > 0 && !field.has_lengths());
    }
  }
  if (first == nullptr)
    throw_error(ErrorKind::usage, "{}: no field is left to learn from", path.string());
  const int64_t samples = std::max<int64_t>(1, first->samples);
  std::string text = fmt::format(
      "# Written by `ridgeline data describe`. Change what you like; docs/config.md has all keys.\n"
      "[data]\ntrain = {}\ntarget = {}\n",
      nn::toml_text(path.string()),
      nn::toml_text(options.target.empty() ? target.name : options.target));
  if (missing) text += "missing = \"mean\"\n";
  const data::SourceOptions& source = options.source;
  if (source.images.height > 0) {
    text += fmt::format("resize = [{}, {}]\n", source.images.height, source.images.width);
  }
  text += "split = { test = 0.2 }\n\n[model]\nlayers = [\n";
  if (fields.size() == 2 && takes_convolutions(*first)) {
    for (const int out : {16, 32}) {
      text += fmt::format(
          "  {{ type = \"conv2d\", out = {}, kernel = 3, padding = 1 }},\n  {{ type = \"relu\" "
          "}},\n"
          "  {{ type = \"maxpool2d\", kernel = 2 }},\n",
          out);
    }
  } else if (sequence != nullptr && !others) {
    text += sequence_layers(*sequence);
  } else {
    text += "  { type = \"linear\", out = 64 },\n  { type = \"relu\" },\n";
  }
  text += fmt::format(
      "  {{ type = \"linear\", out = 64 }},\n  {{ type = \"relu\" }},\n"
      "  {{ type = \"linear\", out = {} }},\n]\n\n[train]\n",
      outputs);
  // A batch larger than the training set would be refused.
  const int64_t batch = samples >= 10000  ? 256
                        : samples >= 1000 ? 64
                                          : std::clamp<int64_t>(samples / 2, 1, 16);
  return text +
         fmt::format("batch = {}\nepochs = {}\noptimizer = {{ type = \"adam\", lr = 0.001 }}\n",
                     batch, std::clamp<int64_t>(200000 / samples, 5, 100));
}

}  // namespace

DescribeReport describe_data(const std::filesystem::path& path, const DescribeOptions& options) {
  data::OpenedSource source = data::open_source(path, options.source);
  Json json{{"path", path.string()}, {"title", source.title}, {"parts", Json::array()}};
  DescribeReport report;
  report.text = fmt::format("{}: {}\n", path.string(), source.title);
  std::vector<std::string> wanted;
  if (!options.target.empty()) wanted.push_back(options.target);
  for (data::SetPart& part : source.parts) {
    const std::vector<std::string> names = join_target(part.set, wanted, source.table);
    std::vector<Described> fields;
    for (const Field& field : part.set.fields()) fields.push_back({field, data::summarise(field)});
    std::optional<DescribedTarget> target;
    if (!names.empty()) target = describe_target(fields, names.front());
    report.text += part_text(part, fields, target);
    json["parts"].push_back(part_json(part, fields, target, options.checksums));
    const bool trains = &part == &source.parts.front() || part.name == "train";
    if (trains && target && options.config) {
      report.config = ready_config(path, fields, *target, options);
    }
  }
  if (options.config && report.config.empty()) {
    throw_error(ErrorKind::usage,
                "{}: which field is to be learnt? Name it, or a file that holds it, by --target",
                path.string());
  }
  report.json = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return report;
}

}  // namespace ridgeline::engine
