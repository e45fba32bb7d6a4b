#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ridgeline/cuda/plain/gemm.h"
#include "ridgeline/cuda/tile/head.h"

// The three products of a linear layer in tiles that an asynchronous pipeline keeps fed (cp.async,
// sm_80 and newer), for types that wgmma does not support in these layouts. Any shape: elements
// outside the operands are filled with zeros. Deterministic: blocks that share a tile synchronise,
// and each adds its share of the tile in the order of k.
namespace ridgeline::cuda {

// How a product is computed.
enum class TileMath {
  fp32,          // fp32 multiply-adds on CUDA cores
  fp32_in_fp64,  // factors in fp32, products and sums in fp64 on the tensor cores
  fp64,          // fp64 on the tensor cores
  tf32,          // factors rounded to tf32, to nearest
  fp32x3,        // each factor as the sum of two tf32 values, three products of the four
};

enum class TileProduct { linear, grad_x, grad_w };

// A tile shape and how many blocks share the work, for one product.
struct TileChoice {
  TileMath math = TileMath::fp32;
  int variant = 0;
  int64_t blocks = 0;
  size_t workspace = 0;  // bytes for partial sums
  // Counters for the blocks that share a tile; zero before the first launch and after each.
  int counters = 0;
  double estimate_us = 0;
  std::string name;
};

// What a product whose blocks share tiles needs beside its operands.
struct TileMemory {
  void* partial = nullptr;       // workspace bytes, aligned to 16
  unsigned* counters = nullptr;  // zeroed once
};

// The ways to compute D[m, n] over k on the current device, the best by estimate first. Never empty
// on sm_80 and newer. fp32 also lists fp32_in_fp64 if the tensor cores are as fast in fp64.
std::vector<TileChoice> tile_choices(TileMath math, TileProduct product, int m, int n, int k);

// dx[n, in] = (dy[n, out] . w[out, in]) * f'(saved), or without f' if saved is null
template <typename T>
struct TileGradXArgs {
  const T *dy, *w;
  T* dx;
  int n, in, out;
  const T* saved;
  ActivationFn activation;
};

// The gradient of a layer's weights, stored or applied (as in plain/gemm.h), and work of the
// training step that runs while blocks wait for each other.
template <typename T>
struct TileGradWArgs {
  LinearGradWArgs<T> product;
  HeadSums<T> head;          // added and applied here if head.parts > 0
  int32_t* tick = nullptr;   // incremented when every block has read it
  unsigned* done = nullptr;  // with tick: a counter, zero before and after
};

// The launchers of one math; they return cudaGetLastError().
template <typename T>
struct TileKernels {
  std::vector<TileChoice> (*choices)(TileProduct product, int m, int n, int k);
  cudaError_t (*linear)(const TileChoice&, const LinearArgs<T>&, const TileMemory&, cudaStream_t);
  cudaError_t (*grad_x)(const TileChoice&, const TileGradXArgs<T>&, const TileMemory&,
                        cudaStream_t);
  cudaError_t (*grad_w)(const TileChoice&, const TileGradWArgs<T>&, const TileMemory&,
                        cudaStream_t);
};

const TileKernels<float>& tile_fp32_kernels();
const TileKernels<float>& tile_fp32_in_fp64_kernels();
const TileKernels<double>& tile_fp64_kernels();
const TileKernels<float>& tile_tf32_kernels();
const TileKernels<float>& tile_fp32x3_kernels();

// The functions of a math in T; only fp64 uses double.
template <typename T>
const TileKernels<T>& tile_kernels(TileMath math);

}  // namespace ridgeline::cuda
