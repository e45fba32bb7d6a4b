#include "ridgeline/c_api.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "ridgeline/engine/prepared_predictor.h"

// C handles are objects of the engine; exceptions end here and become a status and a message.

struct ridgeline_model {
  ridgeline::engine::LoadedModel loaded;
  std::vector<std::string> classes;
};
struct ridgeline_predictor {
  ridgeline::engine::PreparedPredictor prepared;
};

namespace {

using ridgeline::DType;
using ridgeline::Error;
using ridgeline::ErrorKind;
using ridgeline::throw_error;
using ridgeline::engine::LoadedModel;

// Static memory of the thread, so that an error can be reported when memory is exhausted.
thread_local char last_error[1024] = "";

void say(const char* text) noexcept {
  std::strncpy(last_error, text, sizeof(last_error) - 1);
  last_error[sizeof(last_error) - 1] = '\0';
}

ridgeline_status status_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage:
      return RIDGELINE_USAGE;
    case ErrorKind::data:
      return RIDGELINE_DATA;
    case ErrorKind::model:
      return RIDGELINE_MODEL;
    case ErrorKind::numeric:
      return RIDGELINE_NUMERIC;
    case ErrorKind::io:
      return RIDGELINE_IO;
    case ErrorKind::device:
      return RIDGELINE_DEVICE;
    case ErrorKind::comm:
      return RIDGELINE_COMM;
  }
  return RIDGELINE_INTERNAL;
}

// Calls f, and turns its exception into a status.
template <typename F>
ridgeline_status guarded(F&& f) noexcept {
  try {
    f();
    return RIDGELINE_OK;
  } catch (const Error& error) {
    say(error.what());
    return status_of(error.kind());
  } catch (const std::bad_alloc&) {
    say("out of memory");
    return RIDGELINE_MEMORY;
  } catch (const std::exception& error) {
    say(error.what());
  } catch (...) {
    say("an exception of an unknown type");
  }
  return RIDGELINE_INTERNAL;
}

void require(const void* pointer, const char* call, const char* what) {
  if (pointer == nullptr) throw_error(ErrorKind::usage, "{}: {} is null", call, what);
}

std::optional<DType> dtype_of(ridgeline_type type, const char* call) {
  switch (int(type)) {
    case RIDGELINE_OWN:
      return std::nullopt;
    case RIDGELINE_FLOAT32:
      return DType::fp32;
    case RIDGELINE_UINT8:
      return DType::uint8;
  }
  throw_error(ErrorKind::usage, "{}: there is no type {}", call, int(type));
}

std::vector<std::string> class_names(const LoadedModel& loaded) {
  if (loaded.preparation && loaded.preparation->target()) {
    return loaded.preparation->target()->classes;
  }
  std::vector<std::string> names;
  for (int i = 0; i < loaded.classes; ++i) names.push_back(std::to_string(i));
  return names;
}

ridgeline_status prepare(const char* call, const ridgeline_model* model,
                         ridgeline::engine::PrepareOptions options, const char* device,
                         ridgeline_type type, ridgeline_predictor** predictor) noexcept {
  return guarded([&] {
    require(predictor, call, "predictor");
    *predictor = nullptr;
    require(model, call, "model");
    if (device != nullptr) options.device = device;
    options.inputs = dtype_of(type, call);
    *predictor = new ridgeline_predictor{{model->loaded, options}};
  });
}

void check_state(const ridgeline_predictor* predictor, const void* state, size_t size,
                 const char* call) {
  require(predictor, call, "predictor");
  require(state, call, "state");
  const size_t want = predictor->prepared.state_bytes();
  if (size == want) return;
  throw_error(ErrorKind::usage, "{}: {} bytes were given, and the state has {}", call, size, want);
}

}  // namespace

const char* ridgeline_version(void) { return RIDGELINE_VERSION; }
int ridgeline_c_api_version(void) { return RIDGELINE_C_API_VERSION; }
const char* ridgeline_last_error(void) { return last_error; }

ridgeline_status ridgeline_load(const char* path, ridgeline_model** model) {
  return guarded([&] {
    require(model, "ridgeline_load", "model");
    *model = nullptr;
    require(path, "ridgeline_load", "path");
    ridgeline::engine::ModelOptions options;
    options.run.device = "cpu";  // each predictor has its own device
    options.run.quiet = true;
    LoadedModel loaded = ridgeline::engine::load_model(path, options);
    std::vector<std::string> classes = class_names(loaded);
    *model = new ridgeline_model{std::move(loaded), std::move(classes)};
  });
}

void ridgeline_free_model(ridgeline_model* model) { delete model; }

int64_t ridgeline_class_count(const ridgeline_model* model) {
  return model != nullptr ? int64_t(model->classes.size()) : 0;
}

const char* ridgeline_class_name(const ridgeline_model* model, int64_t index) {
  if (index < 0 || index >= ridgeline_class_count(model)) return nullptr;
  return model->classes[size_t(index)].c_str();
}

ridgeline_status ridgeline_prepare(const ridgeline_model* model, int64_t batch, const char* device,
                                   int threads, ridgeline_type type,
                                   ridgeline_predictor** predictor) {
  ridgeline::engine::PrepareOptions options;
  options.batch = batch;
  options.threads = threads;
  return prepare("ridgeline_prepare", model, options, device, type, predictor);
}

ridgeline_status ridgeline_prepare_steps(const ridgeline_model* model, int64_t streams,
                                         const char* device, int threads, ridgeline_type type,
                                         ridgeline_predictor** predictor) {
  ridgeline::engine::PrepareOptions options;
  options.batch = streams;
  options.threads = threads;
  options.timesteps = true;
  return prepare("ridgeline_prepare_steps", model, options, device, type, predictor);
}

ridgeline_status ridgeline_prepare_resident(const ridgeline_model* model, const char* device,
                                            int timesteps, double idle_seconds, ridgeline_type type,
                                            ridgeline_predictor** predictor) {
  constexpr const char* kCall = "ridgeline_prepare_resident";
  constexpr double kLongest = 1e9;
  ridgeline::engine::PrepareOptions options;
  options.device = "cuda";
  options.timesteps = timesteps != 0;
  options.one_sample = {true, idle_seconds};
  if (!(idle_seconds >= 0 && idle_seconds <= kLongest)) {
    return guarded(
        [&] { throw_error(ErrorKind::usage, "{}: idle_seconds must be 0 or more", kCall); });
  }
  return prepare(kCall, model, options, device, type, predictor);
}

void ridgeline_free_predictor(ridgeline_predictor* predictor) { delete predictor; }

int64_t ridgeline_batch(const ridgeline_predictor* predictor) {
  return predictor != nullptr ? predictor->prepared.batch() : 0;
}
ridgeline_type ridgeline_input_type(const ridgeline_predictor* predictor) {
  if (predictor == nullptr) return RIDGELINE_OWN;
  return predictor->prepared.input_type() == DType::fp32 ? RIDGELINE_FLOAT32 : RIDGELINE_UINT8;
}
int64_t ridgeline_input_size(const ridgeline_predictor* predictor) {
  return predictor != nullptr ? predictor->prepared.inputs() : 0;
}
int64_t ridgeline_output_size(const ridgeline_predictor* predictor) {
  return predictor != nullptr ? predictor->prepared.outputs() : 0;
}
int ridgeline_input_shape(const ridgeline_predictor* predictor, int64_t* extents, int most) {
  if (predictor == nullptr) return 0;
  const auto dims = predictor->prepared.input_shape().dims();
  if (extents != nullptr && most > 0) {
    std::ranges::copy(dims.first(std::min(dims.size(), size_t(most))), extents);
  }
  return int(dims.size());
}

ridgeline_status ridgeline_run(ridgeline_predictor* predictor, const void* samples, int64_t count,
                               float* outputs) {
  return guarded([&] {
    require(predictor, "ridgeline_run", "predictor");
    if (count == 0) return;
    require(samples, "ridgeline_run", "samples");
    require(outputs, "ridgeline_run", "outputs");
    if (predictor->prepared.timesteps()) {
      throw_error(ErrorKind::usage,
                  "ridgeline_run: the predictor was prepared for timesteps; use ridgeline_step");
    }
    predictor->prepared.run(samples, count, outputs);
  });
}

ridgeline_status ridgeline_step(ridgeline_predictor* predictor, const void* timestep,
                                float* outputs) {
  return guarded([&] {
    require(predictor, "ridgeline_step", "predictor");
    require(timestep, "ridgeline_step", "timestep");
    require(outputs, "ridgeline_step", "outputs");
    if (!predictor->prepared.timesteps()) {
      throw_error(ErrorKind::usage,
                  "ridgeline_step: the predictor was prepared for whole samples; prepare it by "
                  "ridgeline_prepare_steps");
    }
    predictor->prepared.run(timestep, predictor->prepared.batch(), outputs);
  });
}

size_t ridgeline_state_size(const ridgeline_predictor* predictor) {
  return predictor != nullptr ? predictor->prepared.state_bytes() : 0;
}
ridgeline_status ridgeline_save_state(const ridgeline_predictor* predictor, void* state,
                                      size_t size) {
  return guarded([&] {
    check_state(predictor, state, size, "ridgeline_save_state");
    predictor->prepared.save_state(state);
  });
}
ridgeline_status ridgeline_restore_state(ridgeline_predictor* predictor, const void* state,
                                         size_t size) {
  return guarded([&] {
    check_state(predictor, state, size, "ridgeline_restore_state");
    predictor->prepared.restore_state(state);
  });
}
ridgeline_status ridgeline_reset_state(ridgeline_predictor* predictor) {
  return guarded([&] {
    require(predictor, "ridgeline_reset_state", "predictor");
    predictor->prepared.reset_state();
  });
}
