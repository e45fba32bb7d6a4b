#pragma once

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// Floating-point operations a second that all threads of the pool reach together in fused
// multiply-adds on registers, with the widest vectors of this machine: the most any product can do.
// The best of a few runs of about two milliseconds.
template <typename T>
double fma_ceiling(ThreadPool& pool);

}  // namespace ridgeline::cpu::simd
