#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

// Makes a call that must succeed; otherwise the benchmark ends and prints the call and its place.
#define CHECK_CUDA(call)                                                                \
  do {                                                                                  \
    const cudaError_t e_ = (call);                                                      \
    if (e_ != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)
