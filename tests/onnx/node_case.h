#pragma once

#include <string>
#include <vector>

#include "tests/onnx/onnx_model.h"
#include "tests/support/cases.h"

namespace ridgeline::test {

// One node as one of our ops, with the numbers to run it on and to compare with.
struct NodeCase {
  std::string why_not;  // why it is not one of our ops; the rest is then empty
  Case c;
  std::vector<std::pair<Value, std::vector<double>>> given;  // inputs
  std::vector<std::pair<Value, std::vector<double>>> want;   // outputs
};

// The ops whose test data is used.
constexpr const char* kOnnxOps[] = {"Conv",
                                    "MaxPool",
                                    "AveragePool",
                                    "GlobalAveragePool",
                                    "BatchNormalization",
                                    "LayerNormalization",
                                    "Gemm",
                                    "Relu",
                                    "Tanh",
                                    "Sigmoid",
                                    "Softmax",
                                    "RNN",
                                    "GRU",
                                    "LSTM"};

// `inputs` and `outputs` in the node's order; an absent optional input has no dims and no values.
NodeCase node_case(const OnnxNode& node, int64_t opset, const std::vector<OnnxTensor>& inputs,
                   const std::vector<OnnxTensor>& outputs);

}  // namespace ridgeline::test
