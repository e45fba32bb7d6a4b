#include "ridgeline/api/train_arrays.h"

#include <cmath>

#include "ridgeline/api/array.h"
#include "ridgeline/api/config.h"
#include "ridgeline/api/model.h"
#include "ridgeline/engine/user_data.h"
#include "ridgeline/engine/weights.h"

namespace ridgeline::api {
namespace {

// [samples, 1] is also accepted for one number per sample.
Tensor targets_of(const Array& array, const char* what) {
  if (array.gpu >= 0) {
    throw_error(ErrorKind::usage, "{}: got targets on cuda:{}, expected them on the host", what,
                array.gpu);
  }
  Tensor targets = tensor_of(array, what);
  if (targets.shape.rank() == 2 && targets.shape[1] == 1) targets.shape = {targets.shape[0]};
  return targets;
}

// A field over the caller's memory; messages begin with `what`.
data::Field borrow(std::string name, const Tensor& values, const char* what) {
  data::Field field = data::borrowed_field(std::move(name), values);
  field.origin = what;
  return field;
}

data::FieldSet fields_of(const Samples& samples, const char* what) {
  const Tensor inputs = tensor_of(samples.inputs, what),
               targets = targets_of(samples.targets, what);
  data::FieldSet set(what);
  set.add(borrow("inputs", inputs, what));
  set.add(borrow("targets", targets, what));
  return set;
}

// The weights of as many samples, in the engine's type; empty if there are none.
HostTensor weights_of(const Samples& samples, int64_t count, const char* what) {
  if (samples.weights.data == nullptr) return {};
  const Tensor given = targets_of(samples.weights, what);
  if (!is_float(given.dtype) || given.shape.rank() != 1 || given.shape[0] != count) {
    throw_error(ErrorKind::usage,
                "{}: got weights {} {}, expected float32 or float64 [{}]: one for each sample that "
                "has a target",
                what, name(given.dtype), to_string(given.shape), count);
  }
  HostTensor weights(DType::fp32, {count});
  engine::convert(given, weights.view());
  double sum = 0;
  for (const float each : weights.span<const float>()) {
    if (!(each >= 0) || std::isinf(each)) {
      throw_error(ErrorKind::usage, "{}: got the weight {}, expected finite numbers from 0 on",
                  what, each);
    }
    sum += double(each);
  }
  if (sum <= 0) throw_error(ErrorKind::usage, "{}: all weights are 0", what);
  return weights;
}

void add_weights(data::SampleSet& set, const Samples& samples, const char* what) {
  set.weights = weights_of(samples, set.size(), what);
  if (set.has_weights()) set.hash = data::hash_of(set);
}

// Returns samples and targets whose inputs stay in place; none if that is impossible.
std::optional<data::SampleSet> in_place(const Samples& samples, const data::Preparation& known,
                                        const char* what) {
  const Tensor inputs = tensor_of(samples.inputs, what);
  if (!reads_in_place(inputs, known, what)) return std::nullopt;
  data::FieldSet set(what);
  set.add(borrow(known.target()->fields.front(), targets_of(samples.targets, what), what));
  if (samples.targets.shape.front() != inputs.shape[0]) return std::nullopt;  // refused elsewhere
  data::SampleSet ready = engine::prepare_in_place(inputs, set, known, what);
  add_weights(ready, samples, what);
  return ready;
}

int64_t bytes_of(const Array& array) {
  return array.shape.empty() ? 0 : int64_t(tensor_of(array, "an array").bytes());
}

}  // namespace

bool reads_in_place(const Tensor& inputs, const data::Preparation& preparation, const char* what) {
  const bool on_gpu = !inputs.device.is_host();
  const bool ready = inputs.dtype == DType::fp32 && engine::leaves_unchanged(preparation) &&
                     preparation.target()->fields.size() == 1 &&
                     inputs.shape.drop_front() == preparation.input_shape();
  if (on_gpu) {
    if (ready) return true;
    throw_error(ErrorKind::usage,
                "{}: got {} {} on {}, expected float32 {} there and a model that takes samples as "
                "they are (scale = \"raw\"): what else is done to samples is done on the host",
                what, name(inputs.dtype), to_string(inputs.shape.drop_front()),
                to_string(inputs.device), to_string(preparation.input_shape()));
  }
  if (!ready) return false;
  // A kernel may load a whole cache line at the last number, which is harmless within a page.
  constexpr uintptr_t kPage = 4096;
  const uintptr_t end = reinterpret_cast<uintptr_t>(inputs.data) + inputs.bytes();
  if ((end - 1) % kPage + kAlignment >= kPage) return false;
  return engine::all_finite(inputs);
}

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
  if (known != nullptr && !hold_out && !test) {
    auto train = in_place(samples, *known, "the training arrays");
    std::optional<data::SampleSet> other;
    if (train && validation) other = in_place(*validation, *known, "the validation arrays");
    if (train && (!validation || other)) {
      auto set = std::make_shared<data::DataSet>();
      set->train = std::move(*train);
      set->validation = std::move(other);
      set->preparation = std::make_shared<const data::Preparation>(*known);
      return set;
    }
  }
  for (const auto& part : {std::optional(samples), test, validation}) {
    if (part && part->inputs.gpu >= 0) {
      throw_error(ErrorKind::usage,
                  "train: got samples on cuda:{}, expected them on the host: only a model that has "
                  "weights and takes samples as they are (scale = \"raw\") reads them there",
                  part->inputs.gpu);
    }
    if (part) count_copied(bytes_of(part->inputs));
  }
  engine::UserParts parts{.train = fields_of(samples, "the training arrays"),
                          .target = {"targets"}};
  if (test) parts.test = fields_of(*test, "the test arrays");
  if (validation) parts.validation = fields_of(*validation, "the validation arrays");
  parts.all_train = !hold_out && !test;
  if (samples.weights.data != nullptr && !parts.all_train && !test) {
    throw_error(ErrorKind::usage,
                "train: samples with weights are not divided: give what to test on, or hold_out = "
                "false");
  }
  auto set =
      std::make_shared<data::DataSet>(engine::prepare_own_data(config, std::move(parts), known));
  add_weights(set->train, samples, "the training arrays");
  if (test) add_weights(set->test, *test, "the test arrays");
  if (validation) add_weights(*set->validation, *validation, "the validation arrays");
  return set;
}

data::SampleSet prepare_batch(const Samples& samples, const data::Preparation& preparation,
                              const char* what) {
  if (auto ready = in_place(samples, preparation, what)) return std::move(*ready);
  const Tensor inputs = tensor_of(samples.inputs, what);
  data::FieldSet fields = input_fields(inputs, preparation, what);
  const std::vector<std::string>& names = preparation.target()->fields;
  if (names.size() != 1) {
    throw_error(ErrorKind::usage, "{}: the model has {} target fields, an array is one", what,
                names.size());
  }
  fields.add(borrow(names.front(), targets_of(samples.targets, what), what));
  count_copied(int64_t(inputs.bytes()));
  data::SampleSet set = engine::prepare_samples(fields, preparation, what);
  add_weights(set, samples, what);
  return set;
}

}  // namespace ridgeline::api
