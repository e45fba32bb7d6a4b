// How libFuzzer changes models of ONNX: fields of the messages, and nodes taken over from other
// models, since a change of bytes mostly ends in lengths that no longer fit.
#include <google/protobuf/message.h>
#include <onnx_full.pb.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ridgeline/onnx/importer.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* bytes, size_t count, size_t most);

namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;
using Draw = std::minstd_rand;

template <typename T>
const T& one_of(const std::vector<T>& values, Draw& draw) {
  return values[draw() % values.size()];
}

// All messages below this one, itself included, and the names in them.
void collect(pb::Message& message, std::vector<pb::Message*>& messages,
             std::vector<std::string>& names) {
  messages.push_back(&message);
  const pb::Reflection& reflection = *message.GetReflection();
  std::vector<const Field*> fields;
  reflection.ListFields(message, &fields);
  for (const Field* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
        collect(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, i)
                                     : *reflection.MutableMessage(&message, field),
                messages, names);
      } else if (field->type() == Field::TYPE_STRING) {
        names.push_back(field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                             : reflection.GetString(message, field));
      }
    }
  }
}

int64_t whole_number(Draw& draw) {
  constexpr int64_t kNumbers[] = {-1,
                                  0,
                                  1,
                                  2,
                                  3,
                                  7,
                                  64,
                                  1 << 16,
                                  int64_t{1} << 31,
                                  int64_t{1} << 62,
                                  std::numeric_limits<int64_t>::min()};
  return draw() % 2 == 0 ? int64_t(draw() % 8) : kNumbers[draw() % std::size(kNumbers)];
}

double real_number(Draw& draw) {
  constexpr double kNumbers[] = {0, -0.0, 1, -1, 0.5, 1e-30, 1e30, -1e30, 6, 1.0 / 6};
  if (draw() % 16 == 0) return std::numeric_limits<double>::quiet_NaN();
  if (draw() % 16 == 0) return std::numeric_limits<double>::infinity();
  return kNumbers[draw() % std::size(kNumbers)];
}

std::string mutated(std::string bytes, Draw& draw) {
  const size_t most = bytes.size() + 1 + draw() % 64, count = bytes.size();
  bytes.resize(most);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), count, most));
  return bytes;
}

// Calls set(singular setter) or, for a repeated field, its adder or the setter of one element.
void set_scalar(pb::Message& message, const Field* field, const std::vector<std::string>& names,
                Draw& draw) {
  const pb::Reflection& r = *message.GetReflection();
  const int size = field->is_repeated() ? r.FieldSize(message, field) : 0;
  const bool adds = size == 0 || draw() % 4 == 0;
  const int at = adds ? 0 : int(draw() % unsigned(size));
  const auto set = [&](auto single, auto add, auto repeated, auto value) {
    if (!field->is_repeated()) return (r.*single)(&message, field, value);
    return adds ? (r.*add)(&message, field, value) : (r.*repeated)(&message, field, at, value);
  };
  using R = pb::Reflection;
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32:
      return set(&R::SetInt32, &R::AddInt32, &R::SetRepeatedInt32, int32_t(whole_number(draw)));
    case Field::CPPTYPE_INT64:
      return set(&R::SetInt64, &R::AddInt64, &R::SetRepeatedInt64, whole_number(draw));
    case Field::CPPTYPE_UINT64:
      return set(&R::SetUInt64, &R::AddUInt64, &R::SetRepeatedUInt64, uint64_t(whole_number(draw)));
    case Field::CPPTYPE_FLOAT:
      return set(&R::SetFloat, &R::AddFloat, &R::SetRepeatedFloat, float(real_number(draw)));
    case Field::CPPTYPE_DOUBLE:
      return set(&R::SetDouble, &R::AddDouble, &R::SetRepeatedDouble, real_number(draw));
    case Field::CPPTYPE_ENUM:
      return set(&R::SetEnumValue, &R::AddEnumValue, &R::SetRepeatedEnumValue, int(draw() % 20));
    case Field::CPPTYPE_STRING: {
      static const std::vector<std::string> kOperators = ridgeline::onnx::known_operators();
      std::string value;
      if (field->name() == "op_type") {
        value = one_of(kOperators, draw);
      } else if (field->type() == Field::TYPE_BYTES && !field->is_repeated()) {
        value = mutated(r.GetString(message, field), draw);
      } else if (!names.empty()) {
        value = one_of(names, draw);
      }
      return set(&R::SetString, &R::AddString, &R::SetRepeatedString, std::move(value));
    }
    default:
      return;
  }
}

void mutate(pb::Message& message, const std::vector<std::string>& names, Draw& draw) {
  const pb::Reflection& reflection = *message.GetReflection();
  const pb::Descriptor& type = *message.GetDescriptor();
  if (type.field_count() == 0) return;
  // Mostly a field that is there.
  std::vector<const Field*> there;
  reflection.ListFields(message, &there);
  const Field* field = there.empty() || draw() % 8 == 0
                           ? type.field(int(draw() % unsigned(type.field_count())))
                           : one_of(there, draw);
  const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 0;
  const unsigned how = draw() % 8;
  if (how == 0) {
    if (size > 0) {
      reflection.RemoveLast(&message, field);
    } else {
      reflection.ClearField(&message, field);
    }
  } else if (how == 1 && size > 1) {
    reflection.SwapElements(&message, field, int(draw() % unsigned(size)),
                            int(draw() % unsigned(size)));
  } else if (field->cpp_type() != Field::CPPTYPE_MESSAGE) {
    set_scalar(message, field, names, draw);
  } else if (size > 0) {
    const pb::Message& copied =
        reflection.GetRepeatedMessage(message, field, int(draw() % unsigned(size)));
    std::unique_ptr<pb::Message> copy(copied.New());
    copy->CopyFrom(copied);
    reflection.AddAllocatedMessage(&message, field, copy.release());
  }
}

// Gives an input of the graph a value in the file, as exporters do for weights.
void make_constant(onnx_full::GraphProto& graph, Draw& draw) {
  if (graph.input_size() < 2) return;
  const onnx_full::ValueInfoProto& input =
      graph.input(1 + int(draw() % unsigned(graph.input_size() - 1)));
  onnx_full::TensorProto tensor;
  tensor.set_name(input.name());
  tensor.set_data_type(input.type().tensor_type().elem_type());
  int64_t count = 1;
  for (const auto& dim : input.type().tensor_type().shape().dim()) {
    if (dim.dim_value() < 1 || dim.dim_value() > 4096 / count) return;
    count *= dim.dim_value();
    tensor.add_dims(dim.dim_value());
  }
  for (int64_t i = 0; i < count; ++i) {
    if (tensor.data_type() == onnx_full::TensorProto::INT64) {
      tensor.add_int64_data(int64_t(draw() % 4));
    } else {
      tensor.add_float_data(float(real_number(draw)));
    }
  }
  *graph.add_initializer() = std::move(tensor);
}

size_t write(const onnx_full::ModelProto& model, uint8_t* to, size_t most) {
  const size_t count = model.ByteSizeLong();
  return count <= most && model.SerializeToArray(to, int(most)) ? count : 0;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* bytes, size_t count, size_t most,
                                          unsigned seed) {
  Draw draw(seed + 1);
  onnx_full::ModelProto model;
  if (draw() % 8 == 0 || !model.ParseFromArray(bytes, int(count))) {
    return LLVMFuzzerMutate(bytes, count, most);
  }
  for (unsigned times = 1 + draw() % 3; times > 0; --times) {
    std::vector<pb::Message*> messages;
    std::vector<std::string> names;
    collect(model, messages, names);
    if (draw() % 8 == 0) {
      make_constant(*model.mutable_graph(), draw);
    } else {
      mutate(*one_of(messages, draw), names, draw);
    }
  }
  const size_t written = write(model, bytes, most);
  return written > 0 ? written : LLVMFuzzerMutate(bytes, count, most);
}

// Puts a node of the second model, and what it may read, into the first.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* first, size_t first_count,
                                            const uint8_t* second, size_t second_count, uint8_t* to,
                                            size_t most, unsigned seed) {
  Draw draw(seed + 1);
  onnx_full::ModelProto model, other;
  if (!model.ParseFromArray(first, int(first_count)) ||
      !other.ParseFromArray(second, int(second_count)) || other.graph().node_size() == 0) {
    return 0;
  }
  onnx_full::GraphProto& graph = *model.mutable_graph();
  onnx_full::NodeProto node = other.graph().node(int(draw() % unsigned(other.graph().node_size())));
  for (const auto& tensor : other.graph().initializer()) {
    for (const std::string& input : node.input()) {
      if (tensor.name() == input) *graph.add_initializer() = tensor;
    }
  }
  if (graph.node_size() > 0 && node.input_size() > 0 && node.output_size() > 0) {
    // In place of a node, or behind the last one.
    onnx_full::NodeProto& place = *graph.mutable_node(int(draw() % unsigned(graph.node_size())));
    const bool replaces = draw() % 2 == 0;
    const onnx_full::NodeProto& before = replaces ? place : graph.node(graph.node_size() - 1);
    const std::string from = replaces && before.input_size() > 0     ? before.input(0)
                             : !replaces && before.output_size() > 0 ? before.output(0)
                                                                     : std::string("x");
    node.set_input(0, from);
    if (replaces && before.output_size() > 0) {
      node.set_output(0, before.output(0));
    } else if (graph.output_size() > 0) {
      graph.mutable_output(0)->set_name(node.output(0));
    }
    if (replaces) {
      place = node;
      return write(model, to, most);
    }
  }
  *graph.add_node() = node;
  return write(model, to, most);
}
