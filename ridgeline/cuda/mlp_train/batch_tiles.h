#pragma once

#include <string>

#include "ridgeline/cuda/mlp_train/mlp_train.h"

// How the GPU functions of this folder divide a batch, and which shapes all of them take.
namespace ridgeline::cuda::mlp {

// Checks that sizes are in range, for all layouts. Returns why not, or an empty string.
std::string check_shape(const MlpTrainShape& shape);

constexpr int kLabelRing = 4;  // batches of labels in shared memory

inline int sample_tiles(int batch) { return batch <= 32 ? 2 : 4; }  // tiles of 16
// The stride between rows of samples, in halves: 8 more than the samples, which spreads 8 rows over
// all banks.
constexpr int sample_stride(int sample_tiles) { return 16 * sample_tiles + 8; }

}  // namespace ridgeline::cuda::mlp
