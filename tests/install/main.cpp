#include <ridgeline/ridgeline.h>

#include <cstdio>

int main() {
  const float x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  ridgeline::Config config;
  config.add("linear", {{"out", 1}}).set("train.loss", "mse").set("train.epochs", 2);
  config.set("train.batch", 4);
  auto result = ridgeline::train(config, {{x, {20, 1}}, {x, {20}}});
  const auto y = result.model.predict({x, {20, 1}});
  std::printf("ridgeline %s: %zu predictions\n", ridgeline::version().c_str(), y.size());
  return y.size() == 20 ? 0 : 1;
}
