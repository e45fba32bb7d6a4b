#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/serve/model_places.h"
#include "ridgeline/serve/served_model.h"

namespace ridgeline::serve {

// The models that answer at one moment.
class ModelTable {
 public:
  using Versions = std::vector<std::shared_ptr<const ServedModel>>;  // ascending

  // An empty version is the highest. Null: there is none.
  const std::shared_ptr<const ServedModel>* find(std::string_view name,
                                                 std::string_view version) const;
  std::vector<std::string> versions(std::string_view name) const;
  const std::map<std::string, Versions, std::less<>>& models() const { return models_; }

 private:
  friend class Repository;
  std::map<std::string, Versions, std::less<>> models_;
};

// Loads models and puts them in each other's place. A table is never changed once it is seen:
// requests keep the one that they began with, and a model goes when the last of them is answered.
class Repository {
 public:
  Repository(const ServeOptions& options, Metrics& metrics);

  // Everything there is. Throws for a model that the command line names; bad ones of the folder are
  // said on stderr and left out.
  void load_all();
  // All versions of a model, or none: what was there stays if one of them is bad. Throws usage for
  // a name that is not known, else what loading throws.
  void load(const std::string& name);
  void unload(const std::string& name);  // throws usage for a name that is not loaded
  // Loads again what is loaded. What is bad stays as it was, and is said on stderr.
  void reload_all();

  // Looks at the folder: loads what is new or has changed since the last look, and takes out what
  // is gone. What is bad is said on stderr once, and tried again when it changes.
  void poll();

  // Grows with every change of the table.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  std::shared_ptr<const ModelTable> table() const;
  // All that could be loaded, as the protocol's repository index; only what is ready if so asked.
  std::string index(bool ready_only) const;

  // Frees models that nobody uses any more. Not for threads that requests wait for.
  void drop_retired();

 private:
  std::vector<ModelPlace> places(const std::string& name) const;  // empty: of all models
  void replace(const std::string& name, ModelTable::Versions versions);
  std::map<std::string, std::string> folder_states() const;

  const ServeOptions& options_;
  Metrics& metrics_;
  std::vector<ModelPlace> given_;  // on the command line
  // What the folder's files looked like when poll() last did, by model. For poll() alone.
  std::optional<std::map<std::string, std::string>> seen_;
  std::mutex loading_;        // one change at a time
  mutable std::mutex mutex_;  // of what follows
  std::shared_ptr<const ModelTable> table_;
  std::map<std::string, std::string> reasons_;  // why the last load of a model failed
  ModelTable::Versions retired_;
  std::atomic<uint64_t> generation_{1};
};

}  // namespace ridgeline::serve
