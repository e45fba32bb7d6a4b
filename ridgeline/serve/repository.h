#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/serve/model_places.h"
#include "ridgeline/serve/served_model.h"

namespace ridgeline::serve {

// The models that are served at one moment.
class ModelTable {
 public:
  using Versions = std::vector<std::shared_ptr<const ServedModel>>;  // ascending

  // An empty version means the highest. Returns null if there is none.
  const std::shared_ptr<const ServedModel>* find(std::string_view name,
                                                 std::string_view version) const;
  std::vector<std::string> versions(std::string_view name) const;
  const std::map<std::string, Versions, std::less<>>& models() const { return models_; }

 private:
  friend class Repository;
  std::map<std::string, Versions, std::less<>> models_;
};

// Loads and replaces models. A published table never changes: requests keep the one that they began
// with, and a model is destroyed when the last of them is answered.
class Repository {
 public:
  Repository(const ServeOptions& options, Metrics& metrics);

  // Loads all models. Throws for a model that the command line names; bad ones of the folder are
  // reported on stderr and skipped.
  void load_all();
  // Loads all versions of a model. If one of them is bad, the old ones stay; if there are none, and
  // the model is one of the folder, the good ones are taken and the bad ones reported on stderr.
  // Throws Error(usage) for an unknown name, and the error of loading if nothing was loaded.
  void load(const std::string& name);
  void unload(const std::string& name);  // throws Error(usage) for a name that is not loaded
  // Reloads all models. A bad one keeps its old state, and is reported on stderr.
  void reload_all();

  // Checks the folder: loads models that are new or changed since the last check, and removes those
  // that are gone. Bad ones are reported on stderr once, and tried again when they change.
  void poll();

  // Whether a model is being loaded, will be before the server is ready, or has just been loaded.
  bool is_loading(std::string_view name) const;

  // Increases with every change of the table.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  std::shared_ptr<const ModelTable> table() const;
  // All models that could be loaded, as the protocol's repository index; optionally only those that
  // are ready.
  std::string index(bool ready_only) const;

  // Frees models that are no longer used. Not for threads that requests wait for.
  void drop_retired();

 private:
  std::vector<ModelPlace> places(const std::string& name) const;  // empty: of all models
  bool is_given(const std::string& name) const;                   // on the command line
  void load_versions(const std::string& name);
  void replace(const std::string& name, ModelTable::Versions versions);
  std::map<std::string, std::string> folder_states() const;

  const ServeOptions& options_;
  Metrics& metrics_;
  std::vector<ModelPlace> given_;  // on the command line
  // The state of the folder's files at the last poll(), by model. Used by poll() only.
  std::optional<std::map<std::string, std::string>> seen_;
  std::mutex loading_;        // one change at a time
  mutable std::mutex mutex_;  // for the following members
  std::shared_ptr<const ModelTable> table_;
  std::map<std::string, std::string> reasons_;  // why the last load of a model failed
  std::set<std::string, std::less<>> pending_;  // models that are being loaded, or will be
  ModelTable::Versions retired_;
  std::atomic<uint64_t> generation_{1};
};

}  // namespace ridgeline::serve
