#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/onnx/graph.h"
#include "ridgeline/onnx/onnx.h"
#include "ridgeline/onnx/view.h"

namespace ridgeline::onnx {

// A layer under construction from nodes. It may still get a bias from the next node.
struct Draft {
  std::string type;
  std::vector<std::pair<std::string, std::string>> settings;  // in TOML's form
  std::vector<ImportedModel::Weight> weights;                 // by suffix: "weight"
  int64_t bias_from_add = 0;  // not 0: a bias of this many elements may come from an Add after it
  std::vector<int> inputs{};  // numbers of the layers it reads; -1: the net's input
  int weights_of = -1;        // a layer whose weights it uses; -1: it has its own
  std::vector<ConstantPtr> origins{};  // the constants of the graph that its weights come from

  void set(const std::string& key, const std::string& value);
  void set(const std::string& key, int64_t value) { set(key, std::to_string(value)); }
  void set(const std::string& key, const char* value) { set(key, std::string(value)); }
  void set(const std::string& key, bool value) { set(key, std::string(value ? "true" : "false")); }
  void set_pair(const std::string& key, const std::vector<int64_t>& values);
  void set_bias(std::vector<float> values);
  std::string toml(const std::string& name = {}, const std::string& inputs = {}) const;
};

// A value of the graph that depends on the samples.
struct Activation {
  View view;
  Shape stored;          // of one sample of the layer's output
  int layer = -1;        // whose output it is; -1: the net's input
  bool softmax = false;  // a softmax follows, which no layer computes
  // The parts of a view that merges, if each has a layer of its own; `layer` is then void.
  std::vector<Activation> parts{};
};

// Thrown by refuse(); the importer turns it into a line of RefusedModel.
struct Refusal {
  std::string reason;
};

// Walks the nodes of a graph in order and makes layers of them. The functions of the operators
// (import_*.cpp) use it to access the current node, the values it reads and the layers so far.
class Importer {
 public:
  Importer(Graph graph, const ImportOptions& options);
  ImportedModel run();

  const Node& node() const { return *node_; }
  int64_t opset() const { return graph_.opset; }
  int64_t file_batch() const { return file_batch_; }

  bool has(size_t input) const { return !node_->input(input).empty(); }
  // Returns an input that must be known when the graph is read; null if it is absent.
  ConstantPtr known(size_t input) const;
  ConstantPtr require_known(size_t input) const;  // refuses an absent one too
  bool is_known(size_t input) const { return constants_.contains(node_->input(input)); }
  // Returns an input that depends on the samples; the next layer will read it.
  const Activation& take(size_t input);
  const Activation& look(size_t input) const;  // only for its dimensions
  const Activation& take_plain(size_t input);  // batch first, elements in order

  // Returns a constant that is added to what a Softmax reads with numbers below all others instead
  // of minus infinity: their probabilities are 0 either way.
  ConstantPtr finite_before_softmax(ConstantPtr value) const;
  // A constant with a batch of one that an Expand repeats over the batch; null if there is none.
  ConstantPtr repeated(size_t input) const;

  // Ensures that the previous layer produces samples of this shape, by the input's shape or by a
  // flatten layer; refuses otherwise.
  void shape_input(const Shape& wanted);
  // The net's input keeps the shape in the file, whatever the first layer wants, because samples
  // come in that shape.
  void keep_input_shape() { input_read_ = input_read_ || source_ < 0; }
  // Appends a layer. Its input is the value that was taken last.
  void add(Draft draft);
  // Appends the softmax of the value that was taken last, unless it is the end of the net.
  void apply_softmax();
  // Appends a layer that joins values that were taken: numbers of layers, and its output.
  void add_join(Draft draft, std::vector<int> layers, const Shape& output);
  int source() const { return source_; }  // the layer of the value that was taken last
  // Makes the next layer read this one instead, whose samples have this shape.
  void resume(int layer, const Shape& stored);
  // Appends a layer that puts the elements of the value that was taken into the graph's order.
  // Returns the view of the result.
  View straighten(const View& view);
  // Returns that layer, if the node is its only reader, for a bias.
  Draft* only_source(size_t input);
  bool from_input() const { return source_ < 0; }
  const Shape& stored() const { return stored_; }
  // Makes the output of the layers so far output `output` of the node.
  void give(View view, size_t output = 0);
  bool gives_output() const { return node_->outputs[0] == output_; }  // that of the graph
  bool gives_classes() const { return options_.classes && gives_output(); }
  void give_known(ConstantPtr value) { constants_[node_->outputs[0]] = std::move(value); }
  bool gives(size_t output) const {
    return output < node_->outputs.size() && !node_->outputs[output].empty();
  }

  void set_codes() { codes_ = true; }
  void set_classes(std::vector<std::string> names, bool words) {
    classes_ = std::move(names);
    words_ = words;
  }
  void repeat_known(ConstantPtr value) { repeated_[node_->outputs[0]] = std::move(value); }
  void give_softmax(View view, size_t output = 0);

  // Values by their names, for the bodies of loops.
  ConstantPtr constant_named(const std::string& name) const;
  const Activation* activation_named(const std::string& name) const;
  void name_constant(const std::string& name, ConstantPtr value) { constants_[name] = value; }
  void name_activation(const std::string& name, Activation value) {
    activations_[name] = std::move(value);
  }
  void name_same(const std::string& name, const std::string& as);  // the value has two names
  void count_reads(const std::string& name, int reads) { reads_[name] += reads; }
  int64_t next_number() { return numbers_++; }  // for names
  // Imports a node of a body, whose names are those of values here and whose readers are counted.
  void import_inner(const Node& node);

  [[noreturn]] static void refuse(std::string reason) { throw Refusal{std::move(reason)}; }

 private:
  // Of one sample: what is kept of each number while a graph is read stays small beside memory.
  static constexpr int64_t kMostFeatures = int64_t{1} << 26;

  void fold_known();
  // fold(), as long as all that was folded is not far more than the file has.
  ConstantPtr folded(const Node& node, const std::vector<ConstantPtr>& inputs);
  void choose_input();
  void join_inputs(const std::vector<const ValueInfo*>& inputs);
  View input_view(const ValueInfo& input, bool several);
  bool read_by_sequence(const std::string& name) const;
  bool import_node(const Node& node);
  bool fold_repeated(const Node& node);
  void apply(const Node& node);  // calls the function of its operator
  // importer_merged.cpp: nodes whose inputs merge the batch with the first dimension of samples.
  int64_t merged_input(const Node& node) const;  // how many parts; 1: none merges
  void import_merged(const Node& node, int64_t parts);
  void transpose_merged();
  void import_rows(const Node& node, const View& merged);
  void import_parts(const Node& node, int64_t parts);
  void split_parts(const std::string& name);
  void join_parts(const std::string& name);
  std::string line(const Node& node, const std::string& reason) const;
  std::string shape_of(const std::string& name) const;
  ImportedModel result();
  int drop_unread(int end);
  void share_weights();

  Graph graph_;
  ImportOptions options_;
  std::string output_;
  int64_t file_batch_ = 0;  // if the file fixes it
  size_t batch_axis_ = 0;   // of the input
  const Node* node_ = nullptr;
  std::map<std::string, ConstantPtr> constants_;
  std::map<std::string, ConstantPtr> repeated_;
  int64_t numbers_ = 0;
  int64_t foldable_ = int64_t{1} << 22;  // elements that folding may still make
  std::map<std::string, Activation> activations_;
  std::vector<ImportedModel::Input> inputs_;  // if there are several
  std::vector<Draft> drafts_;
  Shape input_, stored_;  // of a sample of the net's input; of the layers' output so far
  Shape sample_;          // of the net's input in the file
  int source_ = -1;       // the layer of the value that was taken, or that was added, last
  bool softmax_ = false;  // follows the value that was taken last
  bool input_read_ = false, codes_ = false;
  std::map<std::string, int> reads_;  // of each value, by nodes
  std::vector<std::string> classes_, warnings_;
  bool words_ = false;  // the classes have names
};

using ImportOperator = void (*)(Importer&);
// Returns null if the operator is unknown.
ImportOperator find_operator(const std::string& domain, const std::string& op);
// "Conv", "Gemm", ...: those of ONNX's own domain.
std::vector<std::string> known_operators();

// How a constant that is added to or multiplied with a value varies: one number for all elements,
// per channel or per element.
enum class Vary { none, channel, each };
struct Broadcast {
  Vary kind = Vary::none;
  std::vector<double> numbers{};  // in the graph's order of channels or elements
};
Broadcast read_broadcast(const Constant& constant, const View& view);

// import_matmul.cpp
void import_gemm(Importer& in);
void import_matmul(Importer& in);
// import_linear.cpp
void import_arithmetic(Importer& in);  // Add, Sub, Mul, Div with a constant; Add and Mul of two
void import_concat(Importer& in);
void import_sum(Importer& in);        // Sum, Mean of values that are computed
void import_extreme(Importer& in);    // Max, Min
void import_embedding(Importer& in);  // Gather from a constant
// import_conv.cpp
void import_conv(Importer& in);
void import_pool(Importer& in);         // MaxPool, AveragePool
void import_global_pool(Importer& in);  // GlobalAveragePool, GlobalMaxPool
// import_conv_transpose.cpp
void import_conv_transpose(Importer& in);
// import_reduce.cpp
void import_reduce(Importer& in);  // ReduceMean, ReduceSum, ReduceMax, ReduceMin
// import_compose.cpp
void import_composed_reduce(Importer& in);  // ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum...
void import_product(Importer& in);          // ReduceProd
void import_cumsum(Importer& in);
void import_trilu(Importer& in);
void import_local_response(Importer& in);  // LRN
void import_einsum(Importer& in);          // import_einsum.cpp
// import_function.cpp
void import_function(Importer& in);    // Ceil, Cos, Sign, Softsign, ThresholdedRelu
void import_comparison(Importer& in);  // Greater, Less, Equal, GreaterOrEqual, LessOrEqual
void import_logic(Importer& in);       // Not, And, Or, Xor
void import_where(Importer& in);
void import_power(Importer& in);
// import_quantize.cpp
void import_quantize(Importer& in);
void import_dequantize(Importer& in);
// import_norm.cpp
void import_batch_norm(Importer& in);
void import_layer_norm(Importer& in);
void import_rms_norm(Importer& in);
void import_normalize(Importer& in);
void import_group_norm(Importer& in);  // and InstanceNormalization
// import_recurrent.cpp
void import_recurrent(Importer& in);  // RNN, GRU, LSTM
// Returns "tanh" or, for an RNN, "relu"; refuses other activations.
std::string read_recurrent_activation(Importer& in, int64_t directions);
// import_unrolled.cpp: the same nodes, timestep by timestep
void import_unrolled(Importer& in);
// import_loop.cpp
void import_loop(Importer& in);  // Loop, Scan
// import_shape.cpp
void import_view(Importer& in);  // Reshape, Flatten, Squeeze, Unsqueeze, Transpose
void import_identity(Importer& in);
void import_shape(Importer& in);
void import_gather(Importer& in);  // a timestep, or an embedding
void import_slice(Importer& in);
void import_softmax(Importer& in);
void import_log_softmax(Importer& in);
void import_argmax(Importer& in);
void import_depth(Importer& in);  // DepthToSpace, SpaceToDepth
void import_expand(Importer& in);
void import_tile(Importer& in);
void import_reverse_sequence(Importer& in);
// import_rearrange.cpp
void import_pad(Importer& in);
void import_split(Importer& in);
// import_resize.cpp
void import_resize(Importer& in);  // Resize, Upsample
// Appends the elements [begin, end) of an axis of the sample, which is in order.
void add_slice(Importer& in, View& view, size_t axis, int64_t begin, int64_t end);
// Appends a selection of these positions of an axis of the sample.
void add_pick(Importer& in, View& view, size_t axis, const std::vector<int64_t>& places);
// Appends repetitions of a sample: how often along each dimension of the view.
void add_repeats(Importer& in, View& view, const std::vector<int64_t>& repeats);
// Appends padding: (before, after) of each axis of the sample.
void add_padding(Importer& in, const std::vector<std::pair<int64_t, int64_t>>& pads, double value);
// import_activation.cpp
void import_activation(Importer& in);
void import_clip(Importer& in);  // Clip, HardSigmoid
void import_prelu(Importer& in);
void import_composed_activation(
    Importer& in);  // Abs, Celu, LogSigmoid, Mish, Neg, Selu, Shrink, Swish: activations by others
// Applies the activation `kind` (a layer type) to the output of the layers so far.
void add_activation(Importer& in, const char* kind);
// Joins layers whose outputs have the current stored shape.
void add_joined(Importer& in, const char* type, std::vector<int> layers);
// y = x * scale + shift, where x varies as `kind` says (import_linear.cpp)
void add_affine(Importer& in, const View& view, Vary kind, std::vector<double> scale,
                std::vector<double> shift);
inline void add_affine(Importer& in, const View& view, double scale, double shift) {
  if (scale != 1 || shift != 0) add_affine(in, view, Vary::none, {scale}, {shift});
}
// import_classic.cpp: scikit-learn's linear models (domain ai.onnx.ml)
void import_scaler(Importer& in);
void import_linear_model(Importer& in);  // LinearClassifier, LinearRegressor
void import_unit_length(Importer& in);
void import_normalizer(Importer& in);
void import_zip_map(Importer& in);
void import_columns(Importer& in);             // ArrayFeatureExtractor
void import_binarizer(Importer& in);           // 1 above a threshold
void import_one_hot(Importer& in);             // OneHotEncoder of whole numbers
void import_feature_vectorizer(Importer& in);  // features side by side

}  // namespace ridgeline::onnx
