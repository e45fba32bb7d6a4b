#include "ridgeline/api/model.h"
#include "ridgeline/engine/prepared_predictor.h"

namespace ridgeline {

struct Predictor::State {
  engine::PreparedPredictor prepared;
  std::vector<int64_t> shape;

  State(const engine::LoadedModel& model, const engine::PrepareOptions& options)
      : prepared(model, options),
        shape(prepared.input_shape().dims().begin(), prepared.input_shape().dims().end()) {}
};

Predictor::Predictor(const Model& model, const PredictorOptions& options) {
  engine::PrepareOptions prepare;
  prepare.batch = options.batch;
  prepare.device = options.device;
  prepare.threads = options.threads;
  prepare.tune = options.tune;
  Model::State& from = ModelAccess::state(model);
  const std::scoped_lock lock(from.mutex);
  state_ = std::make_unique<State>(from.loaded, prepare);
}

Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;
Predictor::~Predictor() = default;

int64_t Predictor::batch() const { return state_->prepared.batch(); }

ArrayType Predictor::input_type() const {
  const DType type = state_->prepared.input_type();
  return type == DType::uint8   ? ArrayType::uint8
         : type == DType::int32 ? ArrayType::int32
                                : ArrayType::float32;
}

int64_t Predictor::codes() const { return state_->prepared.codes(); }

const std::vector<int64_t>& Predictor::input_shape() const { return state_->shape; }

int64_t Predictor::outputs() const { return state_->prepared.outputs(); }

void Predictor::run(const void* samples, int64_t count, float* out) {
  state_->prepared.run(samples, count, out);
}

void Predictor::run_on_gpu(const void* samples, int64_t count, float* out) {
  state_->prepared.run_on_gpu(samples, count, out);
}

GpuQueue Predictor::queue() { return QueueAccess::make(state_->prepared.runtime()); }

}  // namespace ridgeline
