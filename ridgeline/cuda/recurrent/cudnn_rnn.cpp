#ifdef RIDGELINE_HAVE_CUDNN

#include "ridgeline/cuda/recurrent/cudnn_rnn.h"

#include <fmt/format.h>

#include "ridgeline/core/error.h"

namespace ridgeline::cuda {
namespace {

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return CUDNN_DATA_DOUBLE;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::fp16:
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

cudnnRNNMode_t mode_of(CellKind cell) {
  switch (cell) {
    case CellKind::rnn_relu:
      return CUDNN_RNN_RELU;
    case CellKind::rnn_tanh:
      return CUDNN_RNN_TANH;
    case CellKind::gru:
      return CUDNN_GRU;
    case CellKind::lstm:
      break;
  }
  return CUDNN_LSTM;
}

// Products of fp32 and fp64 keep their precision unless the run allows tf32.
cudnnMathType_t math_of(DType dtype, Precision precision) {
  const bool exact = dtype == DType::fp64 || (dtype == DType::fp32 && precision != Precision::tf32);
  return exact ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
}

}  // namespace

CudnnRnn::CudnnRnn(const Cudnn& library, const Rnn& op, Precision precision,
                   cudnnRNNAlgo_t algorithm, bool training)
    : api_(library.api()),
      handle_(static_cast<cudnnHandle_t>(library.handle())),
      type_(type_of(op.x.dtype)),
      training_(training),
      lstm_(op.shape.cell == CellKind::lstm) {
  const RnnShape& s = op.shape;
  const int H = int(s.hidden), dims[3] = {int(s.directions()), int(s.batch), H};
  const int strides[3] = {dims[1] * H, H, 1};
  const auto sums = type_ == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  // The batch-first layout requires "padded" input, although nothing is padded.
  ok(api_.dropout_create(&dropout_)) && ok(api_.dropout_set(dropout_, handle_, 0, nullptr, 0, 0)) &&
      ok(api_.rnn_create(&rnn_)) &&
      ok(api_.rnn_set(rnn_, algorithm, mode_of(s.cell),
                      op.weights[0].b_ih ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_NO_BIAS,
                      s.directions() == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
                      CUDNN_LINEAR_INPUT, type_, sums, math_of(op.x.dtype, precision), int(s.in), H,
                      H, 1, dropout_, CUDNN_RNN_PADDED_IO_ENABLED)) &&
      (algorithm != CUDNN_RNN_ALGO_PERSIST_DYNAMIC ||
       ok(api_.rnn_build_dynamic(handle_, rnn_, dims[1]))) &&
      describe_sequence(x_, s, s.in) && describe_sequence(y_, s, s.directions() * s.hidden) &&
      ok(api_.tensor_create(&state_)) && ok(api_.tensor_set_nd(state_, type_, 3, dims, strides)) &&
      ok(api_.tensor_create(&matrix_)) && ok(api_.tensor_create(&bias_)) &&
      ok(api_.rnn_weight_size(handle_, rnn_, &weight_bytes_)) &&
      ok(api_.rnn_temp_sizes(handle_, rnn_,
                             training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, x_,
                             &scratch_bytes_, &reserve_bytes_));
}

CudnnRnn::~CudnnRnn() {
  for (const auto tensor : {state_, matrix_, bias_}) {
    if (tensor != nullptr) api_.tensor_destroy(tensor);
  }
  for (const auto sequence : {x_, y_}) {
    if (sequence != nullptr) api_.rnn_data_destroy(sequence);
  }
  if (rnn_ != nullptr) api_.rnn_destroy(rnn_);
  if (dropout_ != nullptr) api_.dropout_destroy(dropout_);
}

std::string CudnnRnn::refusal() const {
  if (status_ == CUDNN_STATUS_SUCCESS) return {};
  return fmt::format("cuDNN does not take it: {}", api_.status_text(status_));
}

bool CudnnRnn::ok(cudnnStatus_t status) {
  if (status_ == CUDNN_STATUS_SUCCESS) status_ = status;
  return status == CUDNN_STATUS_SUCCESS;
}

bool CudnnRnn::describe_sequence(cudnnRNNDataDescriptor_t& to, const RnnShape& s, int64_t width) {
  const std::vector<int> lengths(size_t(s.batch), int(s.steps));
  double zero = 0;  // as wide as the padding value of any type
  return ok(api_.rnn_data_create(&to)) &&
         ok(api_.rnn_data_set(to, type_, CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED, int(s.steps),
                              int(s.batch), int(width), lengths.data(), &zero));
}

CudnnRnn::Place CudnnRnn::place(int direction, int product, void* weights) const {
  Place found;
  check(api_.rnn_weight_params(handle_, rnn_, direction, weight_bytes_, weights, product, matrix_,
                               &found.matrix, bias_, &found.bias),
        "the place of a recurrent layer's weights");
  return found;
}

void CudnnRnn::check(cudnnStatus_t status, const std::string& what) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw_error(ErrorKind::device, "{}: cuDNN reports {}", what, api_.status_text(status));
}

void CudnnRnn::forward(const Operands& o, cudaStream_t stream, const std::string& what) const {
  check(api_.set_stream(handle_, stream), what);
  check(api_.rnn_forward(
            handle_, rnn_, training_ ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, nullptr,
            x_, o.x, y_, o.y, state_, o.h0, o.hT, lstm_ ? state_ : nullptr, o.c0, o.cT,
            weight_bytes_, o.weights, scratch_bytes_, o.scratch, reserve_bytes_, o.reserve),
        what);
}

void CudnnRnn::backward(const Operands& o, const Gradients& g, cudaStream_t stream,
                        const std::string& what) const {
  check(api_.set_stream(handle_, stream), what);
  const auto c = lstm_ ? state_ : nullptr;
  check(api_.rnn_backward_data(handle_, rnn_, nullptr, y_, o.y, g.dy, x_, g.dx, state_, o.h0, g.dhT,
                               g.dh0, c, o.c0, g.dcT, g.dc0, weight_bytes_, o.weights,
                               scratch_bytes_, o.scratch, reserve_bytes_, o.reserve),
        what);
  // cuDNN adds to the existing values, so they are cleared first.
  if (cudaMemsetAsync(g.dweights, 0, weight_bytes_, stream) != cudaSuccess) {
    throw_error(ErrorKind::device, "{}: cannot clear the gradients", what);
  }
  check(api_.rnn_backward_weights(handle_, rnn_, CUDNN_WGRAD_MODE_ADD, nullptr, x_, o.x, state_,
                                  o.h0, y_, o.y, weight_bytes_, g.dweights, scratch_bytes_,
                                  o.scratch, reserve_bytes_, o.reserve),
        what);
}

}  // namespace ridgeline::cuda

#endif
