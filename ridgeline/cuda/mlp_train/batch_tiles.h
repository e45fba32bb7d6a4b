#pragma once

#include <string>

#include "ridgeline/cuda/mlp_train/mlp_train.h"

// How the kernels of this folder divide a batch, and what shapes they all take.
namespace ridgeline::cuda::mlp {

// Common to all layouts: sizes in range. Returns why not, or an empty text.
std::string check_shape(const MlpTrainShape& shape);

constexpr int kLabelRing = 4;  // batches of labels in shared memory

inline int sample_tiles(int batch) { return batch <= 32 ? 2 : 4; }  // of 16
// Between rows of samples, in halves: 8 more than the samples spread 8 rows over all banks.
constexpr int sample_stride(int sample_tiles) { return 16 * sample_tiles + 8; }

}  // namespace ridgeline::cuda::mlp
