#include <cstdio>

#include "ridgeline/engine/config.h"

int main() {
  const auto config = ridgeline::engine::parse_config(
      "data.name = 'mnist'\nmodel.layers = [{ type = 'linear', out = 10 }]", "consumer");
  const auto model = config.build_model({28, 28});
  std::printf("%lld weights\n", static_cast<long long>(model.parameter_count()));
  return model.parameter_count() == 7850 ? 0 : 1;
}
