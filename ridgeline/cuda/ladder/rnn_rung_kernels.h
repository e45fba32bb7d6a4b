#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.rnn.<how>" and "cuda.rnn_grad.gate_products": loops over the timesteps that lack some
// techniques of the kernels in use, for demonstrations.
KernelTable rnn_rung_kernels();

}  // namespace ridgeline::cuda
