#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/serve/batcher.h"
#include "ridgeline/serve/model_inputs.h"
#include "ridgeline/serve/model_outputs.h"
#include "ridgeline/serve/options.h"

namespace ridgeline::serve {

// A version of a model, loaded and ready to compute. Whoever has submitted a job keeps it alive
// until the job is done; its destructor joins its threads, so the last owner must not be one of
// them.
class ServedModel {
 public:
  // Throws the errors of loading and planning.
  ServedModel(std::string name, std::string version, const std::filesystem::path& path,
              const ServeOptions& options, Metrics& metrics);

  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }
  const std::vector<std::string>& warnings() const { return loaded_.warnings; }
  const ModelInputs& inputs() const { return inputs_; }
  const ModelOutputs& outputs() const { return outputs_; }
  ModelMetrics& metrics() const { return *metrics_; }
  Batcher& batcher() const { return *batcher_; }

  // Returns the protocol's description of it, as JSON; `versions` are all existing ones.
  std::string metadata(const std::vector<std::string>& versions) const;

 private:
  std::string name_, version_;
  engine::LoadedModel loaded_;
  ModelInputs inputs_;
  ModelOutputs outputs_;
  std::shared_ptr<ModelMetrics> metrics_;
  std::unique_ptr<Batcher> batcher_;
};

}  // namespace ridgeline::serve
