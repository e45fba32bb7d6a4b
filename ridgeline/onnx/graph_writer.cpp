#include "ridgeline/onnx/graph_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ridgeline/core/error.h"
#include "ridgeline/core/half.h"

namespace ridgeline::onnx {
namespace {

// Returns the version of the file format that came with an opset; at least 4, from which on
// initializers need not be inputs too.
int64_t ir_version(int64_t opset) {
  if (opset >= 21) return 10;
  if (opset >= 19) return 9;
  if (opset >= 15) return 8;
  if (opset >= 12) return 7;
  return opset >= 11 ? 6 : 4;
}

}  // namespace

GraphWriter::GraphWriter(int64_t opset, bool half_weights)
    : opset_(opset), half_(half_weights), graph_(*model_.mutable_graph()) {
  model_.set_ir_version(ir_version(opset));
  model_.set_producer_name("ridgeline");
  model_.add_opset_import()->set_version(opset);
  graph_.set_name("ridgeline");
}

std::string GraphWriter::fresh(const std::string& what) {
  return fmt::format("{}_{}", what, count_++);
}

std::string GraphWriter::node(const std::string& op, const std::vector<std::string>& inputs,
                              const Attributes& attributes, const std::string& output) {
  ::onnx::NodeProto& made = *graph_.add_node();
  const std::string name = fresh(op);
  made.set_name(name);
  made.set_op_type(op);
  for (const std::string& input : inputs) made.add_input(input);
  made.add_output(output.empty() ? name + "_out" : output);
  for (const auto& [key, value] : attributes) {
    ::onnx::AttributeProto& attribute = *made.add_attribute();
    attribute.set_name(key);
    if (const auto* whole = std::get_if<int64_t>(&value)) {
      attribute.set_type(::onnx::AttributeProto::INT);
      attribute.set_i(*whole);
    } else if (const auto* number = std::get_if<double>(&value)) {
      attribute.set_type(::onnx::AttributeProto::FLOAT);
      attribute.set_f(float(*number));
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      attribute.set_type(::onnx::AttributeProto::STRING);
      attribute.set_s(*text);
    } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
      attribute.set_type(::onnx::AttributeProto::STRINGS);
      for (const std::string& each : *texts) attribute.add_strings(each);
    } else {
      attribute.set_type(::onnx::AttributeProto::INTS);
      for (const int64_t each : std::get<std::vector<int64_t>>(value)) attribute.add_ints(each);
    }
  }
  return made.output(0);
}

std::string GraphWriter::ml_node(const std::string& op, const std::vector<std::string>& inputs,
                                 const Attributes& attributes) {
  constexpr const char* kDomain = "ai.onnx.ml";
  if (model_.opset_import_size() == 1) {
    auto& import = *model_.add_opset_import();
    import.set_domain(kDomain);
    import.set_version(2);
  }
  std::string output = node(op, inputs, attributes);
  graph_.mutable_node()->rbegin()->set_domain(kDomain);
  return output;
}

Proto& GraphWriter::tensor(const std::string& name, int type, const std::vector<int64_t>& dims) {
  Proto& made = *graph_.add_initializer();
  made.set_name(name);
  made.set_data_type(type);
  for (const int64_t extent : dims) made.add_dims(extent);
  return made;
}

std::string GraphWriter::weight(const std::string& name, const std::vector<int64_t>& dims,
                                std::span<const float> values) {
  if (!weights_.insert(name).second) return name;
  if (!half_) {
    tensor(name, Proto::FLOAT, dims).set_raw_data(values.data(), values.size() * sizeof values[0]);
    return name;
  }
  std::string bytes(values.size() * sizeof(uint16_t), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const Fp16 half(values[i]);
    if (!std::isfinite(float(half))) {
      throw_error(ErrorKind::usage,
                  "export: '{}' has a weight of {}, and fp16 ends at 65504; use fp32", name,
                  values[i]);
    }
    std::memcpy(bytes.data() + i * sizeof half.bits, &half.bits, sizeof half.bits);
  }
  tensor(name + "_half", Proto::FLOAT16, dims).set_raw_data(std::move(bytes));
  return node("Cast", {name + "_half"}, {{"to", int64_t{Proto::FLOAT}}}, name);
}

std::string GraphWriter::floats(const std::vector<int64_t>& dims, std::span<const float> values) {
  const std::string name = fresh("constant");
  tensor(name, Proto::FLOAT, dims).set_raw_data(values.data(), values.size() * sizeof values[0]);
  return name;
}

std::string GraphWriter::scalar(double value) {
  const float number = float(value);
  return floats({}, std::span(&number, 1));
}

std::string GraphWriter::ints(const std::vector<int64_t>& values) {
  const std::string name = fresh("constant");
  tensor(name, Proto::INT64, {int64_t(values.size())})
      .set_raw_data(values.data(), values.size() * sizeof values[0]);
  return name;
}

std::string GraphWriter::index(int64_t value) {
  const std::string name = fresh("constant");
  tensor(name, Proto::INT64, {}).set_raw_data(&value, sizeof value);
  return name;
}

void GraphWriter::describe(::onnx::ValueInfoProto& value, const std::string& name, int type,
                           std::span<const int64_t> sample) {
  value.set_name(name);
  auto& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  tensor.mutable_shape()->add_dim()->set_dim_param("N");
  for (const int64_t extent : sample) tensor.mutable_shape()->add_dim()->set_dim_value(extent);
}

std::string GraphWriter::input(const std::string& name, int type, std::span<const int64_t> sample) {
  // Values of our own are called "output", "<operator>_<number>_out", "constant_<number>" and
  // "<layer>.<weight>".
  const bool own = name == "output" || name.ends_with("_out") || name.starts_with("constant_") ||
                   name.find('.') != std::string::npos;
  const std::string given = own ? name + "_input" : name;
  describe(*graph_.add_input(), given, type, sample);
  return given;
}

void GraphWriter::output(const std::string& name, std::span<const int64_t> sample) {
  describe(*graph_.add_output(), name, Proto::FLOAT, sample);
}

std::string GraphWriter::bytes() const {
  if (model_.ByteSizeLong() > size_t(std::numeric_limits<int>::max())) {
    throw_error(ErrorKind::usage,
                "export: the file would have {} bytes, and protobuf ends at 2 GB; try --weights "
                "fp16",
                model_.ByteSizeLong());
  }
  std::string bytes;
  model_.SerializeToString(&bytes);
  return bytes;
}

}  // namespace ridgeline::onnx
