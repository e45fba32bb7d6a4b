#include "ridgeline/serve/repository.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ridgeline/core/failure.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::serve {
namespace {

void warn(const std::string& text) { write_stderr("ridgeline: warning: " + one_line(text) + "\n"); }

}  // namespace

const std::shared_ptr<const ServedModel>* ModelTable::find(std::string_view name,
                                                           std::string_view version) const {
  const auto found = models_.find(name);
  if (found == models_.end()) return nullptr;
  if (version.empty()) return &found->second.back();
  for (const auto& model : found->second) {
    if (model->version() == version) return &model;
  }
  return nullptr;
}

std::vector<std::string> ModelTable::versions(std::string_view name) const {
  std::vector<std::string> versions;
  const auto found = models_.find(name);
  if (found == models_.end()) return versions;
  for (const auto& model : found->second) versions.push_back(model->version());
  return versions;
}

Repository::Repository(const ServeOptions& options, Metrics& metrics)
    : options_(options), metrics_(metrics), table_(std::make_shared<ModelTable>()) {
  for (const std::string& text : options.models) {
    ModelPlace place = parse_place(text);
    for (const ModelPlace& other : given_) {
      if (other.name == place.name && other.version == place.version) {
        throw_error(ErrorKind::usage,
                    "two models are called {}, version {}: give NAME=PATH or NAME:VERSION=PATH",
                    place.name, place.version);
      }
    }
    given_.push_back(std::move(place));
  }
  std::ranges::stable_sort(given_, version_less, &ModelPlace::version);
  if (given_.empty() && options.folder.empty()) {
    throw_error(ErrorKind::usage, "serve needs a model: give MODEL, NAME=MODEL or --models DIR");
  }
  // Throws if the folder does not exist.
  for (const ModelPlace& place : places({})) pending_.insert(place.name);
}

// A model of the command line hides one of the same name in the folder.
std::vector<ModelPlace> Repository::places(const std::string& name) const {
  std::vector<ModelPlace> all = given_;
  if (!options_.folder.empty()) {
    for (ModelPlace& place : find_models(options_.folder)) {
      if (!is_given(place.name)) all.push_back(std::move(place));
    }
  }
  if (!name.empty())
    std::erase_if(all, [&](const ModelPlace& place) { return place.name != name; });
  return all;
}

std::shared_ptr<const ModelTable> Repository::table() const {
  const std::scoped_lock lock(mutex_);
  return table_;
}

void Repository::replace(const std::string& name, ModelTable::Versions versions) {
  const std::scoped_lock lock(mutex_);
  auto next = std::make_shared<ModelTable>(*table_);
  if (const auto old = next->models_.find(name); old != next->models_.end()) {
    retired_.insert(retired_.end(), old->second.begin(), old->second.end());
    next->models_.erase(old);
  }
  if (!versions.empty()) next->models_.emplace(name, std::move(versions));
  table_ = std::move(next);
  generation_.fetch_add(1, std::memory_order_release);
}

bool Repository::is_loading(std::string_view name) const {
  const std::scoped_lock lock(mutex_);
  // The caller's table may be older than the end of the loading.
  return pending_.contains(name) || table_->models().contains(name);
}

void Repository::load(const std::string& name) {
  const std::scoped_lock loading(loading_);
  {
    const std::scoped_lock lock(mutex_);
    pending_.insert(name);
    reasons_.erase(name);
  }
  try {
    load_versions(name);
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    pending_.erase(name);
    throw;
  }
  const std::scoped_lock lock(mutex_);
  pending_.erase(name);
}

bool Repository::is_given(const std::string& name) const {
  return std::ranges::any_of(given_, [&](const ModelPlace& each) { return each.name == name; });
}

void Repository::load_versions(const std::string& name) {
  const std::vector<ModelPlace> found = places(name);
  if (found.empty()) {
    throw_error(ErrorKind::usage, "there is no model {} to load", quote(name));
  }
  // A model that is served stays whole as it is. Of one that is not, the other versions of the
  // folder are served: a restart must not take away what a bad new version could not replace.
  const bool all = is_given(name) || table()->models().contains(name);
  ModelTable::Versions versions;
  for (const ModelPlace& place : found) {
    const auto metrics = metrics_.of_model(place.name, place.version);
    try {
      versions.push_back(
          std::make_shared<ServedModel>(place.name, place.version, place.path, options_, metrics_));
      metrics->loads.fetch_add(1);
    } catch (const std::exception& error) {
      metrics->failed_loads.fetch_add(1);
      const std::string why = one_line(failure_of(error).message);
      {
        const std::scoped_lock lock(mutex_);
        reasons_[name] = why;
      }
      if (all || (versions.empty() && &place == &found.back())) throw;
      warn(fmt::format("{}, version {}: {}", name, place.version, why));
      continue;
    }
    for (const std::string& warning : versions.back()->warnings()) warn(warning);
  }
  replace(name, std::move(versions));
}

void Repository::unload(const std::string& name) {
  const std::scoped_lock loading(loading_);
  if (!table()->models().contains(name)) {
    throw_error(ErrorKind::usage, "the model {} is not loaded", quote(name));
  }
  replace(name, {});
}

void Repository::load_all() {
  std::set<std::string> names;
  for (const ModelPlace& place : places({})) {
    if (!names.insert(place.name).second) continue;
    try {
      load(place.name);
    } catch (const std::exception& error) {
      if (is_given(place.name)) throw;
      warn(failure_of(error).message);
    }
  }
}

void Repository::reload_all() {
  const auto before = table();
  for (const auto& [name, versions] : before->models()) {
    try {
      load(name);
      write_stderr(fmt::format("ridgeline: loaded {} again\n", name));
    } catch (const std::exception& error) {
      warn(fmt::format("{} stays as it was: {}", name, failure_of(error).message));
    }
  }
}

// Returns, for each model of the folder, its versions, and times and sizes of their files.
std::map<std::string, std::string> Repository::folder_states() const {
  std::map<std::string, std::string> states;
  for (const ModelPlace& place : places({})) {
    if (is_given(place.name)) continue;
    std::error_code error;
    const auto time =
        std::filesystem::last_write_time(place.path, error).time_since_epoch().count();
    const auto size = std::filesystem::file_size(place.path, error);
    states[place.name] +=
        fmt::format("{} {} {} {};", place.version, place.path.string(), time, size);
  }
  return states;
}

void Repository::poll() {
  std::map<std::string, std::string> now;
  try {
    now = folder_states();
  } catch (const std::exception& error) {  // the folder itself is gone, perhaps for a moment
    return;
  }
  if (!seen_) seen_ = now;  // the first check: load_all() has just loaded them
  const std::map<std::string, std::string> before = std::exchange(*seen_, now);
  for (const auto& [name, state] : now) {
    const auto old = before.find(name);
    if (old != before.end() && old->second == state) continue;
    try {
      load(name);
      write_stderr(fmt::format("ridgeline: loaded {}\n", name));
    } catch (const std::exception& error) {
      warn(fmt::format("{}: {}", name, failure_of(error).message));
    }
  }
  for (const auto& [name, state] : before) {
    if (now.contains(name) || !table()->models().contains(name)) continue;
    unload(name);
    write_stderr(fmt::format("ridgeline: unloaded {}\n", name));
  }
}

std::string Repository::index(bool ready_only) const {
  auto list = nlohmann::json::array();
  const std::vector<ModelPlace> found = places({});
  const auto table = this->table();
  for (const auto& [name, versions] : table->models()) {
    for (const auto& model : versions) {
      list.push_back({{"name", name}, {"version", model->version()}, {"state", "READY"}});
    }
  }
  if (ready_only) return dump_json(list, -1) + "\n";
  const std::scoped_lock lock(mutex_);
  for (const ModelPlace& place : found) {
    if (table->find(place.name, place.version) != nullptr) continue;
    const auto reason = reasons_.find(place.name);
    const bool pending = pending_.contains(place.name);
    list.push_back({{"name", place.name},
                    {"version", place.version},
                    {"state", pending ? "LOADING" : "UNAVAILABLE"},
                    {"reason", pending                    ? "loading"
                               : reason == reasons_.end() ? "unloaded"
                                                          : reason->second}});
  }
  return dump_json(list, -1) + "\n";
}

void Repository::drop_retired() {
  ModelTable::Versions unused;
  {
    const std::scoped_lock lock(mutex_);
    const auto used =
        std::ranges::partition(retired_, [](const auto& model) { return model.use_count() > 1; });
    unused.assign(used.begin(), used.end());
    retired_.erase(used.begin(), used.end());
  }
}

}  // namespace ridgeline::serve
