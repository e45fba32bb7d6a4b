#include "ridgeline/engine/ladder/charcnn.h"

namespace ridgeline::engine {
namespace {

constexpr double kFoundingLoop = 1e6 / 2.12;  // us per input

// The history on a CPU: kernels are added one kind at a time, with one text per step and one
// thread; then come batches, threads and ranks.
std::vector<Rung> cpu_rungs() {
  std::vector<Rung> rungs{{.name = "loop",
                           .what = "plain loops, a text a step",
                           .kernels = {"*.reference"},
                           .batch = 1,
                           .threads = 1,
                           .founding_us = kFoundingLoop}};
  const auto add = [&](const char* name, const char* what, std::vector<const char*> more) {
    Rung rung = rungs.back();
    rung.name = name;
    rung.what = what;
    rung.founding_us = 0;
    rung.kernels.insert(rung.kernels.end(), more.begin(), more.end());
    rungs.push_back(std::move(rung));
  };
  add("linear", "vectors in the linear layers", {"cpu.linear.simd"});
  add("first layer", "the first convolution as sums of weight rows",
      {"cpu.one_hot_conv1d.simd", "!cpu.one_hot_conv1d.reference"});
  add("blocking", "convolutions in blocks of registers and caches",
      {"cpu.conv2d.direct", "!cpu.conv2d.reference"});
  add("layernorm", "vectors in norms, ReLUs and pools",
      {"cpu.layer_norm.onednn", "cpu.activation.simd", "cpu.max_pool.onednn",
       "!cpu.layer_norm.reference", "!cpu.activation.reference", "!cpu.max_pool.reference"});
  add("weak fusion", "convolutions and products with their ReLU",
      {"cpu.conv2d_activation.direct", "cpu.linear_activation.simd"});
  add("strong fusion", "norm, ReLU and pool in one kernel, also behind the first convolution",
      {"cpu.norm_relu_pool.simd", "cpu.one_hot_norm_relu_pool.simd", "!cpu.layer_norm",
       "!cpu.one_hot_conv1d"});
  add("batch", "the same over 32 texts", {});
  rungs.back().batch = 32;
  add("threads", "all threads", {});
  rungs.back().threads = 0;
  rungs.push_back({.name = "library",
                   .what = "a vendor's convolutions",
                   .kernels = {"cpu.*.onednn", "cpu.*.reference", "cpu.*.simd", "!cpu.conv2d.simd"},
                   .batch = 32});
  rungs.push_back({.name = "all kernels", .what = "every kernel", .kernels = {}, .batch = 32});
  rungs.push_back({.name = "ranks",
                   .what = "a process a core",
                   .kernels = {},
                   .batch = 32,
                   .threads = 1,
                   .ranks = true});
  return rungs;
}

}  // namespace

Ladder charcnn_ladder() {
  Ladder ladder;
  ladder.name = "charcnn";
  ladder.network = R"([model]
layers = [
  { type = "onehot_conv1d", symbols = 70, out = 256, kernel = 7 }, { type = "layernorm" },
  { type = "relu" }, { type = "maxpool1d", kernel = 3 },
  { type = "conv1d", out = 256, kernel = 7 }, { type = "relu" }, { type = "maxpool1d", kernel = 3 },
  { type = "conv1d", out = 256, kernel = 3 }, { type = "relu" },
  { type = "conv1d", out = 256, kernel = 3 }, { type = "relu" },
  { type = "conv1d", out = 256, kernel = 3 }, { type = "relu" },
  { type = "conv1d", out = 256, kernel = 3 }, { type = "layernorm" }, { type = "relu" },
  { type = "maxpool1d", kernel = 3 }, { type = "flatten" },
  { type = "linear", out = 1024 }, { type = "relu" },
  { type = "linear", out = 1024 }, { type = "relu" }, { type = "linear", out = 4 },
]
)";
  ladder.sample = Shape{1014};
  ladder.codes = 71;  // the last one stands for any unknown symbol
  ladder.classes = 4;
  ladder.forward = true;
  ladder.batch = 4752;  // 36 samples for each of 132 SMs
  ladder.cpu = cpu_rungs();
  // Plain loops over thousands of texts take seconds per call, so they have rungs of their own and
  // are no candidates for other rungs.
  const std::vector<const char*> faster{"!cuda.conv2d.plain", "!cuda.conv2d.unrolled",
                                        "!cuda.one_hot_conv1d.plain"};
  std::vector<const char*> unchained = faster;
  unchained.push_back("!cuda.conv1d_chain_norm_relu_pool");
  ladder.cuda = {
      {.name = "loop",
       .what = "plain kernels, a text a step, launched one by one",
       .kernels = {"cuda.*.plain", "!cuda.activation_pool"},
       .batch = 1,
       .launches_alone = true,
       .founding_us = kFoundingLoop},
      {.name = "batch",
       .what = "the same over 64 texts",
       .kernels = {"cuda.*.plain", "!cuda.activation_pool"},
       .batch = 64,
       .launches_alone = true},
      {.name = "relu+pool",
       .what = "ReLU and pool in one kernel",
       .kernels = {"cuda.*.plain"},
       .batch = 64,
       .launches_alone = true},
      {.name = "blocking",
       .what = "products in tiles of shared memory and registers",
       .kernels = {"cuda.*.plain", "cuda.conv2d.constant", "cuda.conv2d.implicit",
                   "cuda.linear.tile*", "!cuda.conv2d.plain", "!cuda.linear.plain"},
       .batch = 256},
      {.name = "weak fusion",
       .what = "convolutions and products with their ReLU",
       .kernels = {"cuda.*.plain", "cuda.conv1d.fp32", "cuda.linear*.tile*", "!cuda.conv2d.plain",
                   "!cuda.linear.plain"},
       .batch = 256},
      {.name = "strong fusion",
       .what = "norm, ReLU and pool in one kernel",
       .kernels = {"cuda.*.plain", "cuda.conv1d.fp32", "cuda.linear*.tile*", "cuda.norm_relu_pool*",
                   "cuda.one_hot_norm_relu_pool*", "cuda.relu_pool*", "!cuda.conv2d.plain",
                   "!cuda.linear.plain", "!cuda.one_hot_conv1d.plain"},
       .batch = 256},
      {.name = "library",
       .what = "a vendor's convolutions and products",
       .kernels = {"cuda.*.cudnn*", "cuda.*.cublaslt*", "cuda.*.plain", "!cuda.conv2d.plain",
                   "!cuda.linear.plain"},
       .batch = 256},
      {.name = "all kernels", .what = "every kernel, fp32", .kernels = faster, .batch = 2376},
      {.name = "tf32", .what = "tensor cores", .kernels = faster, .precision = Precision::tf32},
      {.name = "bf16",
       .what = "half the bytes, a convolution a kernel",
       .kernels = unchained,
       .precision = Precision::bf16},
      {.name = "chain",
       .what = "the last four convolutions, norm, ReLU and pool as one kernel",
       .kernels = faster,
       .precision = Precision::bf16},
      {.name = "host",
       .what = "texts from the host, answers back to it",
       .kernels = faster,
       .from_host = true,
       .precision = Precision::bf16},
      {.name = "ranks",
       .what = "a process a GPU; the record had sixteen",
       .kernels = faster,
       .ranks = true,
       .precision = Precision::bf16,
       .founding_us = 63.0},
  };
  return ladder;
}

}  // namespace ridgeline::engine
