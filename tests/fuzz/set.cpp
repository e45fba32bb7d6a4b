#include "ridgeline/engine/config.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

// One --set per line, over a small config.
FUZZ_TARGET(set) {
  constexpr const char* kConfig = R"(
data.name = "mnist"
[model]
layers = [
  { type = "conv2d", out = 4, kernel = 3 },
  { type = "relu" },
  { type = "linear", out = 10 },
]
[train]
batch = 16
optimizer = { type = "sgd", lr = 0.1 }
)";
  fuzz::refused_or_read([&] {
    engine::to_toml(
        engine::parse_config(kConfig, "config", fuzz::split(fuzz::as_text(input), '\n')));
  });
}
