#include "tests/onnx/node_case.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridgeline::test {
namespace {

// Thrown if a node needs something that our ops do not have.
struct NotOurs {
  std::string reason;
};

[[noreturn]] void refuse(std::string reason) { throw NotOurs{std::move(reason)}; }

class Maker {
 public:
  Maker(const OnnxNode& node, int64_t opset, const std::vector<OnnxTensor>& inputs,
        const std::vector<OnnxTensor>& outputs)
      : node_(node), opset_(opset), inputs_(inputs), outputs_(outputs), c_(node.op, dtype()) {}

  NodeCase make() {
    if (node_.op == "Conv") conv();
    if (node_.op == "MaxPool" || node_.op == "AveragePool") pool();
    if (node_.op == "GlobalAveragePool") global_pool();
    if (node_.op == "BatchNormalization") batch_norm();
    if (node_.op == "LayerNormalization") layer_norm();
    if (node_.op == "Gemm") gemm();
    if (node_.op == "Relu") activation(ActivationKind::relu);
    if (node_.op == "Tanh") activation(ActivationKind::tanh);
    if (node_.op == "Sigmoid") activation(ActivationKind::sigmoid);
    if (node_.op == "Softmax") softmax();
    if (node_.op == "RNN") recurrent(CellKind::rnn_tanh, {0});
    if (node_.op == "GRU") recurrent(CellKind::gru, {1, 0, 2});       // ONNX has z, r, h
    if (node_.op == "LSTM") recurrent(CellKind::lstm, {0, 2, 3, 1});  // i, o, f, c
    made_.c = c_.done();
    return std::move(made_);
  }

 private:
  DType dtype() const {
    for (const auto* tensors : {&inputs_, &outputs_}) {
      for (const OnnxTensor& tensor : *tensors) {
        if (tensor.values.empty() && tensor.numel() == 1) continue;  // absent
        if (tensor.type != inputs_[0].type)
          refuse("wants numbers of another type (the places of the maxima)");
      }
    }
    if (inputs_[0].type == OnnxTensor::Type::fp32) return DType::fp32;
    if (inputs_[0].type == OnnxTensor::Type::fp64) return DType::fp64;
    refuse("not of floats");
  }

  bool has(size_t input) const { return input < inputs_.size() && !inputs_[input].values.empty(); }
  const OnnxTensor& x() const { return inputs_[0]; }

  Value give(const char* name, const Shape& shape, const std::vector<double>& values) {
    const Value value = c_.in(name, shape);
    made_.given.emplace_back(value, values);
    return value;
  }
  Value give(const char* name, const Shape& shape, size_t input) {
    return give(name, shape, inputs_[input].values);
  }
  Value expect(const char* name, const Shape& shape, size_t output = 0) {
    const Value value = c_.out(name, shape);
    if (outputs_[output].numel() != shape.numel()) refuse("the shape of its output is another");
    made_.want.emplace_back(value, outputs_[output].values);
    return value;
  }

  Image image() const {
    const auto& dims = x().dims;
    if (dims.size() == 3) return {dims[1], 1, dims[2]};
    if (dims.size() == 4) return {dims[1], dims[2], dims[3]};
    refuse(dims.size() == 5 ? "slides along three axes" : "no image");
  }
  int64_t n() const { return x().dims[0]; }

  // The window of a Conv or pool; auto_pad is computed, and accepted if it is the same on both
  // sides.
  Window window(const std::vector<int64_t>& kernel, const Image& in) const {
    const size_t axes = kernel.size();
    if (axes > 2) refuse("slides along three axes");
    if (node_.integer("ceil_mode", 0) != 0) refuse("ceil_mode");
    const auto strides = node_.integers("strides", std::vector<int64_t>(axes, 1));
    const auto dilations = node_.integers("dilations", std::vector<int64_t>(axes, 1));
    auto pads = node_.integers("pads", std::vector<int64_t>(2 * axes, 0));
    const std::string auto_pad = node_.text("auto_pad", "NOTSET");
    Window made;
    for (size_t i = 0; i < axes; ++i) {
      const int64_t extent = i + 1 == axes ? in.w : in.h;
      Slide slide{kernel[i], strides[i], 0, dilations[i]};
      if (auto_pad.starts_with("SAME")) {
        const int64_t outputs = (extent + strides[i] - 1) / strides[i];
        const int64_t all =
            std::max<int64_t>(0, (outputs - 1) * strides[i] + slide.reach() - extent);
        pads[i] = auto_pad == "SAME_UPPER" ? all / 2 : (all + 1) / 2;
        pads[i + axes] = all - pads[i];
      } else if (auto_pad == "VALID") {
        pads[i] = pads[i + axes] = 0;
      }
      if (pads[i] != pads[i + axes]) refuse("more padding on one side than on the other");
      slide.pad = pads[i];
      (i + 1 == axes ? made.w : made.h) = slide;
    }
    return made;
  }

  void conv() {
    const Image in = image();
    const OnnxTensor& w = inputs_[1];
    const std::vector<int64_t> kernel(w.dims.begin() + 2, w.dims.end());
    const Conv2dShape shape{in, w.dims[0], window(kernel, in), node_.integer("group", 1)};
    const Value bias = has(2) ? give("b", {shape.k}, 2) : Value{};
    const Value source = give("x", {n(), in.numel()}, 0), weight = give("w", shape.weight(), 1);
    c_.add(Conv2d{source, weight, bias, expect("y", {n(), shape.out().numel()}), shape});
  }

  void pool() {
    if (outputs_.size() > 1) refuse("wants the places of the maxima");
    const Image in = image();
    const PoolShape shape{in, window(node_.integers("kernel_shape", {}), in)};
    const Value source = give("x", {n(), in.numel()}, 0);
    const Value y = expect("y", {n(), shape.out().numel()});
    if (node_.op == "MaxPool") {
      c_.add(MaxPool{source, y, shape});
    } else {
      const bool all = node_.integer("count_include_pad", 0) != 0;
      c_.add(AvgPool{source, y, shape, all ? PoolCount::window : PoolCount::image});
    }
  }

  void global_pool() {
    const Image in = image();
    const PoolShape shape{in, {{in.h}, {in.w}}};
    c_.add(AvgPool{give("x", {n(), in.numel()}, 0), expect("y", {n(), in.c}), shape});
  }

  void batch_norm() {
    if (node_.integer("training_mode", 0) != 0) {
      refuse("training: ONNX keeps the biased variance, PyTorch and we the unbiased one");
    }
    if (opset_ < 9 && node_.integer("spatial", 1) == 0) refuse("not over the pixels");
    if (x().dims.size() < 2) refuse("no channels");
    const int64_t channels = x().dims[1];
    const Image in{channels, 1, x().numel() / (n() * channels)};
    const Shape shape{n(), in.numel()}, each{channels};
    BatchNormInfer op{give("x", shape, 0),
                      give("gamma", each, 1),
                      give("beta", each, 2),
                      give("mean", each, 3),
                      give("var", each, 4),
                      expect("y", shape),
                      in};
    op.epsilon = node_.number("epsilon", 1e-5);
    c_.add(op);
  }

  void layer_norm() {
    const auto rank = int64_t(x().dims.size());
    const int64_t axis = (node_.integer("axis", -1) + rank) % rank;
    int64_t width = 1;
    for (int64_t i = axis; i < rank; ++i) width *= x().dims[size_t(i)];
    const int64_t rows = x().numel() / width;
    LayerNorm op;
    op.x = give("x", {rows, width}, 0);
    op.gamma = give("gamma", {width}, 1);
    if (has(2)) op.beta = give("beta", {width}, 2);
    op.y = expect("y", {rows, width});
    op.mean = outputs_.size() > 1 ? expect("mean", {rows}, 1) : c_.out("mean", {rows});
    op.rstd = outputs_.size() > 2 ? expect("rstd", {rows}, 2) : c_.out("rstd", {rows});
    op.width = width;
    op.epsilon = node_.number("epsilon", 1e-5);
    c_.add(op);
  }

  // y = x . w^T + b: B is transposed here unless the node does so itself.
  void gemm() {
    if (node_.number("alpha", 1) != 1 || node_.number("beta", 1) != 1)
      refuse("scales its products");
    if (node_.integer("transA", 0) != 0) refuse("transposes its first factor");
    const OnnxTensor& b = inputs_[1];
    const bool transposed = node_.integer("transB", 0) != 0;
    const int64_t rows = x().dims[0], in = x().dims[1], out = b.dims[transposed ? 0 : 1];
    std::vector<double> w(size_t(in * out));
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        w[size_t(o * in + i)] = b.values[size_t(transposed ? o * in + i : i * out + o)];
      }
    }
    Value bias;
    if (has(2)) {
      std::vector<double> values = inputs_[2].values;
      if (values.size() == 1) values.assign(size_t(out), values[0]);
      if (int64_t(values.size()) != out) refuse("adds a matrix");
      bias = give("b", {out}, values);
    }
    const Value source = give("x", {rows, in}, 0), weight = give("w", {out, in}, w);
    c_.add(Linear{source, weight, bias, expect("y", {rows, out})});
  }

  void activation(ActivationKind kind) {
    const Shape shape{1, x().numel()};
    c_.add(Activation{kind, give("x", shape, 0), expect("y", shape)});
  }

  void softmax() {
    const auto rank = int64_t(x().dims.size());
    const bool flattens = opset_ < 13;  // all axes from this one on
    const int64_t axis = (node_.integer("axis", flattens ? 1 : -1) + rank) % rank;
    if (!flattens && axis != rank - 1) refuse("not over the last axis");
    int64_t classes = 1;
    for (int64_t i = axis; i < rank; ++i) classes *= x().dims[size_t(i)];
    const Shape shape{x().numel() / classes, classes};
    c_.add(Softmax{give("x", shape, 0), expect("y", shape)});
  }

  // Time comes first in ONNX unless `layout` says otherwise; converted to our [B, T, ...].
  std::vector<double> batch_first(const std::vector<double>& from, int64_t steps, int64_t batch,
                                  int64_t width) const {
    if (node_.integer("layout", 0) == 1) return from;
    std::vector<double> to(from.size());
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t i = 0; i < width; ++i) {
          to[size_t((b * steps + t) * width + i)] = from[size_t((t * batch + b) * width + i)];
        }
      }
    }
    return to;
  }

  // A layer's rows of weights or biases, its gates in our order.
  static std::vector<double> reordered(const std::vector<double>& from, size_t begin,
                                       const std::vector<int>& order, int64_t gate_size) {
    std::vector<double> to;
    for (const int gate : order) {
      const auto first = from.begin() + int64_t(begin) + gate * gate_size;
      to.insert(to.end(), first, first + gate_size);
    }
    return to;
  }

  // gru: ONNX's plain form applies the reset gate before the product, PyTorch's and ours after it.
  // Both are equal for one timestep from a state of zero without a recurrent bias.
  bool resets_as_we_do(const RnnShape& s) const {
    if (node_.integer("linear_before_reset", 0) == 1) return true;
    if (s.steps > 1 || has(5)) return false;
    const int64_t first = 5 * s.hidden;
    for (int64_t i = first; has(3) && i < first + s.hidden; ++i) {
      if (inputs_[3].values[size_t(i)] != 0) return false;
    }
    return true;
  }

  void recurrent(CellKind cell, const std::vector<int>& order) {
    if (has(4)) refuse("has lengths as an input");
    if (has(7)) refuse("peepholes");
    if (node_.text("direction", "forward") != "forward") refuse("not forward");
    const bool batchwise = node_.integer("layout", 0) == 1;
    const auto& dims = x().dims;
    RnnShape s{cell,    Direction::forward, dims[batchwise ? 1 : 0], dims[batchwise ? 0 : 1],
               dims[2], inputs_[2].dims[2]};
    if (cell == CellKind::gru && !resets_as_we_do(s)) refuse("resets before the product");
    Rnn op{};
    op.shape = s;
    op.x = give("x", s.x(), batch_first(x().values, s.steps, s.batch, s.in));
    RnnWeights& w = op.weights[0];
    w.w_ih = give("w_ih", s.w_ih(), reordered(inputs_[1].values, 0, order, s.hidden * s.in));
    w.w_hh = give("w_hh", s.w_hh(), reordered(inputs_[2].values, 0, order, s.hidden * s.hidden));
    if (has(3)) {
      const auto& b = inputs_[3].values;
      w.b_ih = give("b_ih", s.bias(), reordered(b, 0, order, s.hidden));
      w.b_hh = give("b_hh", s.bias(), reordered(b, size_t(s.gate_rows()), order, s.hidden));
    }
    if (has(5)) op.h0 = give("h0", s.state(), 5);
    if (has(6)) op.c0 = give("c0", s.state(), 6);
    op.y = c_.out("y", s.y());
    op.hT = c_.out("hT", s.state());
    // Outputs without a name are not stored.
    size_t stored = 0;
    for (size_t i = 0; i < node_.outputs.size() && stored < outputs_.size(); ++i) {
      if (node_.outputs[i].empty()) continue;
      const auto& values = outputs_[stored++].values;
      if (i == 0) made_.want.emplace_back(op.y, batch_first(values, s.steps, s.batch, s.hidden));
      if (i == 1) made_.want.emplace_back(op.hT, values);
    }
    if (made_.want.empty()) refuse("keeps neither its outputs nor its last state");
    c_.add(op);
  }

  const OnnxNode& node_;
  int64_t opset_;
  const std::vector<OnnxTensor>& inputs_;
  const std::vector<OnnxTensor>& outputs_;
  CaseBuilder c_;
  NodeCase made_;
};

}  // namespace

NodeCase node_case(const OnnxNode& node, int64_t opset, const std::vector<OnnxTensor>& inputs,
                   const std::vector<OnnxTensor>& outputs) {
  try {
    return Maker(node, opset, inputs, outputs).make();
  } catch (const NotOurs& no) {
    NodeCase refused;
    refused.why_not = no.reason;
    return refused;
  }
}

}  // namespace ridgeline::test
