#include "ridgeline/plan/cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "ridgeline/core/cache_file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/plan/kernel_aliases.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 2;
constexpr size_t kMostEnvironments = 16;  // the least recently used ones are dropped

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3ull;
  return hash;
}

std::string short_key(const std::string& text) { return fmt::format("{:016x}", fnv1a(text)); }

// A rebuilt tool has other kernels, so its size and modification time stand for the build.
std::string build_identity() {
  struct stat status {};
  if (::stat("/proc/self/exe", &status) != 0) return "unknown";
  return fmt::format("{}.{}.{}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

// Returns the file's contents, or an empty cache if it is missing, corrupt or of another version.
json read_json(const fs::path& file) {
  json all = parse_json(read_cache_file(file).value_or(""));
  const bool ours = all.is_object() && all.contains("version") && all["version"] == kVersion &&
                    all.contains("environments") && all["environments"].is_object();
  return ours ? all : json{{"version", kVersion}, {"environments", json::object()}};
}

// Returns nothing if the plan is damaged: only this plan is measured again, not the others.
std::optional<KeptPlan> read_plan(const json& plan) try {
  const json& names = plan.contains("kernels") ? plan.at("kernels") : plan.at("rows");
  return KeptPlan{current_kernel_names(names.get<std::vector<std::string>>()),
                  plan.at("seconds").get<double>(), plan.value("disturbed", int64_t{0})};
} catch (const std::exception&) {
  return std::nullopt;
}

// Returns when an environment was last used; 0 if it is damaged.
int64_t last_used(const json& environment) {
  if (!environment.is_object() || !environment.contains("used")) return 0;
  const json& used = environment["used"];
  return used.is_number_integer() ? used.get<int64_t>() : 0;
}

void drop_oldest(json& environments) {
  while (environments.size() > kMostEnvironments) {
    auto oldest = environments.begin();
    for (auto it = environments.begin(); it != environments.end(); ++it) {
      if (last_used(*it) < last_used(*oldest)) oldest = it;
    }
    environments.erase(oldest);
  }
}

// Returns the member as an object, and replaces it by one if it is anything else.
json& object_in(json& parent, const std::string& key) {
  json& member = parent[key];
  if (!member.is_object()) member = json::object();
  return member;
}

}  // namespace

TuningCache::TuningCache(fs::path file, const std::string& environment)
    : file_(std::move(file)), environment_(short_key(environment)) {
  load();
}

TuningCache TuningCache::standard(const std::string& fingerprint) {
  return {cache_file("tuning.json"), fingerprint + "|" + build_identity()};
}

void TuningCache::load() try {
  const json all = read_json(file_);
  const json mine = all["environments"].value(environment_, json::object());
  // Earlier versions wrote "rows" for "kernels".
  const json kernels = mine.value("kernels", mine.value("rows", json::object()));
  const json plans = mine.value("plans", json::object());
  for (const auto& [key, seconds] : kernels.items()) {
    if (seconds.is_number() && seconds.get<double>() > 0) kernels_[key] = seconds.get<double>();
  }
  for (const auto& [key, plan] : plans.items()) {
    if (auto kept = read_plan(plan)) plans_[key] = std::move(*kept);
  }
} catch (const std::exception&) {  // wrong types inside: treated as no cache
  kernels_.clear();
  plans_.clear();
}

std::optional<double> TuningCache::kernel_seconds(const std::string& key) const {
  const auto found = kernels_.find(short_key(key));
  return found == kernels_.end() ? std::nullopt : std::optional(found->second);
}

void TuningCache::set_kernel_seconds(const std::string& key, double seconds) {
  kernels_[short_key(key)] = seconds;
}

std::optional<KeptPlan> TuningCache::plan(const std::string& program) const {
  const auto found = plans_.find(short_key(program));
  return found == plans_.end() ? std::nullopt : std::optional(found->second);
}

void TuningCache::set_plan(const std::string& program, KeptPlan plan) {
  plans_[short_key(program)] = std::move(plan);
}

void TuningCache::save() const noexcept try {
  if (file_.empty()) return;
  json all = read_json(file_);
  json& environments = all["environments"];
  json& mine = object_in(environments, environment_);
  mine["used"] = int64_t(std::time(nullptr));
  mine.erase("rows");  // earlier versions' "kernels", which load() has read
  json& kernels = object_in(mine, "kernels");
  for (const auto& [key, seconds] : kernels_) kernels[key] = seconds;
  json& plans = object_in(mine, "plans");
  for (const auto& [key, plan] : plans_) {
    plans[key] = {{"kernels", plan.kernels}, {"seconds", plan.seconds}};
    if (plan.disturbed != 0) plans[key]["disturbed"] = plan.disturbed;
  }
  drop_oldest(environments);
  write_cache_file(file_, dump_json(all, -1));
} catch (const std::exception&) {
  // A cache that cannot be written is no error: the next run measures again.
}

}  // namespace ridgeline
