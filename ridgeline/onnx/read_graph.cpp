#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx.pb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/source/detect.h"
#include "ridgeline/onnx/graph.h"
#include "ridgeline/onnx/read_tensor.h"

namespace ridgeline::onnx {
namespace {

namespace pb = google::protobuf;

// Messages of a graph nest six deep; a subgraph adds four. Deeper ones are damaged or malicious,
// and each level costs the parser's stack.
constexpr int kMostNesting = 64;
constexpr size_t kMostNodes = 100'000;
// Opsets 22 to 28 add operators and element types, but do not change any of the operators known
// here.
constexpr int kOldestOpset = 6, kNewestOpset = 28;

// Passes an open file to protobuf block by block, so that its bytes are in memory once.
class FileStream final : public pb::io::CopyingInputStream {
 public:
  explicit FileStream(int fd) : fd_(fd) {}
  int Read(void* to, int size) override {
    for (;;) {
      const ssize_t got = ::read(fd_, to, size_t(size));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) failed_ = errno;
      return int(got);
    }
  }
  int failed() const { return failed_; }

 private:
  int fd_;
  int failed_ = 0;
};

::onnx::ModelProto parse_file(const std::filesystem::path& file) {
  const Descriptor opened = open_regular(file, ErrorKind::model);
  struct stat about {};
  if (::fstat(opened.get(), &about) != 0) throw_errno(ErrorKind::model, file, "look at it");
  if (about.st_size > std::numeric_limits<int>::max()) {
    throw_error(ErrorKind::model,
                "{}: has {} bytes, and protobuf ends at 2 GB; save it with its weights as external "
                "data",
                file.string(), int64_t(about.st_size));
  }
  FileStream stream(opened.get());
  constexpr int64_t kMostBlock = 1 << 20;
  const int block = int(std::clamp<int64_t>(about.st_size, 1, kMostBlock));
  pb::io::CopyingInputStreamAdaptor blocks(&stream, block);
  pb::io::CodedInputStream coded(&blocks);
  coded.SetTotalBytesLimit(std::numeric_limits<int>::max());
  coded.SetRecursionLimit(kMostNesting);
  ::onnx::ModelProto model;
  const bool parsed = model.ParseFromCodedStream(&coded) && coded.ConsumedEntireMessage();
  if (stream.failed() != 0) {
    errno = stream.failed();
    throw_errno(ErrorKind::model, file, "read it");
  }
  if (!parsed || !model.has_graph()) {
    const data::Content content = data::detect(file).content;
    if (content == data::Content::torch || content == data::Content::pickle) {
      throw_error(ErrorKind::model,
                  "{}: is {}, which can run code and is not read; write the model as ONNX in "
                  "Python: torch.onnx.export(model, (example,), \"model.onnx\")",
                  file.string(), data::title(content));
    }
    throw_error(ErrorKind::model, "{}: is no ONNX model, or is damaged{}", file.string(),
                about.st_size == 0 ? ": it is empty" : "");
  }
  return model;
}

ValueInfo read_value(const ::onnx::ValueInfoProto& from) {
  ValueInfo value;
  value.name = from.name();
  if (!from.type().has_tensor_type()) {
    value.floats = false;
    value.type = "no tensor";
    return value;
  }
  const auto& tensor = from.type().tensor_type();
  value.floats = holds_floats(tensor.elem_type());
  value.type = element_name(tensor.elem_type());
  value.known_shape = tensor.has_shape();
  for (const auto& dim : tensor.shape().dim()) {
    const bool closed = dim.has_dim_value() && dim.dim_value() >= 0;
    value.dims.push_back(closed ? dim.dim_value() : -1);
    value.names.push_back(closed ? "" : dim.dim_param());
  }
  return value;
}

Attribute read_attribute(const ::onnx::AttributeProto& from, TensorReader& reader) {
  Attribute attribute;
  attribute.f = double(from.f());
  attribute.i = from.i();
  attribute.s = from.s();
  attribute.ints.assign(from.ints().begin(), from.ints().end());
  attribute.floats.assign(from.floats().begin(), from.floats().end());
  attribute.strings.assign(from.strings().begin(), from.strings().end());
  if (from.has_t() && is_taken(from.t().data_type())) {
    attribute.tensor = reader.read(from.t(), "attribute " + quote(from.name()));
  }
  return attribute;
}

int64_t read_opset(const ::onnx::ModelProto& model, const std::string& file) {
  int64_t opset = 0;
  for (const auto& each : model.opset_import()) {
    if (each.domain().empty() || each.domain() == "ai.onnx") opset = each.version();
  }
  if (opset < kOldestOpset || opset > kNewestOpset) {
    throw_error(ErrorKind::model,
                "{}: uses operators of opset {}; opsets {} to {} are taken: export it again with "
                "one of these",
                file, opset, kOldestOpset, kNewestOpset);
  }
  return opset;
}

// Reads the nodes, constants, inputs and outputs of a graph or of the body of a loop. `nodes`
// counts those of all.
void read_contents(::onnx::GraphProto& from, TensorReader& reader, size_t& nodes, Graph& graph) {
  nodes += size_t(from.node_size());
  if (nodes > kMostNodes) {
    throw_error(ErrorKind::model, "{}: has {} nodes or more; at most {} are taken", graph.file,
                nodes, kMostNodes);
  }
  for (::onnx::TensorProto& tensor : *from.mutable_initializer()) {
    if (!is_taken(tensor.data_type())) {
      graph.untaken[tensor.name()] = element_name(tensor.data_type());
      continue;
    }
    graph.constants[tensor.name()] = reader.read(tensor, "initializer " + quote(tensor.name()));
    ::onnx::TensorProto().Swap(&tensor);  // frees its bytes, which Clear() would keep
  }
  for (const auto& tensor : from.sparse_initializer()) {
    graph.untaken[tensor.values().name()] = "a sparse tensor";
  }
  for (auto& each : *from.mutable_node()) {
    Node node;
    node.op = each.op_type();
    node.domain = each.domain() == "ai.onnx" ? "" : each.domain();
    node.name = each.name();
    node.inputs.assign(each.input().begin(), each.input().end());
    node.outputs.assign(each.output().begin(), each.output().end());
    const bool loops = node.domain.empty() && (node.op == "Loop" || node.op == "Scan");
    for (auto& attribute : *each.mutable_attribute()) {
      Attribute& made = node.attributes[attribute.name()];
      made = read_attribute(attribute, reader);
      if (!loops || attribute.name() != "body" || !attribute.has_g()) continue;
      auto body = std::make_shared<Graph>();
      body->file = graph.file;
      body->opset = graph.opset;
      read_contents(*attribute.mutable_g(), reader, nodes, *body);
      node.captured = captured_by(*body);
      check_order(*body, node.captured);
      made.graph = std::move(body);
    }
    graph.nodes.push_back(std::move(node));
  }
  for (const auto& each : from.input()) {
    if (!graph.constants.contains(each.name()) && !graph.untaken.contains(each.name())) {
      graph.inputs.push_back(read_value(each));
    }
  }
  for (const auto& each : from.output()) graph.outputs.push_back(read_value(each));
  for (const auto& each : from.value_info()) graph.values[each.name()] = read_value(each);
}

}  // namespace

Graph read_graph(const std::filesystem::path& file) {
  ::onnx::ModelProto model = parse_file(file);
  Graph graph;
  graph.file = file.string();
  graph.opset = read_opset(model, graph.file);
  TensorReader reader(file);
  size_t nodes = 0;
  read_contents(*model.mutable_graph(), reader, nodes, graph);
  check_order(graph);
  return graph;
}

}  // namespace ridgeline::onnx
