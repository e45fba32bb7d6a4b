#pragma once

// Whole training steps of a small multilayer perceptron in one launch: gather, forward, softmax
// cross-entropy, backward and SGD update, for many steps before control returns to the host.
//
//   cluster_replicated  one thread-block cluster: its blocks divide the first layer, and each holds
//                       a replica of all the others
//   grid_sharded        the whole GPU without barriers: weights in shared memory; readers poll the
//                       activations until they have arrived
//   weight_streaming    the whole GPU and grid barriers; weights are read and updated in L2 or HBM

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "ridgeline/core/dtype_enum.h"
#include "ridgeline/cuda/activation.h"

namespace ridgeline::cuda {

constexpr int kMlpMaxLayers = 8;
constexpr int kMlpMaxBatch = 64;
constexpr int kMlpMaxClasses = 64;

// y_l = f(y_{l-1} . w_l^T + b_l), where f is the activation except after the last layer. `layers`
// counts the linear layers (2 to kMlpMaxLayers); sizes[0] is the number of features, sizes[layers]
// the number of classes.
struct MlpTrainShape {
  int layers = 0;
  int sizes[kMlpMaxLayers + 1] = {};
  int batch = 0;
  ActivationFn activation = ActivationFn::relu;  // or tanh, or sigmoid
  DType half = DType::fp16;  // fp16 or bf16: the operands of every product; sums are fp32
  bool masters = false;      // weights are kept and updated in fp32, and rounded for each product
};

// Device pointers. Sample i of the batch at step t is sample order[*first + t * batch + i]; its
// input is byte * scale + shift. w[l] is [out, in] and bias[l] is [out], in `half`; they are read
// when the launch begins and written when it ends, as are the master weights, if there are any (the
// half weights are then only written). dw is the gradient of the mean loss over the batch:
//   w = w - lr[t] * (dw + weight_decay * w), for biases without the decay.
struct MlpTrainArgs {
  MlpTrainShape shape;
  void* w[kMlpMaxLayers] = {};
  void* bias[kMlpMaxLayers] = {};
  float* master_w[kMlpMaxLayers] = {};
  float* master_bias[kMlpMaxLayers] = {};
  const uint8_t* images = nullptr;
  const int32_t* labels = nullptr;
  const int32_t* order = nullptr;
  const int64_t* first = nullptr;
  const double* lr = nullptr;  // [steps]
  float scale = 1.0f, shift = 0.0f;
  double weight_decay = 0.0;
  int steps = 0;
  float* loss = nullptr;       // [steps], mean over the batch
  int32_t* correct = nullptr;  // [steps]
};

enum class MlpTrainHow { cluster_replicated, grid_sharded, weight_streaming };

// The layout of a launch. `refusal` is empty if the function takes the shape, and otherwise says
// why not.
struct MlpTrainLayout {
  MlpTrainHow how = MlpTrainHow::weight_streaming;
  int blocks = 0;
  size_t shared_bytes = 0;
  size_t workspace_bytes = 0;
  std::string refusal;
};

// `blocks`: at most this many; 0 for the function's own choice.
MlpTrainLayout mlp_train_cluster_replicated_layout(const MlpTrainShape& shape, int blocks = 0);
MlpTrainLayout mlp_train_grid_sharded_layout(const MlpTrainShape& shape, int blocks = 0);
MlpTrainLayout mlp_train_weight_streaming_layout(const MlpTrainShape& shape, int blocks = 0);

// Enqueues args.steps steps. `workspace`: layout.workspace_bytes of device memory, 256-byte
// aligned; its content need not be kept between launches.
cudaError_t mlp_train_launch(const MlpTrainArgs& args, const MlpTrainLayout& layout,
                             void* workspace, cudaStream_t stream);

}  // namespace ridgeline::cuda
