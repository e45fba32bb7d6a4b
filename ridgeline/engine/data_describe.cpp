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
#include "ridgeline/engine/progress.h"
#include "ridgeline/engine/ready_config.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline::engine {
namespace {

using data::Field;
using data::FieldKind;
using data::FieldSet;
using data::FieldSummary;
using Json = nlohmann::ordered_json;

constexpr size_t kFieldsShown = 60, kWordsShown = 10;

std::string short_number(double value) { return fmt::format("{:.6g}", value); }

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
    text = fmt::format("{} to {} {} long, {} on average", s.least_length, s.most_length,
                       field.kind == FieldKind::text ? "bytes" : "timesteps",
                       short_number(s.mean_length));
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
  text += fmt::format("{} to {}, mean {}, deviation {}", short_number(s.least),
                      short_number(s.most), short_number(s.mean), short_number(s.deviation));
  if (s.infinite > 0) text += fmt::format("; {} infinite", s.infinite);
  if (counts_samples(described)) text += "; counts the samples";
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
    return fmt::format("; {} missing, {} infinite", summary.missing, summary.infinite);
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

}  // namespace

DescribeReport describe_data(const std::filesystem::path& path, const DescribeOptions& given) {
  DescribeOptions options = given;
  options.source.images.choose_size = true;
  data::OpenedSource source = data::open_source(path, options.source);
  options.source.images = source.images;  // with the size that was chosen
  Json json{{"path", path.string()}, {"title", source.title}, {"parts", Json::array()}};
  DescribeReport report;
  report.text = fmt::format("{}: {}\n", path.string(), source.title);
  std::vector<std::string> wanted;
  if (!options.target.empty()) wanted.push_back(options.target);
  for (data::SetPart& part : source.parts) {
    const std::vector<std::string> names =
        join_target(part.set, wanted, source.table, options.target_dtype);
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
    const FieldSet& set = source.parts.front().set;
    const bool images = set.size() > 0 && set.fields().size() == 1 && set.find("image") != nullptr;
    const bool texts = source.table && set.fields().size() > 1 && set.fields().back().has_lengths();
    throw_error(
        ErrorKind::usage,
        "{}: which field is to be learnt? Name it, or a file that holds it, by --target{}",
        path.string(),
        images  ? "; or put the images of each class into a folder of its own"
        : texts ? fmt::format(": the last one, {}, is no target because it holds {}s",
                              quote(set.fields().back().name), data::name(set.fields().back().kind))
                : "");
  }
  report.json = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return report;
}

}  // namespace ridgeline::engine
