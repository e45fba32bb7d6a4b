#include <fmt/ranges.h>

#include "ridgeline/core/error.h"
#include "ridgeline/engine/ladder/charcnn.h"
#include "ridgeline/engine/ladder/ladder.h"

// The optimisation histories. A rung lists what it may use; the planner does the rest.
namespace ridgeline::engine {
namespace {

// The batch for training over ranks: a share of it should take longer than summing the gradients.
constexpr int64_t kLarge = 1024;

// 784-512-10 on bytes, cross-entropy, SGD.
Ladder mlp() {
  Ladder ladder;
  ladder.name = "mlp";
  ladder.network = R"([model]
layers = [{ type = "linear", out = 512 }, { type = "relu" }, { type = "linear", out = 10 }]
[train]
optimizer = { type = "sgd", lr = 0.01 }
)";
  ladder.sample = Shape{28, 28};
  ladder.classes = 10;
  ladder.batch = 128;
  const std::vector<const char*> plain{"*.reference"};
  // The kernels that take a single op.
  const std::vector<const char*> unfused{"cpu.*.simd", "*.reference", "!cpu.linear_activation",
                                         "!cpu.linear_backward", "!cpu.mlp_train"};
  const std::vector<const char*> fused{"cpu.*.simd", "*.reference", "!cpu.mlp_train"};
  ladder.cpu = {
      {.name = "loop",
       .what = "plain loops, an input a step",
       .kernels = plain,
       .batch = 1,
       .threads = 1},
      {.name = "batch", .what = "the same over a batch", .kernels = plain, .threads = 1},
      {.name = "simd",
       .what = "vectors and blocking, an op a kernel",
       .kernels = unfused,
       .threads = 1},
      {.name = "fusion",
       .what = "activations and updates inside the products",
       .kernels = fused,
       .threads = 1},
      {.name = "step", .what = "a whole step as one kernel", .kernels = {}, .threads = 1},
      {.name = "threads", .what = "all threads", .kernels = {}},
      {.name = "large batch",
       .what = "all threads, more samples a step",
       .kernels = {},
       .batch = kLarge},
      {.name = "ranks",
       .what = "a process a core, gradients added up one after the other",
       .kernels = {"!cpu.all_reduce_start.queued", "!cpu.all_reduce_start.scatter",
                   "!cpu.linear_grad_w_all_reduce", "!cpu.mlp_gradients_all_reduce",
                   "!cpu.mlp_train_all_reduce"},
       .batch = kLarge,
       .threads = 1,
       .ranks = true},
      {.name = "overlap",
       .what = "gradients travel while others are computed",
       .kernels = {"!cpu.mlp_train_all_reduce"},
       .batch = kLarge,
       .threads = 1,
       .ranks = true},
      {.name = "shared",
       .what = "ranks help one another, in memory that they share",
       .kernels = {},
       .batch = kLarge,
       .threads = 1,
       .ranks = true},
  };
  const std::vector<const char*> plain_gpu{"cuda.*.plain"};
  const std::vector<const char*> tiles{"cuda.*.plain", "cuda.*.cublaslt*"};
  ladder.cuda = {
      {.name = "loop",
       .what = "plain kernels, an input a step, launched one by one",
       .kernels = plain_gpu,
       .batch = 1,
       .launches_alone = true},
      {.name = "batch",
       .what = "the same over a batch",
       .kernels = plain_gpu,
       .launches_alone = true},
      {.name = "products",
       .what = "a vendor's products and fused epilogues",
       .kernels = tiles,
       .launches_alone = true},
      {.name = "graph", .what = "32 steps in one graph launch", .kernels = tiles},
      {.name = "all kernels", .what = "every kernel of this precision", .kernels = {}},
      {.name = "tensor cores",
       .what = "every kernel, tf32",
       .kernels = {},
       .precision = Precision::tf32},
      {.name = "large batch",
       .what = "more samples a step",
       .kernels = {},
       .batch = kLarge,
       .precision = Precision::tf32},
      {.name = "staged",
       .what = "a process a GPU, gradients by way of the host",
       .kernels = {"!cuda.all_reduce_start.nccl", "!cuda.all_reduce_start.mpi"},
       .batch = kLarge,
       .ranks = true,
       .precision = Precision::tf32},
      {.name = "ranks",
       .what = "gradients from GPU to GPU inside the graph",
       .kernels = {},
       .batch = kLarge,
       .ranks = true,
       .precision = Precision::tf32,
       .without = "cuda.all_reduce_start.staged",
       .otherwise = "gradients by way of the host: no way from GPU to GPU here"},
  };
  return ladder;
}

// Two 7x7 convolutions with tanh and pools, then two linear layers, over 10,000 images of 72x72.
// The founding record has the two convolutions on a V100: 43.4 + 152.5 ms plain, 30.7 + 98.0 ms at
// best.
Ladder lenet72() {
  Ladder ladder;
  ladder.name = "lenet72";
  ladder.network = R"([model]
layers = [
  { type = "conv2d", out = 12, kernel = 7 }, { type = "tanh" }, { type = "maxpool2d", kernel = 2 },
  { type = "conv2d", out = 24, kernel = 7 }, { type = "tanh" }, { type = "maxpool2d", kernel = 2 },
  { type = "linear", out = 120 }, { type = "tanh" }, { type = "linear", out = 10 },
]
)";
  ladder.sample = Shape{1, 72, 72};
  ladder.classes = 10;
  ladder.forward = true;
  ladder.batch = 10000;
  const std::vector<const char*> plain{"*.reference"};
  const std::vector<const char*> library{"cpu.*.onednn", "cpu.*.simd", "*.reference",
                                         "!cpu.conv2d.simd", "!cpu.conv2d_pool"};
  ladder.cpu = {
      {.name = "loop",
       .what = "plain loops, an image a step",
       .kernels = plain,
       .batch = 1,
       .threads = 1},
      {.name = "threads",
       .what = "the same over a batch, all threads",
       .kernels = plain,
       .batch = 8},
      {.name = "library", .what = "a vendor's convolutions", .kernels = library, .batch = 128},
      {.name = "all kernels", .what = "every kernel", .kernels = {}, .batch = 128},
      {.name = "ranks",
       .what = "a process a core",
       .kernels = {},
       .batch = 128,
       .threads = 1,
       .ranks = true},
  };
  const std::vector<const char*> rest{"cuda.*.plain", "!cuda.conv2d.plain"};
  // Over all images these take up to a second per call, so they have rungs of their own and are no
  // candidates for other rungs.
  const std::vector<const char*> faster{"!cuda.conv2d.plain", "!cuda.conv2d.unrolled"};
  const auto with = [&](std::vector<const char*> more) {
    more.insert(more.end(), rest.begin(), rest.end());
    return more;
  };
  ladder.cuda = {
      {.name = "loop",
       .what = "plain kernels, an image a step, launched one by one",
       .kernels = {"cuda.*.plain"},
       .batch = 1,
       .launches_alone = true},
      {.name = "batch",
       .what = "the same over all images",
       .kernels = {"cuda.*.plain"},
       .launches_alone = true},
      {.name = "unrolled",
       .what = "unrolled input, one product",
       .kernels = with({"cuda.conv2d.unrolled"})},
      {.name = "constant mask",
       .what = "filters in constant memory",
       .kernels = with({"cuda.conv2d.constant_mask"}),
       .founding_us = 19.59},
      {.name = "register sums",
       .what = "sums in registers",
       .kernels = with({"cuda.conv2d.register_sums"}),
       .founding_us = 17.35},
      {.name = "unrolled loops",
       .what = "loops over the filter unrolled",
       .kernels = with({"cuda.conv2d.unrolled_7x7"}),
       .founding_us = 12.87},
      {.name = "constant",
       .what = "tiles of inputs in shared memory, filters in constant memory",
       .kernels = with({"cuda.conv2d.constant", "cuda.*.tile*"})},
      {.name = "library",
       .what = "a vendor's convolutions",
       .kernels = with({"cuda.conv2d.cudnn*", "cuda.*.cublaslt*"})},
      {.name = "all kernels", .what = "every kernel, fused; fp32", .kernels = faster},
      {.name = "tf32", .what = "tensor cores", .kernels = faster, .precision = Precision::tf32},
      {.name = "bf16", .what = "half the bytes", .kernels = faster, .precision = Precision::bf16},
      {.name = "host",
       .what = "images from the host, answers back to it",
       .kernels = faster,
       .from_host = true,
       .precision = Precision::bf16},
      {.name = "ranks",
       .what = "a process a GPU",
       .kernels = faster,
       .ranks = true,
       .precision = Precision::bf16},
  };
  return ladder;
}

// A row of an image per timestep through a layer of 512 LSTM cells: the rungs of the founding
// notes, each a kernel of its own.
Ladder rnn() {
  Ladder ladder;
  ladder.name = "rnn";
  ladder.network = R"([model]
layers = [{ type = "lstm", hidden = 512 }, { type = "select" }, { type = "linear", out = 10 }]
)";
  ladder.sample = Shape{64, 64};
  ladder.classes = 10;
  ladder.forward = true;
  ladder.batch = 64;
  const std::vector<const char*> plain{"*.reference"};
  ladder.cpu = {
      {.name = "loop",
       .what = "plain loops, a sequence a step",
       .kernels = plain,
       .batch = 1,
       .threads = 1},
      {.name = "batch", .what = "the same over a batch, all threads", .kernels = plain, .batch = 4},
      {.name = "library",
       .what = "a vendor's recurrent layer",
       .kernels = {"cpu.*.onednn", "cpu.*.simd", "*.reference", "!cpu.rnn.simd"}},
      {.name = "cell",
       .what = "a fused cell with packed weights",
       .kernels = {"cpu.*.simd", "*.reference"}},
      {.name = "all kernels", .what = "every kernel", .kernels = {}},
      {.name = "ranks", .what = "a process a core", .kernels = {}, .threads = 1, .ranks = true},
  };
  const auto rung = [](const char* name, const char* what, const char* kernel) {
    return Rung{.name = name,
                .what = what,
                .kernels = {kernel, "cuda.gather", "cuda.select_timestep", "cuda.linear",
                            "cuda.softmax", "cuda.tick"}};
  };
  ladder.cuda = {
      rung("gates", "a product a gate, pointwise apart", "cuda.rnn.gate_products"),
      rung("one product", "the gates in one product", "cuda.rnn.one_product"),
      rung("streams", "products of x and h side by side", "cuda.rnn.streams"),
      rung("fused", "the pointwise part in one launch", "cuda.rnn.fused"),
      rung("transposed", "weights kept transposed", "cuda.rnn.transposed"),
      rung("combined", "products of x over all time steps", "cuda.rnn.combined_transposed"),
      {.name = "all kernels", .what = "every kernel, fp32", .kernels = {}},
      {.name = "bf16",
       .what = "every kernel, weights held on chip",
       .kernels = {},
       .precision = Precision::bf16},
      {.name = "host",
       .what = "sequences from the host, answers back to it",
       .kernels = {},
       .from_host = true,
       .precision = Precision::bf16},
      {.name = "ranks",
       .what = "a process a GPU",
       .kernels = {},
       .ranks = true,
       .precision = Precision::bf16},
  };
  return ladder;
}

}  // namespace

const std::vector<Ladder>& ladders() {
  static const std::vector<Ladder> all{mlp(), lenet72(), charcnn_ladder(), rnn()};
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
