// Trains a classifier on arrays in memory, prints how good it is, and saves it to a file.
#include <ridgeline/ridgeline.h>

#include <cstdio>
#include <random>
#include <vector>

int main() {
  // Two interleaved spirals of points in the plane.
  constexpr int64_t kSamples = 2000;
  std::mt19937 random(1);
  std::normal_distribution<float> noise(0.0F, 0.02F);
  std::vector<float> points;
  std::vector<int32_t> arms;
  for (int64_t i = 0; i < kSamples; ++i) {
    const float t = float(i) / kSamples, angle = 9 * t + (i % 2 == 0 ? 0.0F : 3.14159F);
    points.push_back(t * std::cos(angle) + noise(random));
    points.push_back(t * std::sin(angle) + noise(random));
    arms.push_back(int32_t(i % 2));
  }

  ridgeline::Config config;
  config.add("linear", {{"out", 64}}).add("tanh").add("linear", {{"out", 64}}).add("tanh");
  config.add("linear", {{"out", 2}});
  config.set("train.epochs", 60).set("train.batch", 64).set("train.optimizer.type", "adam");
  config.set("train.optimizer.lr", 0.01);

  ridgeline::TrainOptions options;
  options.progress = [](const ridgeline::Progress& at) {
    std::printf("epoch %4.1f  loss %.4f\n", at.epoch, at.loss);
    return true;
  };
  const ridgeline::Samples samples{{points, {kSamples, 2}}, {arms, {kSamples}}};
  auto result = ridgeline::train(config, samples, options);
  std::printf("accuracy %.3f after %.2f s\n", result.train_accuracy.value_or(0), result.seconds);
  result.model.save("spirals.safetensors");
  return result.train_accuracy > 0.98 ? 0 : 1;
}
