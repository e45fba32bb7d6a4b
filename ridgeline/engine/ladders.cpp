#include <fmt/ranges.h>

#include "ridgeline/core/error.h"
#include "ridgeline/engine/ladder.h"

// The optimisation histories. A rung names what it may use; the planner does the rest.
namespace ridgeline::engine {
namespace {

// 784-512-10 on bytes, cross-entropy, SGD.
Ladder mlp() {
  Ladder ladder;
  ladder.name = "mlp";
  ladder.network = R"([model]
layers = [{ type = "linear", out = 512 }, { type = "relu" }, { type = "linear", out = 10 }]
[train]
optimizer = { type = "sgd", lr = 0.01 }
)";
  ladder.item = Shape{28, 28};
  ladder.classes = 10;
  ladder.batch = 128;
  const std::vector<const char*> plain{"*.reference"};
  // What is left once every row that takes more than one op is out.
  const std::vector<const char*> unfused{"cpu.*.simd", "*.reference", "!cpu.linear_activation",
                                         "!cpu.linear_backward", "!cpu.mlp_train"};
  const std::vector<const char*> fused{"cpu.*.simd", "*.reference", "!cpu.mlp_train"};
  ladder.cpu = {
      {.name = "loop",
       .what = "plain loops, an input a step",
       .rows = plain,
       .batch = 1,
       .threads = 1},
      {.name = "batch", .what = "the same over a batch", .rows = plain, .threads = 1},
      {.name = "simd", .what = "vectors and blocking, an op a row", .rows = unfused, .threads = 1},
      {.name = "fusion",
       .what = "activations and updates inside the products",
       .rows = fused,
       .threads = 1},
      {.name = "step", .what = "a whole step as one row", .rows = {}, .threads = 1},
      {.name = "threads", .what = "all threads", .rows = {}},
  };
  const std::vector<const char*> plain_gpu{"cuda.*.plain"};
  const std::vector<const char*> tiles{"cuda.*.plain", "cuda.*.cublaslt*"};
  ladder.cuda = {
      {.name = "loop",
       .what = "plain kernels, an input a step, launched one by one",
       .rows = plain_gpu,
       .batch = 1,
       .launches_alone = true},
      {.name = "batch", .what = "the same over a batch", .rows = plain_gpu, .launches_alone = true},
      {.name = "products",
       .what = "a vendor's products and fused epilogues",
       .rows = tiles,
       .launches_alone = true},
      {.name = "graph", .what = "32 steps in one graph launch", .rows = tiles},
      {.name = "all rows", .what = "every row of this precision", .rows = {}},
      {.name = "tensor cores", .what = "every row, tf32", .rows = {}, .precision = Precision::tf32},
  };
  return ladder;
}

}  // namespace

const std::vector<Ladder>& ladders() {
  static const std::vector<Ladder> all{mlp()};
  return all;
}

const Ladder& find_ladder(const std::string& name) {
  std::vector<std::string> names;
  for (const Ladder& ladder : ladders()) {
    if (name == ladder.name) return ladder;
    names.emplace_back(ladder.name);
  }
  throw_error(ErrorKind::usage, "'{}' is no ladder; there is {}", name, fmt::join(names, ", "));
}

}  // namespace ridgeline::engine
