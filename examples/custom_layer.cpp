// A layer that the library does not have, y = a * x + b * x^2 with learnt a and b for each feature,
// trained as part of a network.
#include <ridgeline/ridgeline.h>

#include <cstdio>
#include <vector>

struct Quadratic final : ridgeline::CustomLayer {
  std::vector<int64_t> output_shape(const std::vector<int64_t>& input) const override {
    return input;
  }
  std::vector<Weight> weights(const std::vector<int64_t>& input) const override {
    return {{"a", input, 0.0, 1.0}, {"b", input, 0.1, 0.0}};
  }
  void forward(const ridgeline::LayerBatch& batch) const override {
    const auto a = batch.weights[0], b = batch.weights[1];
    for (size_t i = 0; i < batch.x.size(); ++i) {
      const size_t f = i % a.size();
      batch.y[i] = batch.x[i] * (a[f] + b[f] * batch.x[i]);
    }
  }
  void backward(const ridgeline::LayerBatch& batch) const override {
    const auto a = batch.weights[0], b = batch.weights[1];
    for (const auto& grad : batch.weight_grads) std::fill(grad.begin(), grad.end(), 0.0F);
    for (size_t i = 0; i < batch.x.size(); ++i) {
      const size_t f = i % a.size();
      const float x = batch.x[i], dy = batch.dy[i];
      if (!batch.dx.empty()) batch.dx[i] = dy * (a[f] + 2 * b[f] * x);
      batch.weight_grads[0][f] += dy * x;
      batch.weight_grads[1][f] += dy * x * x;
    }
  }
};

int main() {
  ridgeline::register_layer("quadratic", [](const auto&) { return std::make_shared<Quadratic>(); });
  std::vector<float> x, y;
  for (int i = 0; i < 400; ++i) {
    x.push_back(float(i) / 200 - 1);
    y.push_back(3 * x.back() * x.back() - x.back() + 0.5F);
  }
  ridgeline::Config config;
  config.add("quadratic").add("linear", {{"out", 1}});
  config.set("train.loss", "mse").set("train.epochs", 200).set("train.batch", 50);
  config.set("train.optimizer.type", "adam").set("train.optimizer.lr", 0.02);
  auto result = ridgeline::train(config, {{x, {400, 1}}, {y, {400, 1}}});
  const std::vector<float> at_half = result.model.predict({std::vector<float>{0.5F}, {1, 1}});
  std::printf("loss %.2e, f(0.5) = %.3f, should be 0.750\n", result.train_loss, at_half[0]);
  return result.train_loss < 1e-3 ? 0 : 1;
}
