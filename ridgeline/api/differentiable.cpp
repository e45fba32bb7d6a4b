#include "ridgeline/engine/differentiable.h"

#include "ridgeline/api/model.h"

namespace ridgeline {

struct Differentiable::State {
  engine::Differentiable function;
  std::vector<int64_t> shape;
  std::vector<NamedArray> weights{};
  std::vector<bool> trained{};

  State(const engine::LoadedModel& loaded, const engine::RunConfig& run)
      : function(loaded, run),
        shape(function.input().dims().begin(), function.input().dims().end()) {
    const Device device = function.machine().device();
    for (size_t i = 0; i < function.params().size(); ++i) {
      const Tensor& value = function.params()[i];
      const nn::Param& spec = function.specs()[i];
      NamedArray each{spec.name, {}};
      each.values.data = value.data;
      each.values.type = value.dtype == DType::fp64    ? ArrayType::float64
                         : value.dtype == DType::int64 ? ArrayType::int64
                                                       : ArrayType::float32;
      if (spec.kind != nn::ParamKind::counter) {
        each.values.shape.assign(value.shape.dims().begin(), value.shape.dims().end());
      }
      each.values.gpu = device.is_host() ? -1 : device.index;
      weights.push_back(std::move(each));
      trained.push_back(spec.trained());
    }
  }
};

Differentiable::Differentiable(const Model& model, const DeviceOptions& options) {
  Model::State& from = ModelAccess::state(model);
  const std::scoped_lock lock(from.mutex);
  state_ = std::make_unique<State>(from.loaded, api::model_options(options).run);
}

Differentiable::Differentiable(Differentiable&&) noexcept = default;
Differentiable& Differentiable::operator=(Differentiable&&) noexcept = default;
Differentiable::~Differentiable() = default;

ArrayType Differentiable::type() const {
  return state_->function.type() == DType::fp64 ? ArrayType::float64 : ArrayType::float32;
}
const std::vector<int64_t>& Differentiable::input_shape() const { return state_->shape; }
int64_t Differentiable::outputs() const { return state_->function.output().numel(); }
GpuQueue Differentiable::queue() { return QueueAccess::make(state_->function.machine().runtime()); }
const std::vector<NamedArray>& Differentiable::weights() const { return state_->weights; }
const std::vector<bool>& Differentiable::trained() const { return state_->trained; }

void Differentiable::forward(const void* x, int64_t n, void* y, int64_t step, bool training) {
  state_->function.forward(x, n, y, step, training);
}

void Differentiable::backward(const void* x, const void* dy, int64_t n, void* dx,
                              std::span<void* const> grads, int64_t step, bool training) {
  state_->function.backward(x, dy, n, dx, grads, step, training);
}

}  // namespace ridgeline
