#pragma once

// What a stage of the resident trainer works on, and what it updates: made by each block at the
// start of a launch, for steps t mod kTables, and kept in its shared memory.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ridgeline::cuda::mlp {

constexpr int kTables = 4;  // buffers alternate with a period of 4 steps at most

enum class StageKind : int { forward, top, backward };
enum class Exchanged { x, y, dy };

struct alignas(16) Stage {
  const void* weights;  // slots [n tile][k tile][lane]
  const uint4* v;       // activations to multiply by
  int n_tiles, k_tiles;
  StageKind kind;
  int bias, own_y, own_dy;            // shared memory, of the units that come out
  int left;                           // how many of them are real
  uint32_t wait_barrier, wait_bytes;  // 0: nothing to wait for
  int wait_shift;                     // log2 of the steps between uses of the buffer
  uint32_t send_barrier;
  uint4* send_to;         // null: nothing is sent
  int first_quad, quads;  // of units, in the buffer; of the block's own
};

struct alignas(16) Job {
  void* weights;
  const uint4* v;
  const void* own;  // halves [n][sample stride]
  float* bias;      // null: none
  int n_tiles, k_tiles;
  int ready;  // events of the step to wait for, see run_updates
};

}  // namespace ridgeline::cuda::mlp
