#include "ridgeline/api/model.h"

#include <algorithm>
#include <cstring>

#include "ridgeline/api/array.h"
#include "ridgeline/api/train_arrays.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline {
namespace {

using engine::Answer;

// Returns the shape of one sample as a user gives it.
Shape given_shape(const data::Preparation& preparation) {
  const auto& features = preparation.features();
  if (features.size() > 1) return {int64_t(features.size())};
  if (const auto* number = std::get_if<data::NumberFeature>(&features.front())) {
    return number->shape;
  }
  if (const auto* steps = preparation.sequence())
    return steps->timestep.shape.prepend(steps->length);
  return preparation.input_shape();
}

}  // namespace

namespace api {

engine::ModelOptions model_options(const DeviceOptions& options) {
  engine::ModelOptions model;
  model.run.device = options.device;
  model.run.threads = options.threads;
  model.run.tune = options.tune;
  model.run.quiet = true;
  return model;
}

data::FieldSet input_fields(const Tensor& samples, const data::Preparation& preparation,
                            const char* what) {
  data::FieldSet set("the array");
  const auto& features = preparation.features();
  if (features.size() == 1) {
    Tensor values = samples;
    // [samples, 1] is also accepted for one number per sample.
    const auto* number = std::get_if<data::NumberFeature>(&features.front());
    if (number != nullptr && number->shape.rank() == 0 && values.numel() == values.shape[0]) {
      values.shape = {values.shape[0]};
    }
    if (number != nullptr && !(values.shape.drop_front() == number->shape)) {
      throw_error(ErrorKind::usage, "{}: the samples are {} each, but the model takes {}", what,
                  to_string(values.shape.drop_front()), to_string(number->shape));
    }
    data::Field field = data::borrowed_field(data::field_of(features.front()), values);
    field.origin = what;
    set.add(std::move(field));
    return set;
  }
  const auto columns = int64_t(features.size());
  if (samples.shape.rank() != 2 || samples.shape[1] != columns) {
    throw_error(ErrorKind::usage, "{}: the model takes {}, so give an array [samples, {}], not {}",
                what, counted(columns, "column"), columns, to_string(samples.shape));
  }
  for (int64_t c = 0; c < columns; ++c) {
    HostTensor column(samples.dtype, {samples.shape[0]});
    const size_t size = size_of(samples.dtype);
    const auto* from = static_cast<const std::byte*>(samples.data) + size_t(c) * size;
    auto* to = static_cast<std::byte*>(column.view().data);
    for (int64_t i = 0; i < samples.shape[0]; ++i) {
      std::memcpy(to + size_t(i) * size, from + size_t(i * columns) * size, size);
    }
    set.add(data::number_field(data::field_of(features[size_t(c)]), std::move(column)));
  }
  return set;
}

}  // namespace api

namespace {

// Calls answer(count) after each part of the samples was computed.
template <typename F>
void run_in_parts(Model::State& state, engine::Predictor& predictor, const Array& array, F answer) {
  const Tensor samples = api::tensor_of(array, "predict");
  const int64_t count = samples.shape[0], batch = state.batch;
  const auto& preparation = state.loaded.preparation;
  data::FieldSet set;
  if (preparation) {
    Tensor host = samples;
    host.device = {};  // the check of shapes reads no data
    set = api::input_fields(host, *preparation, "predict");
  } else if (samples.dtype != DType::uint8 ||
             samples.numel() != count * state.loaded.model.input().numel()) {
    throw_error(ErrorKind::usage, "predict: the model takes samples of uint8 {}, not {} {}",
                to_string(state.loaded.model.input()), name(samples.dtype),
                to_string(samples.shape.drop_front()));
  }
  const size_t sample_bytes = samples.bytes() / size_t(count);
  const bool is_identity = !preparation || api::reads_in_place(samples, *preparation, "predict: x");
  std::vector<uint8_t> prepared;
  for (int64_t first = 0; first < count; first += batch) {
    const int64_t part = std::min(batch, count - first);
    std::span<const uint8_t> bytes;
    if (!is_identity) {
      prepared.clear();
      engine::append_inputs(set, *preparation, first, first + part, prepared);
      bytes = prepared;
    } else {
      bytes = {samples.as<const uint8_t>() + size_t(first) * sample_bytes,
               size_t(part) * sample_bytes};
    }
    predictor.load(bytes);
    predictor.compute();
    answer(part);
  }
}

}  // namespace

engine::Machine& Model::State::device() {
  if (!machine) machine = std::make_unique<engine::Machine>(loaded.config.run);
  return *machine;
}

engine::Predictor& Model::State::predictor(Answer answer) {
  auto& made = answer == Answer::labels ? labels : outputs;
  if (made) return *made;
  made = std::make_unique<engine::Predictor>(device(), loaded.config, loaded.model, loaded.scaling,
                                             loaded.classes,
                                             engine::predictor_options(loaded, batch, answer));
  return *made;
}

Model Model::load(const std::filesystem::path& path, const DeviceOptions& options) {
  return ModelAccess::make(engine::load_model(path, api::model_options(options)), options);
}

Model Model::from_bytes(std::span<const std::byte> file, const DeviceOptions& options) {
  return ModelAccess::make(engine::load_model({file.begin(), file.end()}, "the model in memory",
                                              api::model_options(options)),
                           options);
}

std::vector<std::byte> Model::to_bytes() const {
  const engine::LoadedModel& model = state_->loaded;
  const auto* preparation = model.preparation ? &*model.preparation : nullptr;
  const std::scoped_lock lock(state_->mutex);
  return nn::to_safetensors(nn::model_tensors(model.model),
                            engine::describe_model(model.model, model.config, model.scaling,
                                                   model.classes, model.symbols, preparation));
}

void Model::save(const std::filesystem::path& file) const {
  nn::require_finite(state_->loaded.model, file.string(), ErrorKind::numeric);
  write_file_atomic(file, to_bytes());
}

std::string Model::config() const { return engine::to_toml(state_->loaded.config); }

std::vector<int64_t> Model::input_shape() const {
  const engine::LoadedModel& model = state_->loaded;
  const Shape shape = model.preparation ? given_shape(*model.preparation) : model.model.input();
  return {shape.dims().begin(), shape.dims().end()};
}

int64_t Model::outputs() const { return state_->loaded.model.output().numel(); }

std::vector<std::string> Model::classes() const {
  const engine::LoadedModel& model = state_->loaded;
  if (model.preparation && model.preparation->target()) return model.preparation->target()->classes;
  std::vector<std::string> names;
  for (int i = 0; i < model.classes; ++i) names.push_back(fmt::format("{}", i));
  return names;
}

namespace {

// Throws unless the memory holds `width` numbers for each sample.
void check_room(const Array& samples, size_t room, int64_t width) {
  const int64_t count = samples.shape.empty() ? 0 : samples.shape.front();
  if (int64_t(room) == count * width) return;
  throw_error(ErrorKind::usage, "predict: the memory for the answers holds {} numbers, not {} x {}",
              room, count, width);
}

}  // namespace

std::vector<float> Model::predict(const Array& samples) {
  const int64_t count = samples.shape.empty() ? 0 : samples.shape.front();
  std::vector<float> all(size_t(std::max<int64_t>(0, count) * outputs()));
  predict(samples, all);
  return all;
}

void Model::predict(const Array& samples, std::span<float> out) {
  check_room(samples, out.size(), outputs());
  predict(samples, out.data(), -1);
}

void Model::predict(const Array& samples, float* out, int gpu) {
  const std::scoped_lock lock(state_->mutex);
  const int64_t width = outputs();
  Runtime& runtime = state_->device().runtime();
  api::check_place(samples, runtime.device(), "predict: x");
  engine::Predictor& predictor = state_->predictor(Answer::outputs);
  const auto& preparation = state_->loaded.preparation;
  const bool scaled = preparation && preparation->target() &&
                      preparation->target()->kind == data::TargetKind::values &&
                      !engine::leaves_unchanged(*preparation);
  const Tensor plain = predictor.runner().plan().peek(predictor.output_value().id);
  const bool direct = !scaled && plain.dtype == DType::fp32;
  if (gpu >= 0 && (!direct || runtime.device() != Device{DeviceKind::cuda, gpu})) {
    throw_error(
        ErrorKind::usage,
        "predict: out: got memory of cuda:{}, expected that of the host: this model computes "
        "on {} and its answers are {}",
        gpu, to_string(runtime.device()), scaled ? "scaled on the host" : name(plain.dtype));
  }
  run_in_parts(*state_, predictor, samples, [&](int64_t count) {
    const size_t bytes = size_t(count * width) * sizeof(float);
    if (gpu >= 0) {
      runtime.upload(out, plain.data, bytes);
    } else if (direct) {
      runtime.download(out, plain.data, bytes);
    } else {
      std::vector<double> values = predictor.outputs();
      values.resize(size_t(count * width));
      if (scaled) preparation->target()->restore(values, width / preparation->target()->outputs());
      std::ranges::transform(values, out, [](double value) { return float(value); });
    }
    out += count * width;
  });
}

GpuQueue Model::queue() {
  const std::scoped_lock lock(state_->mutex);
  return QueueAccess::make(state_->device().runtime());
}

void Model::weights_changed() {
  const std::scoped_lock lock(state_->mutex);
  state_->forget_plans();
}

std::vector<int32_t> Model::predict_classes(const Array& samples) {
  const int64_t count = samples.shape.empty() ? 0 : samples.shape.front();
  std::vector<int32_t> all(size_t(std::max<int64_t>(0, count)));
  predict_classes(samples, all);
  return all;
}

void Model::predict_classes(const Array& samples, std::span<int32_t> out) {
  const std::scoped_lock lock(state_->mutex);
  if (state_->loaded.classes == 0) {
    throw_error(ErrorKind::usage, "predict_classes: the model gives values; use predict()");
  }
  check_room(samples, out.size(), 1);
  api::check_place(samples, state_->device().device(), "predict: x");
  engine::Predictor& predictor = state_->predictor(Answer::labels);
  auto to = out.begin();
  run_in_parts(*state_, predictor, samples, [&](int64_t count) {
    const std::vector<int32_t> labels = predictor.labels();
    to = std::copy_n(labels.begin(), count, to);
  });
}

}  // namespace ridgeline
