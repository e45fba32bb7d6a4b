#pragma once

#include <cstdint>

namespace ridgeline::cuda::recurrent {

#ifdef __CUDACC__
#define RIDGELINE_CELL_HD __host__ __device__
#else
#define RIDGELINE_CELL_HD
#endif

// ops/recurrent.h for GPU functions: the same cells, counts and positions, without host-only code.
enum class Cell : uint8_t { rnn_relu, rnn_tanh, gru, lstm };

RIDGELINE_CELL_HD constexpr int cell_gates(Cell cell) {
  return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1;
}
RIDGELINE_CELL_HD constexpr int cell_saved(Cell cell) {
  return cell == Cell::lstm ? 5 : cell == Cell::gru ? 4 : 0;
}
// The number of vectors of gate gradients, and of sums inside the gates: gru keeps w_hn h + b_hn
// separate.
RIDGELINE_CELL_HD constexpr int cell_vectors(Cell cell) {
  return cell == Cell::lstm || cell == Cell::gru ? 4 : 1;
}
// The vector of gate gradients that is multiplied by a gate's rows of w_hh.
RIDGELINE_CELL_HD constexpr int hidden_vector(Cell cell, int gate) {
  return cell == Cell::gru && gate == 2 ? 3 : gate;
}

// One direction of a layer: where the timesteps of its samples are.
struct Sequence {
  int batch, steps, hidden, directions, direction;
  bool reverse;
  const int32_t* lengths;  // may be null

  // The time index of a sample's timestep. Timesteps past the sample's end are those of its
  // padding.
#ifdef __CUDACC__
  __device__ int length(int b) const { return lengths != nullptr ? lengths[b] : steps; }
  __device__ int time(int step, int length) const {
    return reverse && step < length ? length - 1 - step : step;
  }
  // The row of x's products; times H, and times vectors: offsets in y, reserve and gate gradients.
  __device__ int64_t row(int b, int t) const { return int64_t(b) * steps + t; }
  __device__ int64_t place(int b, int t) const { return row(b, t) * directions + direction; }
#endif
  int64_t state_offset() const { return int64_t(direction) * batch * hidden; }
};

}  // namespace ridgeline::cuda::recurrent
