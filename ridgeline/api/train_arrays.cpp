#include "ridgeline/api/train_arrays.h"

#include "ridgeline/api/array.h"
#include "ridgeline/api/config.h"
#include "ridgeline/engine/own_data.h"

namespace ridgeline::api {
namespace {

data::FieldSet fields_of(const Samples& samples, const char* what) {
  Tensor inputs = api::tensor_of(samples.inputs, what),
         targets = api::tensor_of(samples.targets, what);
  // [samples, 1] is one number a sample as well.
  if (targets.shape.rank() == 2 && targets.shape[1] == 1) targets.shape = {targets.shape[0]};
  data::FieldSet set(what);
  set.add(data::borrowed_field("inputs", inputs));
  set.add(data::borrowed_field("targets", targets));
  return set;
}

}  // namespace

engine::Config parse_for_arrays(const Config& config, const Samples& samples) {
  std::vector<std::string> more = ConfigAccess::of_arrays();
  if (!ConfigAccess::names(config, "data.target_kind")) {
    const bool classes = samples.targets.type == ArrayType::int32 ||
                         samples.targets.type == ArrayType::int64 ||
                         samples.targets.type == ArrayType::uint8;
    more.push_back(classes ? "data.target_kind=\"classes\"" : "data.target_kind=\"values\"");
  }
  return ConfigAccess::parse(config, more);
}

std::shared_ptr<const data::DataSet> prepare_arrays(const engine::Config& config,
                                                    const Samples& samples,
                                                    const std::optional<Samples>& test,
                                                    const std::optional<Samples>& validation,
                                                    bool hold_out, const data::Preparation* known) {
  engine::OwnParts parts{.train = fields_of(samples, "the training arrays"), .target = {"targets"}};
  if (test) parts.test = fields_of(*test, "the test arrays");
  if (validation) parts.validation = fields_of(*validation, "the validation arrays");
  parts.all_train = !hold_out && !test;
  return std::make_shared<data::DataSet>(engine::prepare_own_data(config, std::move(parts), known));
}

}  // namespace ridgeline::api
