#pragma once

#include <cstdint>

#include "ridgeline/cpu/simd/gemm.h"
#include "ridgeline/ops/recurrent.h"

// Layers for a few samples (GEMV), fp32, with weights that are packed once and then streamed: every
// weight is loaded once for one or two samples, in memory order. Vectors run along the outputs.
// Everything runs on the calling thread; samples are rows, `stride` floats apart.
//
// Packed weights are panels of a few vectors of outputs: the bias, then for each input its weights
// to these outputs. Outputs past the last are zeros.
namespace ridgeline::cpu::simd {

struct GemvArgs {
  const float* packed;
  int64_t in, more_in, out;
  const float* x;  // [samples][in]
  int64_t x_stride;
  const float* more;  // [samples][more_in]: a second input, such as the state; null: zeros
  int64_t more_stride;
  float* y;  // [samples][out]
  int64_t y_stride;
  int64_t samples;
  bool relu = false;
  // Streams the panels from the last to the first. Weights that are a little larger than a cache
  // are partly found there if they are streamed alternately from either end; never if always from
  // the same end.
  bool backward = false;
  static constexpr int64_t kAllPanels = INT64_MAX;
  Range panels{0, kAllPanels};  // only multiply takes a part of them
};

// One timestep of an LSTM or GRU layer.
struct CellArgs {
  CellKind cell;
  const float* packed;
  int64_t in, hidden;
  const float* x;  // [samples][in]
  int64_t x_stride;
  const float* h;  // [samples][hidden] before the timestep; null: zeros
  int64_t h_stride;
  const float* c;  // lstm: [samples][hidden], dense; null: zeros
  float* c_next;   // lstm: [samples][hidden], dense; may be c
  float* y;        // [samples][hidden]: h after the timestep
  int64_t y_stride;
  int64_t samples;
  bool backward = false;  // as above
  // The inputs' contributions to the sums, from look_ahead: [samples][packed_ahead] of this
  // timestep, `ahead_stride` floats apart. x is then not read. Null: the step multiplies x itself.
  const float* ahead = nullptr;
  int64_t ahead_stride = 0;
  Range panels{0, GemvArgs::kAllPanels};  // only step and look_ahead take a part of them
};

inline constexpr int64_t kLeastCellSamples = 8;

struct GemvFunctions {
  int64_t (*packed)(int64_t depth, int64_t out);  // floats
  // w[out][in] and more_w[out][more_in] (null: none); biases are added up, null for zeros.
  void (*pack)(const float* w, int64_t in, const float* more_w, int64_t more_in, int64_t out,
               const float* bias, const float* more_bias, float* packed);
  int64_t (*panels)(int64_t out);
  Range (*multiply)(const GemvArgs&);  // returns the range of outputs of the panels
  // Computes this product for many samples, which stay in registers by sixes while the weights of
  // a panel pass. Each sum has one order, wherever its sample lies. Takes no second input.
  void (*multiply_many)(const GemvArgs&);

  int64_t (*packed_cell)(CellKind cell, int64_t in, int64_t hidden);  // floats
  // Like RnnWeights: w_ih[gates * hidden][in], w_hh[gates * hidden][hidden], biases null or
  // present.
  void (*pack_cell)(CellKind cell, int64_t in, int64_t hidden, const float* w_ih, const float* w_hh,
                    const float* b_ih, const float* b_hh, float* packed);
  int64_t (*cell_panels)(int64_t hidden);
  void (*step)(const CellArgs&);
  // Computes a timestep of kLeastCellSamples or more, which stay in registers by sixes. y must not
  // overlap h, nor c_next c.
  void (*step_many)(const CellArgs&);
  // Multiplies several timesteps' inputs, x[samples][steps][in], by their weights, which are then
  // read once for all of them: ahead[samples][ahead_stride], whose rows hold `steps` times
  // packed_ahead floats. A sum equals that of the step bit for bit.
  int64_t (*packed_ahead)(CellKind cell, int64_t hidden);
  void (*look_ahead)(const CellArgs&, int64_t steps, float* ahead);

  void (*activate)(SimdActivation act, const float* x, float* y, int64_t count);  // y may be x
  void (*softmax)(const float* x, float* y, int64_t samples, int64_t classes);    // y may be x
  void (*scale)(const uint8_t* x, float* y, int64_t count, float scale, float shift);
};

const GemvFunctions& gemv_functions();

}  // namespace ridgeline::cpu::simd
