#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/recurrent/cell.h"

// What the kernel of one_sample/net.cu is told: a chain of layers, split over the blocks of one
// cluster, and the memory of the host that it talks through.
//
// Mail. Inputs come in chunks of 16 bytes, three floats and the number of the request, so that a
// chunk tells by itself whether it has come: nobody waits for a flag first and for the data then,
// which would take two trips over the bus. Outputs go back in slots of 8 bytes, a float and the
// number.
namespace ridgeline::cuda::one_sample {

inline constexpr int kThreads = 512, kWarps = kThreads / 32;
inline constexpr int kMostLayers = 24;
inline constexpr int kMostBlocks = 16;  // of a cluster
inline constexpr int kFloatsPerChunk = 3;
// In the place of a request's number in the first chunk: the kernel ends. Other numbers are
// smaller, and so bits of finite floats, because the first layer multiplies them by zero.
inline constexpr uint32_t kStop = 0x7f000000;

enum class LayerKind : int { linear, rnn_relu, rnn_tanh, gru, lstm };

// A warp computes four rows at a time, a group: four outputs of a linear layer or of a cell of one
// gate, the gates of one unit of another (of gru three and a row of zeros).
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
  int in = 0;      // floats of its input as they lie in shared memory: a multiple of 4
  int out = 0;     // rows of a linear layer, units of a cell
  int groups = 0;  // that a block computes at most
  int x = 0;       // where its input lies, in floats from the begin of a parity's buffers
  int y = 0;       // where its output goes: the next layer's input, or the state of the last
  int state = 0;   // of a block's cells: sums [groups][4], then h and c of its units
  // Offsets in the weights of a block, in floats: its groups' rows, then their biases.
  int w = 0, b = 0, w_hh = 0, b_hh = 0;
  int w_hh_on_chip = 0;
};

struct NetArgs {
  int blocks = 1, layers = 0;
  LayerArgs layer[kMostLayers];
  int chunks = 0;              // of the input, at least one a block
  int slots = 0;               // of the output that a block writes
  int inputs = 0;              // floats of the buffers of one parity
  int state_floats = 0;        // of a block
  int on_chip = 0;             // floats of a block's weights that are copied to shared memory
  int64_t weights_stride = 0;  // floats from one block's weights to the next one's
  const float* weights = nullptr;
  float* state = nullptr;  // [blocks][state_floats], kept between launches

  int slots_up() const { return (slots + 3) / 4 * 4; }
  size_t shared_bytes() const {
    return sizeof(float) *
           (size_t(on_chip) + 2 * size_t(inputs) + size_t(state_floats) + size_t(slots_up()));
  }
};

enum class Mode : int {
  refresh,  // computes the sums with the state that was put in place
  once,     // answers the request that is there
  stay,     // answers requests until it is told to stop or nobody asks for a while
};

struct MailArgs {
  const uint4* inputs = nullptr;      // [chunks], the host's
  uint64_t* outputs = nullptr;        // [blocks * slots], the host's
  volatile uint32_t* left = nullptr;  // the host's: becomes `launch` when the kernel leaves
  uint32_t launch = 0;
  uint32_t first = 0;    // number of the first request
  uint64_t idle_ns = 0;  // 0: stays however long it takes
};

// The number that follows.
inline
#ifdef __CUDACC__
    __host__ __device__
#endif
        uint32_t
        next_number(uint32_t number) {
  return number + 1 == kStop ? 1 : number + 1;
}

// One cluster of args.blocks blocks.
cudaError_t launch_net(const NetArgs& args, const MailArgs& mail, Mode mode, cudaStream_t stream);
// Allows the kernel its shared memory; cudaErrorInvalidConfiguration where no such cluster fits.
cudaError_t allow_net(const NetArgs& args);

}  // namespace ridgeline::cuda::one_sample
