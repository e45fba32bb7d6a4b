#include "ridgeline/serve/model_engine.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ridgeline/engine/predict.h"

namespace ridgeline::serve {
namespace {

class ModelEngine final : public Engine {
 public:
  ModelEngine(const engine::LoadedModel& model, DType inputs, int64_t most)
      : machine_(model.config.run), width_(model.model.output().numel()) {
    for (int64_t batch = 1;; batch = std::min(batch * 2, most)) {
      plans_.push_back(
          {batch, std::make_unique<engine::Predictor>(machine_, model.config, model.model,
                                                      model.scaling, model.classes, batch, nullptr,
                                                      engine::Answer::outputs, inputs)});
      if (batch == most) break;
    }
  }

  int64_t most() const override { return plans_.back().batch; }
  int64_t width() const override { return width_; }

  void run(std::span<const uint8_t> samples, int64_t count, std::span<float> outputs) override {
    const auto plan = std::ranges::lower_bound(plans_, count, {}, &Prepared::batch);
    engine::Predictor& predictor = *plan->predictor;
    predictor.load(samples);
    predictor.compute();
    const std::vector<double> values = predictor.outputs();
    std::transform(values.begin(), values.begin() + ptrdiff_t(outputs.size()), outputs.begin(),
                   [](double value) { return float(value); });
  }

 private:
  struct Prepared {
    int64_t batch;
    std::unique_ptr<engine::Predictor> predictor;
  };

  engine::Machine machine_;
  int64_t width_;
  std::vector<Prepared> plans_;
};

}  // namespace

std::unique_ptr<Engine> make_engine(const engine::LoadedModel& model, DType inputs, int64_t most) {
  return std::make_unique<ModelEngine>(model, inputs, most);
}

}  // namespace ridgeline::serve
