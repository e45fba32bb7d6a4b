#include "tests/onnx/onnx_model.h"

#include <bit>
#include <cstring>

#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"

namespace ridgeline::test {
namespace {

// The fields of one message in sequence.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  // Steps to the next field; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint(rest_);
    field_ = int(key >> 3);
    wire_ = int(key & 7);
    switch (wire_) {
      case 0:
        number_ = varint(rest_);
        break;
      case 1:
        bytes_ = take(8);
        break;
      case 2:
        bytes_ = take(varint(rest_));
        break;
      case 5:
        bytes_ = take(4);
        break;
      default:
        throw_error(ErrorKind::data, "wire type {} of field {} is none of protobuf's", wire_,
                    field_);
    }
    return true;
  }

  int field() const { return field_; }
  int64_t number() const { return int64_t(number_); }
  std::string_view bytes() const { return bytes_; }
  std::string text() const { return std::string(bytes_); }

  // A repeated field: packed, or one of its numbers.
  template <typename Add>
  void integers(Add add) const {
    if (wire_ == 0) {
      add(int64_t(number_));
      return;
    }
    for (std::string_view rest = bytes_; !rest.empty();) add(int64_t(varint(rest)));
  }
  template <typename T, typename Add>
  void floats(Add add) const {
    for (size_t i = 0; i + sizeof(T) <= bytes_.size(); i += sizeof(T)) {
      T value;
      std::memcpy(&value, bytes_.data() + i, sizeof value);
      add(double(value));
    }
  }

 private:
  static uint64_t varint(std::string_view& from) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !from.empty(); shift += 7) {
      const auto byte = uint8_t(from.front());
      from.remove_prefix(1);
      value |= uint64_t(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    throw_error(ErrorKind::data, "a number of a protobuf message does not end");
  }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) {
      throw_error(ErrorKind::data, "a protobuf message ends {} bytes early", count - rest_.size());
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_, bytes_;
  int field_ = 0, wire_ = 0;
  uint64_t number_ = 0;
};

void read_raw(const Message& message, OnnxTensor& tensor) {
  const auto add = [&](double value) { tensor.values.push_back(value); };
  switch (tensor.type) {
    case OnnxTensor::Type::fp32:
      return message.floats<float>(add);
    case OnnxTensor::Type::fp64:
      return message.floats<double>(add);
    case OnnxTensor::Type::int32:
      return message.floats<int32_t>(add);
    case OnnxTensor::Type::int64:
      return message.floats<int64_t>(add);
    case OnnxTensor::Type::uint8:
      return message.floats<uint8_t>(add);
    default:
      return;  // a type whose test we do not run
  }
}

OnnxTensor parse_tensor(std::string_view bytes) {
  OnnxTensor tensor;
  const auto add = [&](auto value) { tensor.values.push_back(double(value)); };
  // The type may come after the data it describes.
  for (Message message(bytes); message.next();) {
    if (message.field() == 2) tensor.type = OnnxTensor::Type(message.number());
  }
  for (Message message(bytes); message.next();) {
    switch (message.field()) {
      case 1:
        message.integers([&](int64_t extent) { tensor.dims.push_back(extent); });
        break;
      case 4:
        message.floats<float>(add);
        break;
      case 5:
      case 7:
        message.integers(add);
        break;
      case 8:
        tensor.name = message.text();
        break;
      case 9:
        read_raw(message, tensor);
        break;
      case 10:
        message.floats<double>(add);
        break;
      default:
        break;
    }
  }
  return tensor;
}

void parse_attribute(std::string_view bytes, OnnxNode& node) {
  OnnxAttribute attribute;
  std::string name;
  for (Message message(bytes); message.next();) {
    switch (message.field()) {
      case 1:
        name = message.text();
        break;
      case 2:
        message.floats<float>([&](double value) { attribute.f = value; });
        break;
      case 3:
        attribute.i = message.number();
        break;
      case 4:
        attribute.s = message.text();
        break;
      case 8:
        message.integers([&](int64_t value) { attribute.ints.push_back(value); });
        break;
      default:
        break;
    }
  }
  node.attributes[name] = std::move(attribute);
}

OnnxNode parse_node(std::string_view bytes) {
  OnnxNode node;
  for (Message message(bytes); message.next();) {
    switch (message.field()) {
      case 1:
        node.inputs.push_back(message.text());
        break;
      case 2:
        node.outputs.push_back(message.text());
        break;
      case 4:
        node.op = message.text();
        break;
      case 5:
        parse_attribute(message.bytes(), node);
        break;
      case 7:
        node.domain = message.text();
        break;
      default:
        break;
    }
  }
  return node;
}

void parse_graph(std::string_view bytes, OnnxModel& model) {
  for (Message message(bytes); message.next();) {
    if (message.field() == 1) model.nodes.push_back(parse_node(message.bytes()));
    if (message.field() == 5) model.initializers.push_back(parse_tensor(message.bytes()));
    if (message.field() != 11) continue;
    for (Message info(message.bytes()); info.next();) {
      if (info.field() == 1) model.inputs.push_back(info.text());
    }
  }
}

std::string read_text(const std::filesystem::path& file) {
  const auto bytes = read_file(file, ErrorKind::data, size_t{1} << 30);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

int64_t OnnxTensor::numel() const {
  int64_t product = 1;
  for (const int64_t extent : dims) product *= extent;
  return product;
}

int64_t OnnxNode::integer(const std::string& name, int64_t fallback) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? fallback : found->second.i;
}
double OnnxNode::number(const std::string& name, double fallback) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? fallback : found->second.f;
}
std::string OnnxNode::text(const std::string& name, const std::string& fallback) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? fallback : found->second.s;
}
std::vector<int64_t> OnnxNode::integers(const std::string& name,
                                        std::vector<int64_t> fallback) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? fallback : found->second.ints;
}

OnnxModel read_onnx_model(const std::filesystem::path& file) {
  const std::string bytes = read_text(file);
  OnnxModel model;
  for (Message message(bytes); message.next();) {
    if (message.field() == 7) parse_graph(message.bytes(), model);
    if (message.field() != 8) continue;
    std::string domain;
    int64_t version = 0;
    for (Message opset(message.bytes()); opset.next();) {
      if (opset.field() == 1) domain = opset.text();
      if (opset.field() == 2) version = opset.number();
    }
    if (domain.empty()) model.opset = version;
  }
  return model;
}

OnnxTensor read_onnx_tensor(const std::filesystem::path& file) {
  return parse_tensor(read_text(file));
}

}  // namespace ridgeline::test
