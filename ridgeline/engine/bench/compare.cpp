#include "ridgeline/engine/bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/plan/kernel_aliases.h"

namespace ridgeline::engine {
namespace {

using nlohmann::json;

constexpr double kLeastNoise = 0.05;

json parse(const std::filesystem::path& file) {
  return parse_json(read_text_file(file, ErrorKind::data, size_t{8} << 20));
}

double first_number(const json& entry, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = entry.find(key);
    if (found != entry.end() && found->is_number()) return found->get<double>();
  }
  return 0;
}

std::string text(const json& entry, const char* key, const json& outer) {
  for (const json* place : {&entry, &outer}) {
    if (!place->is_object()) continue;
    const auto found = place->find(key);
    if (found == place->end()) continue;
    return found->is_string() ? found->get<std::string>() : found->dump();
  }
  return {};
}

// Returns the kernel of a line by its current name: "cuda.mlp_step.fp16_split_u8", or "plan: ..."
// for the planner's choice. Results of earlier versions call it "row".
std::string kernel_of(const json& entry) {
  const std::string name = text(entry, entry.contains("kernel") ? "kernel" : "row", {});
  return current_kernel_name(name);
}

// Returns the first of a plan's kernels, or the line's only one. Earlier versions call them "rows".
std::string first_kernel(const json& entry) {
  const auto kernels = entry.find(entry.contains("kernels") ? "kernels" : "rows");
  if (kernels == entry.end() || !kernels->is_array() || kernels->empty()) return kernel_of(entry);
  return kernels->front().is_string() ? kernels->front().get<std::string>() : "";
}

// The keys that distinguish lines of each kind, in the order of a name. A way is a family of
// kernels; a planner's choice is compared whichever kernels it has.
struct Kind {
  const char* first;  // identifies lines of this kind
  std::initializer_list<const char*> keys;
};
const Kind kKinds[] = {{"network", {}},
                       {"cell", {"hidden", "layers", "steps", "pass", "kernel"}},
                       {"part", {"shape", "pass", "way"}},
                       {"op", {"m", "n", "k", "way"}}};

// Returns an empty string if it is not a line of results.
std::string work_of(const json& entry, const json& outer) {
  for (const Kind& kind : kKinds) {
    std::string name = text(entry, kind.first, {});
    if (name.empty()) continue;
    const bool planned = kernel_of(entry).starts_with("plan: ");
    for (const char* key : kind.keys) {
      const bool is_kernel = key == std::string_view("kernel");
      std::string value = is_kernel ? kernel_of(entry) : text(entry, key, {});
      if (planned && (is_kernel || key == std::string_view("way"))) {
        value = "plan";
      }
      if (!value.empty()) name += fmt::format(" {} {}", key, value);
    }
    for (const char* key : {"batch", "precision"}) {
      const std::string value = text(entry, key, outer);
      if (!value.empty()) name += fmt::format(" {} {}", key, value);
    }
    // The number of host threads does not matter for a GPU.
    const std::string threads = text(entry, "threads", outer);
    if (!threads.empty() && first_kernel(entry).find("cuda.") == std::string::npos) {
      name += " threads " + threads;
    }
    // Included only if it is not the precision's own, so that files written before it was recorded
    // still match.
    const std::string weights = text(entry, "weights", outer);
    if (!weights.empty() && weights != "fp32" && weights != "fp64") name += " weights " + weights;
    return name;
  }
  return {};
}

// Lines of `bench --json` are complete; those of kept files leave the values they share to the
// file.
void collect(const json& lines, const json& outer, std::vector<BenchResult>& results) {
  if (!lines.is_array()) return;
  for (const json& entry : lines) {
    if (!entry.is_object()) continue;
    BenchResult result;
    result.name = work_of(entry, outer);
    result.us = first_number(entry, {"us_median", "ours_us", "us"});
    result.us_min = first_number(entry, {"us_min"});
    if (result.us_min <= 0) result.us_min = result.us;
    result.limit_fraction = first_number(entry, {"limit_fraction"});
    result.date = text(entry, "date", outer);
    if (result.us > 0 && !result.name.empty()) results.push_back(std::move(result));
  }
}

// Collects the lines of an object: bench deepbench writes them as "lines", scripts/bench as "rows"
// of a table, and scripts/gpu-check as "figures" of each section.
void collect_kept(const json& document, std::vector<BenchResult>& results) {
  const json& figures = document.contains("figures") ? document["figures"] : document;
  for (const char* key : {"lines", "rows", "bench"}) {
    if (!figures.contains(key)) continue;
    collect(figures[key], document, results);
    if (!figures[key].is_object()) continue;
    for (const json& part : figures[key]) collect(part, document, results);
  }
}

std::vector<BenchResult> results_of(const json& document) {
  std::vector<BenchResult> results;
  collect(document, {}, results);
  if (document.is_object()) collect_kept(document, results);
  return results;
}

}  // namespace

std::vector<BenchResult> read_results(const std::filesystem::path& file) {
  const std::vector<BenchResult> results = results_of(parse(file));
  if (results.empty()) {
    throw_error(ErrorKind::data, "{}: holds no results; it should be what bench --json wrote",
                file.string());
  }
  return results;
}

std::vector<BenchResult> parse_results(const std::string& text) {
  return results_of(json::parse(text));
}

bool BenchComparison::slower() const {
  return std::any_of(changes.begin(), changes.end(),
                     [](const BenchChange& change) { return change.slower(); });
}

BenchComparison compare_results(const std::vector<BenchResult>& before,
                                const std::vector<BenchResult>& after) {
  BenchComparison comparison;
  const auto find = [](const std::vector<BenchResult>& all, const std::string& name) {
    return std::find_if(all.begin(), all.end(),
                        [&](const BenchResult& result) { return result.name == name; });
  };
  for (const BenchResult& old : before) {
    const auto now = find(after, old.name);
    if (now == after.end()) {
      comparison.only_before.push_back(old.name);
      continue;
    }
    BenchChange change{old.name, old.us, now->us, 1, 0};
    // A fraction above 1 means that the limit was measured too low or work was skipped, so it is
    // not used.
    const auto stated = [](double fraction) { return fraction > 0 && fraction <= 1; };
    const bool limits = stated(old.limit_fraction) && stated(now->limit_fraction);
    change.ratio = limits ? old.limit_fraction / now->limit_fraction : now->us / old.us;
    change.noise = std::max({kLeastNoise, old.us / old.us_min - 1, now->us / now->us_min - 1});
    comparison.changes.push_back(change);
  }
  for (const BenchResult& now : after) {
    if (find(before, now.name) == before.end()) comparison.only_after.push_back(now.name);
  }
  return comparison;
}

std::string to_text(const BenchComparison& comparison) {
  size_t width = 40;
  for (const BenchChange& change : comparison.changes) width = std::max(width, change.name.size());
  for (const auto* names : {&comparison.only_before, &comparison.only_after}) {
    for (const std::string& name : *names) width = std::max(width, name.size());
  }
  std::string text = fmt::format("{:<{}} {:>10} {:>10} {:>8} {:>7}  {}\n", "work", width,
                                 "before us", "after us", "change", "noise", "verdict");
  auto out = std::back_inserter(text);
  for (const BenchChange& change : comparison.changes) {
    fmt::format_to(out, "{:<{}} {:>10.1f} {:>10.1f} {:>+6.1f} % {:>5.1f} %  {}\n", change.name,
                   width, change.before_us, change.after_us, 100 * (change.ratio - 1),
                   100 * change.noise,
                   change.slower()   ? "SLOWER"
                   : change.faster() ? "faster"
                                     : "same");
  }
  for (const std::string& name : comparison.only_before) {
    fmt::format_to(out, "{:<{}} only before\n", name, width);
  }
  for (const std::string& name : comparison.only_after) {
    fmt::format_to(out, "{:<{}} only after\n", name, width);
  }
  return text;
}

namespace {

// Returns "NVIDIA H200" for a fingerprint "cuda; NVIDIA H200; sm_90; ...".
std::string model_of(const std::string& fingerprint) {
  const size_t kind = fingerprint.find("; ");
  if (kind == std::string::npos) return {};
  const size_t begin = kind + 2;
  return fingerprint.substr(begin, fingerprint.find(';', begin) - begin);
}

// A file, or a line of it, names its device's model by "device" (a GPU) or "cpu". Lines that a
// bench has just written name no model but a kind: "cuda:0" may be any machine's.
bool is_of_model(const json& part, const std::string& model) {
  if (!part.is_object() || model.empty()) return false;
  return std::ranges::any_of(std::array{"device", "cpu"}, [&](const char* key) {
    const auto found = part.find(key);
    return found != part.end() && found->is_string() && found->get<std::string>() == model;
  });
}

std::vector<std::filesystem::path> sorted_json_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

std::vector<BenchResult> newest_of_each(std::vector<BenchResult> results) {
  std::vector<BenchResult> newest;
  std::map<std::string, size_t> places;
  for (BenchResult& result : results) {
    const auto [place, is_first] = places.try_emplace(result.name, newest.size());
    if (is_first) {
      newest.push_back(std::move(result));
    } else if (result.date >= newest[place->second].date) {
      newest[place->second] = std::move(result);
    }
  }
  return newest;
}

}  // namespace

std::vector<BenchResult> kept_results(const std::filesystem::path& folder,
                                      const std::string& machine, int threads) {
  const std::string model = model_of(machine);
  std::vector<BenchResult> results;
  for (const std::filesystem::path& file : sorted_json_files(folder)) {
    const json document = parse(file);
    if (document.is_array()) {
      json own = json::array();
      std::ranges::copy_if(document, std::back_inserter(own),
                           [&](const json& line) { return is_of_model(line, model); });
      collect(own, {}, results);
      continue;
    }
    if (!is_of_model(document, model)) continue;
    if (document.contains("threads") && document["threads"] != threads) continue;
    collect_kept(document, results);
  }
  return newest_of_each(std::move(results));
}

}  // namespace ridgeline::engine
