#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/recurrent/cell.h"

// The arguments of the GPU function of one_sample/net.cu: a chain of layers that is split over the
// blocks of one cluster, and the host memory through which it communicates.
//
// Messages: inputs arrive in chunks of 16 bytes, three floats and the number of the request, so
// that each chunk shows whether it has arrived. Waiting first for a flag and then for the data
// would take two trips over the bus: on an H200, copying the chunks by TMA once the last one had
// come took 1 to 4 us longer, and so did looking at one chunk of each warp first. Outputs are
// returned in slots of 8 bytes, a float and the number.
namespace ridgeline::cuda::one_sample {

inline constexpr int kThreads = 512, kWarps = kThreads / 32;
inline constexpr int kMostLayers = 24;
inline constexpr int kMostBlocks = 16;  // per cluster
inline constexpr int kFloatsPerChunk = 3;
// In place of a request's number in the first chunk, this ends the function. All other numbers are
// smaller, and therefore the bits of finite floats, because the first layer multiplies them by
// zero.
inline constexpr uint32_t kStop = 0x7f000000;

enum class LayerKind : int { linear, rnn_relu, rnn_tanh, gru, lstm };

// A warp computes a group of four rows at a time: four outputs of a linear layer or of a cell with
// one gate, or the gates of one unit of other cells (three gates and a row of zeros for gru).
constexpr
#ifdef __CUDACC__
    __host__ __device__
#endif
    int
    outputs_per_group(LayerKind kind) {
  return kind == LayerKind::gru || kind == LayerKind::lstm ? 1 : 4;
}

struct LayerArgs {
  LayerKind kind = LayerKind::linear;
  ActivationFn activation = ActivationFn::none;
  int in = 0;      // floats of its input in shared memory: a multiple of 4
  int out = 0;     // rows of a linear layer, units of a cell
  int groups = 0;  // the most that a block computes
  int x = 0;       // offset of its input, in floats from the start of a parity's buffers
  int y = 0;       // offset of its output: the next layer's input, or the state of the last layer
  int state = 0;   // of a block's cells: sums [groups][4], then h and c of its units
  // Offsets in the weights of a block, in floats: its groups' rows, then their biases.
  int w = 0, b = 0, w_hh = 0, b_hh = 0;
  int w_hh_on_chip = 0;
};

struct NetArgs {
  int blocks = 1, layers = 0;
  LayerArgs layer[kMostLayers];
  int chunks = 0;              // of the input, at least one per block
  int slots = 0;               // of the output, per block
  int inputs = 0;              // floats of the buffers of one parity
  int state_floats = 0;        // per block
  int on_chip = 0;             // floats of a block's weights that are copied to shared memory
  int64_t weights_stride = 0;  // floats between the weights of consecutive blocks
  const float* weights = nullptr;
  float* state = nullptr;  // [blocks][state_floats], kept between launches

  int slots_up() const { return (slots + 3) / 4 * 4; }
  size_t shared_bytes() const {
    return sizeof(float) *
           (size_t(on_chip) + 2 * size_t(inputs) + size_t(state_floats) + size_t(slots_up()));
  }
};

enum class Mode : int {
  refresh,  // recomputes the sums for a state that was set from outside
  once,     // answers the current request
  stay,     // answers requests until it is told to stop, or no request comes for a while
};

struct MailArgs {
  const uint4* inputs = nullptr;      // [chunks], host memory
  uint64_t* outputs = nullptr;        // [blocks * slots], host memory
  volatile uint32_t* left = nullptr;  // host memory: set to `launch` when the function exits
  uint32_t launch = 0;
  uint32_t first = 0;    // the number of the first request
  uint64_t idle_ns = 0;  // 0: waits without a limit
};

// The number of the next request.
inline
#ifdef __CUDACC__
    __host__ __device__
#endif
        uint32_t
        next_number(uint32_t number) {
  return number + 1 == kStop ? 1 : number + 1;
}

// Launches one cluster of args.blocks blocks.
cudaError_t launch_net(const NetArgs& args, const MailArgs& mail, Mode mode, cudaStream_t stream);
// Grants the function its shared memory; cudaErrorInvalidConfiguration if no such cluster fits.
cudaError_t allow_net(const NetArgs& args);

}  // namespace ridgeline::cuda::one_sample
