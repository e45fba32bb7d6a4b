#include "ridgeline/onnx/fuse.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

struct Operator {
  const char* name;
  ImportOperator import;
};

// Operators of nodes that depend on the samples.
constexpr Operator kOperators[] = {
    {"Abs", import_composed_activation},
    {"Add", import_arithmetic},
    {"And", import_logic},
    {"ArgMax", import_argmax},
    {"AveragePool", import_pool},
    {"BatchNormalization", import_batch_norm},
    {"Cast", import_identity},
    {"CastLike", import_identity},
    {"Ceil", import_function},
    {"Celu", import_composed_activation},
    {"Clip", import_clip},
    {"Concat", import_concat},
    {"Conv", import_conv},
    {"ConvTranspose", import_conv_transpose},
    {"Cos", import_function},
    {"CumSum", import_cumsum},
    {"DepthToSpace", import_depth},
    {"DequantizeLinear", import_dequantize},
    {"Div", import_arithmetic},
    {"Dropout", import_identity},
    {"Einsum", import_einsum},
    {"Elu", import_activation},
    {"Equal", import_comparison},
    {"Exp", import_activation},
    {"Expand", import_expand},
    {"Flatten", import_view},
    {"Floor", import_activation},
    {"GRU", import_recurrent},
    {"Gather", import_gather},
    {"Gelu", import_activation},
    {"Gemm", import_gemm},
    {"GlobalAveragePool", import_global_pool},
    {"GlobalMaxPool", import_global_pool},
    {"Greater", import_comparison},
    {"GreaterOrEqual", import_comparison},
    {"GroupNormalization", import_group_norm},
    {"HardSigmoid", import_clip},
    {"HardSwish", import_activation},
    {"Identity", import_identity},
    {"InstanceNormalization", import_group_norm},
    {"LRN", import_local_response},
    {"LSTM", import_recurrent},
    {"LayerNormalization", import_layer_norm},
    {"LeakyRelu", import_activation},
    {"Less", import_comparison},
    {"LessOrEqual", import_comparison},
    {"Log", import_activation},
    {"LogSoftmax", import_log_softmax},
    {"Loop", import_loop},
    {"LpNormalization", import_unit_length},
    {"MatMul", import_matmul},
    {"Max", import_extreme},
    {"MaxPool", import_pool},
    {"Mean", import_sum},
    {"Min", import_extreme},
    {"Mish", import_composed_activation},
    {"Mul", import_arithmetic},
    {"Neg", import_composed_activation},
    {"Not", import_logic},
    {"Or", import_logic},
    {"PRelu", import_prelu},
    {"Pad", import_pad},
    {"Pow", import_power},
    {"QuantizeLinear", import_quantize},
    {"RMSNormalization", import_rms_norm},
    {"RNN", import_recurrent},
    {"Reciprocal", import_activation},
    {"ReduceL1", import_composed_reduce},
    {"ReduceL2", import_composed_reduce},
    {"ReduceLogSum", import_composed_reduce},
    {"ReduceLogSumExp", import_composed_reduce},
    {"ReduceMax", import_reduce},
    {"ReduceMean", import_reduce},
    {"ReduceMin", import_reduce},
    {"ReduceProd", import_product},
    {"ReduceSum", import_reduce},
    {"ReduceSumSquare", import_composed_reduce},
    {"Relu", import_activation},
    {"Reshape", import_view},
    {"Resize", import_resize},
    {"ReverseSequence", import_reverse_sequence},
    {"Round", import_activation},
    {"Scan", import_loop},
    {"Selu", import_composed_activation},
    {"Shape", import_shape},
    {"Shrink", import_composed_activation},
    {"Sigmoid", import_activation},
    {"Sign", import_function},
    {"Sin", import_activation},
    {"Slice", import_slice},
    {"Softmax", import_softmax},
    {"Softplus", import_activation},
    {"Softsign", import_function},
    {"SpaceToDepth", import_depth},
    {"Split", import_split},
    {"Sqrt", import_activation},
    {"Squeeze", import_view},
    {"Sub", import_arithmetic},
    {"Sum", import_sum},
    {"Swish", import_composed_activation},
    {"Tanh", import_activation},
    {"ThresholdedRelu", import_function},
    {"Tile", import_tile},
    {"Transpose", import_view},
    {"Trilu", import_trilu},
    {"Unsqueeze", import_view},
    {"Upsample", import_resize},
    {"Where", import_where},
    {"Xor", import_logic},
};

// Operators of scikit-learn's models, as skl2onnx writes them.
constexpr const char* kClassicDomain = "ai.onnx.ml";
constexpr Operator kClassic[] = {
    {"ArrayFeatureExtractor", import_columns},
    {"Binarizer", import_binarizer},
    {"FeatureVectorizer", import_feature_vectorizer},
    {"LinearClassifier", import_linear_model},
    {"LinearRegressor", import_linear_model},
    {"Normalizer", import_normalizer},
    {"OneHotEncoder", import_one_hot},
    {"Scaler", import_scaler},
    {"ZipMap", import_zip_map},
};

// Operators that fuse() makes.
constexpr Operator kOwn[] = {
    {"Gelu", import_activation},
    {"GroupNormalization", import_group_norm},
    {"HardSwish", import_activation},
    {"LogSigmoid", import_composed_activation},
    {"LpNormalization", import_unit_length},
    {"Normalize", import_normalize},
    {"Silu", import_activation},
    {"Softplus", import_activation},
    {"Step", import_activation},
};

}  // namespace

ImportOperator find_operator(const std::string& domain, const std::string& op) {
  if (domain == kFused) {
    for (const Operator& each : kOwn) {
      if (op == each.name) return each.import;
    }
  }
  if (domain == kClassicDomain) {
    for (const Operator& each : kClassic) {
      if (op == each.name) return each.import;
    }
  }
  if (!domain.empty()) return nullptr;
  for (const Operator& each : kOperators) {
    if (op == each.name) return each.import;
  }
  return nullptr;
}

std::vector<std::string> known_operators() {
  std::vector<std::string> names;
  for (const Operator& each : kOperators) names.emplace_back(each.name);
  return names;
}

}  // namespace ridgeline::onnx
