#include "ridgeline/serve/model_engine.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ridgeline/engine/bound_predictor.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/prof/limit.h"

namespace ridgeline::serve {
namespace {

engine::RunConfig on_device(engine::RunConfig run, const std::string& device) {
  run.device = device;
  return run;
}

class ModelEngine final : public Engine {
 public:
  ModelEngine(const engine::LoadedModel& model, const std::string& device, DType inputs,
              int64_t most, std::shared_ptr<std::atomic<double>> busy)
      : machine_(on_device(model.config.run, device)), busy_(std::move(busy)) {
    const auto ceilings = machine_.kept_ceilings();
    for (int64_t batch = 1;; batch = std::min(batch * 2, most)) {
      engine::PredictorOptions options = engine::predictor_options(model, batch);
      options.inputs = inputs;
      auto predictor = std::make_unique<engine::BoundPredictor>(
          machine_, model, model.model, options, OneSampleOptions{},
          plans_.empty() ? nullptr : plans_.back().predictor.get());
      const double limit = ceilings ? prof::limit_of(predictor->program(), *ceilings).seconds() : 0;
      plans_.push_back({batch, limit, std::move(predictor)});
      if (batch == most) break;
    }
  }

  int64_t most() const override { return plans_.back().batch; }
  int64_t width() const override { return plans_.back().predictor->width(); }
  double limit_seconds(int64_t count) const override { return plan_for(count).limit; }

  void run(std::span<const uint8_t> samples, int64_t count, std::span<float> outputs) override {
    const auto begin = Clock::now();
    engine::BoundPredictor& predictor = *plan_for(count).predictor;
    if (!samples.empty()) std::memcpy(predictor.inputs(), samples.data(), samples.size());
    predictor.run();
    predictor.outputs(count, outputs.data());
    busy_->fetch_add(std::chrono::duration<double>(Clock::now() - begin).count(),
                     std::memory_order_relaxed);
  }

 private:
  struct Prepared {
    int64_t batch;
    double limit;  // seconds
    std::unique_ptr<engine::BoundPredictor> predictor;
  };
  const Prepared& plan_for(int64_t count) const {
    return *std::ranges::lower_bound(plans_, count, {}, &Prepared::batch);
  }

  engine::Machine machine_;
  std::shared_ptr<std::atomic<double>> busy_;
  std::vector<Prepared> plans_;
};

}  // namespace

std::unique_ptr<Engine> make_engine(const engine::LoadedModel& model, const std::string& device,
                                    DType inputs, int64_t most,
                                    std::shared_ptr<std::atomic<double>> busy) {
  return std::make_unique<ModelEngine>(model, device, inputs, most, std::move(busy));
}

}  // namespace ridgeline::serve
