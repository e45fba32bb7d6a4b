#include <fmt/format.h>

#include "ridgeline/engine/ladder/ladder.h"

namespace ridgeline::engine {
namespace {

// Plain kernels compute everything but the products, so that rungs differ only in the products.
Rung level(const char* name, const char* what, const char* products) {
  return {.name = name,
          .what = what,
          .kernels = {products, "cuda.*.plain", "!cuda.linear*.plain"},
          .precision = Precision::fp16};
}

}  // namespace

Ladder mlp_levels(int64_t width) {
  Ladder ladder;
  ladder.name = fmt::format("mlp --width {}", width);
  const std::string hidden =
      fmt::format("  {{ type = \"linear\", out = {} }}, {{ type = \"relu\" }},\n", width);
  ladder.network = "[model]\nlayers = [\n" + hidden + hidden + hidden +
                   "  { type = \"linear\", out = 10 },\n]\n[train]\n"
                   "optimizer = { type = \"sgd\", lr = 0.01 }\n";
  ladder.sample = Shape{28, 28};
  ladder.classes = 10;
  ladder.batch = 32;
  ladder.cuda = {
      level("naive", "a thread for each result", "cuda.linear*.naive"),
      level("block tile", "tiles in shared memory", "cuda.linear*.block_tile"),
      level("warp tile", "tiles of warps and threads in registers", "cuda.linear*.warp_tile"),
      level("tensor cores", "tiles by mma.m16n8k8", "cuda.linear*.tensor_cores"),
      level("parallel-K", "warps divide the sums", "cuda.linear*.parallel_k"),
      level("software pipelining", "the next operands are fetched while these are multiplied",
            "cuda.linear*.mma_m16n8k8"),
      level("library", "a vendor's products", "cuda.linear*.cublaslt*"),
      {.name = "whole steps",
       .what = "every kernel, many steps in one launch",
       .kernels = {},
       .precision = Precision::fp16},
  };
  Rung sums = level("fp16 sums", "software pipelining, summed in fp16",
                    "cuda.linear*.mma_m16n8k8_fp16_sums");
  sums.accumulate = Precision::fp16;
  ladder.cuda.insert(ladder.cuda.begin() + 6, sums);
  return ladder;
}

}  // namespace ridgeline::engine
