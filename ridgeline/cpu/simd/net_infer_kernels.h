#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu::simd {

// Whole nets for a few samples, with weights that are packed when the kernel is prepared.
KernelTable net_infer_kernels();
// Part of net_infer_kernels: perceptrons for a batch.
Kernel net_batch_kernel();
// LSTM and GRU layers for a batch.
Kernel rnn_infer_kernel();

}  // namespace ridgeline::cpu::simd
