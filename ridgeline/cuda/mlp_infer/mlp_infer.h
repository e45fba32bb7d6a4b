#pragma once

// A perceptron forward in one kernel: bytes of the set in, probabilities out. A cluster of blocks
// takes a few rows of the batch; each block computes its share of the units of every layer and
// stores them into the shared memory of all, so that activations never leave the chip. Weights come
// from the L2, once a cluster; those a layer begins with are under way while the blocks wait for
// one another.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ridgeline/cuda/plain/curve.h"

namespace ridgeline::cuda {

constexpr int kMlpInferLayers = 8;
constexpr int kMlpInferClasses = 32;  // a lane of a warp each

enum class MlpInferType { bf16, fp16, tf32 };

struct MlpInferLayer {
  const void* w = nullptr;  // [out, in]
  const void* b = nullptr;  // [out] or null
  int in = 0, out = 0;
  Curve curve = Curve::none;
  bool wide_bias = false;  // fp32, whatever w is in
};

struct MlpInferArgs {
  const uint8_t* set = nullptr;  // x = byte * scale + shift
  const int32_t* order = nullptr;
  const int64_t* first = nullptr;
  int32_t* tick = nullptr;   // one more at the end
  unsigned* done = nullptr;  // 0 between launches
  float scale = 1, shift = 0;
  int n = 0, layers = 0;
  MlpInferLayer layer[kMlpInferLayers];
  float* probabilities = nullptr;  // [n, classes]
  int32_t* predictions = nullptr;  // [n] or null
};

// How a batch is shared out.
struct MlpInferLayout {
  int rows = 0, cluster = 0;  // of the batch that a cluster takes; its blocks
  int blocks = 0, shared_bytes = 0;
  int second = 0, sums = 0;  // bytes at which the second activations and the sums begin
  std::string refusal;       // why not; empty: it can
};

// `widths`: inputs, then the outputs of each layer. `rows`: 16, 32 or 64.
MlpInferLayout mlp_infer_layout(MlpInferType type, const std::vector<int>& widths, int n, int rows,
                                int processors);

cudaError_t launch_mlp_infer(MlpInferType type, const MlpInferArgs& args,
                             const MlpInferLayout& layout, cudaStream_t stream);

}  // namespace ridgeline::cuda
