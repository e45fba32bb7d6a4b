#include "ridgeline/nn/custom.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ridgeline/core/error.h"
#include "ridgeline/nn/layers.h"
#include "ridgeline/plan/plan.h"
#include "ridgeline/plan/planner.h"
#include "ridgeline/registry.h"

namespace ridgeline::nn {
namespace {

// y = scale * w * x for each feature.
class Scaled final : public CustomLayer {
 public:
  explicit Scaled(float scale) : scale_(scale) {}
  std::vector<int64_t> output_shape(const std::vector<int64_t>& input) const override {
    if (input.size() != 1) throw Error(ErrorKind::usage, "scaled takes a vector");
    return input;
  }
  std::vector<Weight> weights(const std::vector<int64_t>& input) const override {
    return {{"w", input, 0.0, 3.0}};
  }
  void forward(const LayerBatch& batch) const override {
    for (size_t i = 0; i < batch.x.size(); ++i) {
      batch.y[i] = scale_ * batch.weights[0][i % batch.weights[0].size()] * batch.x[i];
    }
  }
  void backward(const LayerBatch& batch) const override {
    std::ranges::fill(batch.weight_grads[0], 0.0F);
    for (size_t i = 0; i < batch.x.size(); ++i) {
      const size_t f = i % batch.weights[0].size();
      if (!batch.dx.empty()) batch.dx[i] = scale_ * batch.weights[0][f] * batch.dy[i];
      batch.weight_grads[0][f] += scale_ * batch.x[i] * batch.dy[i];
    }
  }

 private:
  float scale_;
};

LayerPtr read_custom(const std::string& text) {
  auto root = ConfigTable::parse("layer = " + text, "test");
  auto table = root.table("layer");
  return read_layer(table);
}

class CustomLayers : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    add_layer_type("scaled", [](const std::map<std::string, double>& settings) {
      const auto scale = settings.find("scale");
      return std::make_shared<Scaled>(scale != settings.end() ? float(scale->second) : 1.0F);
    });
  }
};

TEST_F(CustomLayers, AreReadFromConfigsAndWrittenBack) {
  const LayerPtr layer = read_custom("{ type = 'scaled', scale = 2 }");
  EXPECT_EQ(layer->type(), "scaled");
  EXPECT_EQ(layer->to_toml(), "{ type = \"scaled\", scale = 2.0 }");
  EXPECT_EQ(read_custom(layer->to_toml())->to_toml(), layer->to_toml());
  EXPECT_EQ(layer->output({5}), Shape({5}));
  EXPECT_THROW(layer->output({5, 2}), Error);
  EXPECT_THROW(add_layer_type("scaled", nullptr), Error);
  EXPECT_THROW(add_layer_type("linear", nullptr), Error);
  EXPECT_THROW(read_custom("{ type = 'scaled', scale = 'two' }"), Error);
}

// A program of the two ops, run by the kernels that plans use.
TEST_F(CustomLayers, ComputeForwardAndBackwardInAPlan) {
  const auto layer = std::make_shared<Scaled>(2.0F);
  Program program;
  const Value x = program.add_value("x", DType::fp32, {2, 3}, Role::input);
  const Value w = program.add_value("w", DType::fp32, {3}, Role::param);
  const Value dy = program.add_value("dy", DType::fp32, {2, 3}, Role::input);
  const Value y = program.add_value("y", DType::fp32, {2, 3}, Role::output);
  const Value dx = program.add_value("dx", DType::fp32, {2, 3}, Role::output);
  const Value dw = program.add_value("dw", DType::fp32, {3}, Role::output);
  program.add(Custom{layer, "scaled", x, {w}, y});
  program.add(CustomGrad{layer, "scaled", x, y, dy, {w}, dx, {dw}});
  std::vector<float> vx{1, 2, 3, 4, 5, 6}, vw{1, 10, 100}, vdy{1, 1, 1, 2, 2, 2}, vy(6), vdx(6),
      vdw(3);
  Externals externals;
  const auto bind = [&](const Value& value, std::vector<float>& memory) {
    externals[value.id] = {memory.data(), value.dtype, value.shape, Device{}};
  };
  bind(x, vx), bind(w, vw), bind(dy, vdy), bind(y, vy), bind(dx, vdx), bind(dw, vdw);
  const auto runtime = make_runtime(Device{}, 2);
  PlanOptions options;
  options.tune = false;
  const KernelTable table = all_kernels();
  Plan plan(*runtime, program, plan_program(program, table, *runtime, options).choices, externals);
  plan.run(1);
  runtime->synchronize();
  EXPECT_EQ(vy, (std::vector<float>{2, 40, 600, 8, 100, 1200}));
  EXPECT_EQ(vdx, (std::vector<float>{2, 20, 200, 4, 40, 400}));
  EXPECT_EQ(vdw, (std::vector<float>{18, 24, 30}));
}

}  // namespace
}  // namespace ridgeline::nn
