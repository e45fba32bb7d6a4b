#include "ridgeline/serve/served_model.h"

#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/serve/model_engine.h"

namespace ridgeline::serve {
namespace {

engine::LoadedModel load(const std::filesystem::path& path, const ServeOptions& options) {
  engine::LoadedModel model = engine::load_model(path, options.model);
  if (!model.symbols.empty()) {
    throw_error(ErrorKind::usage,
                "{}: is a language model, which serve does not take; ask it for text with "
                "`ridgeline infer --generate N`",
                path.string());
  }
  return model;
}

// A GPU belongs to the thread that has opened it.
BatchOptions for_device(BatchOptions options, const engine::RunConfig& run) {
  if (engine::choose_device(run.device).kind != DeviceKind::cpu) {
    options.inline_limit = options.inline_limit.zero();
  }
  return options;
}

nlohmann::json to_json(std::span<const TensorSpec> specs) {
  auto list = nlohmann::json::array();
  for (const TensorSpec& spec : specs) {
    list.push_back({{"name", spec.name},
                    {"datatype", std::string(serve::name(spec.type))},
                    {"shape", spec.shape}});
  }
  return list;
}

}  // namespace

ServedModel::ServedModel(std::string name, std::string version, const std::filesystem::path& path,
                         const ServeOptions& options, std::shared_ptr<ModelMetrics> metrics)
    : name_(std::move(name)),
      version_(std::move(version)),
      loaded_(load(path, options)),
      inputs_(loaded_),
      outputs_(loaded_),
      metrics_(std::move(metrics)) {
  const auto make = [&] { return make_engine(loaded_, inputs_.dtype(), options.max_batch); };
  batcher_ =
      std::make_unique<Batcher>(make, for_device(options.batch, loaded_.config.run), metrics_);
}

std::string ServedModel::metadata(const std::vector<std::string>& versions) const {
  const nlohmann::json document{{"name", name_},
                                {"versions", versions},
                                {"platform", "ridgeline"},
                                {"inputs", to_json(inputs_.declared())},
                                {"outputs", to_json(outputs_.declared())}};
  return dump_json(document, -1) + "\n";
}

}  // namespace ridgeline::serve
