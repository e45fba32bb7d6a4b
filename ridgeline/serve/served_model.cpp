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

// Returns the devices of the instances, with "auto" resolved.
std::vector<std::string> devices_of(const ServeOptions& options) {
  std::vector<std::string> names;
  for (const std::string& each : options.devices) {
    names.push_back(to_string(engine::choose_device(each)));
  }
  if (names.empty()) names.push_back(to_string(engine::choose_device(options.model.run.device)));
  return names;
}

// A GPU belongs to the thread that has opened it. Each named device computes.
BatchOptions for_devices(BatchOptions options, const std::vector<std::string>& devices) {
  for (const std::string& each : devices) {
    if (!engine::choose_device(each).is_host()) options.inline_limit = options.inline_limit.zero();
  }
  if (options.instances == 0 && devices.size() > 1) options.instances = int(devices.size());
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
                         const ServeOptions& options, Metrics& metrics)
    : name_(std::move(name)),
      version_(std::move(version)),
      loaded_(load(path, options)),
      inputs_(loaded_),
      outputs_(loaded_),
      metrics_(metrics.of_model(name_, version_)) {
  const std::vector<std::string> devices = devices_of(options);
  const auto make = [&](int instance) {
    const std::string& device = devices[size_t(instance) % devices.size()];
    return make_engine(loaded_, device, inputs_.dtype(), options.max_batch,
                       metrics.busy_seconds(device));
  };
  batcher_ = std::make_unique<Batcher>(make, for_devices(options.batch, devices), metrics_);
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
