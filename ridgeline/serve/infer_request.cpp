#include "ridgeline/serve/infer_request.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <new>

#include "ridgeline/core/text_format.h"
#include "ridgeline/serve/http_error.h"
#include "ridgeline/serve/tensor_values.h"

namespace ridgeline::serve {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kMostRank = 8;
constexpr size_t kMostTensors = 4096;  // inputs or outputs that one request may name

// Returns the member of an object, if any. Of a repeated name, the first counts.
std::optional<dom::element> find(const dom::object& object, std::string_view key) {
  dom::element found;
  if (object[key].get(found)) return std::nullopt;
  return found;
}

std::string_view text_of(const dom::element& element, const std::string& what) {
  std::string_view text;
  if (element.get(text)) refuse(400, "{}: must be a string", what);
  return text;
}

bool flag_of(const std::optional<dom::element>& element, bool otherwise, const std::string& what) {
  if (!element) return otherwise;
  bool flag = false;
  if (element->get(flag)) refuse(400, "{}: must be true or false", what);
  return flag;
}

std::optional<dom::object> object_of(const std::optional<dom::element>& element,
                                     const std::string& what) {
  if (!element) return std::nullopt;
  dom::object object;
  if (element->get(object)) refuse(400, "{}: must be an object", what);
  return object;
}

dom::array array_of(const std::optional<dom::element>& element, const std::string& what) {
  dom::array array;
  if (!element || element->get(array)) refuse(400, "{}: must be an array", what);
  return array;
}

size_t spec_by_name(std::string_view name, std::span<const TensorSpec> specs,
                    const std::string& what) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return i;
  }
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  refuse(400, "{}: the model has no {}; it has {}", what, quote(name), list_words(names));
}

bool fits_sequence(const std::vector<int64_t>& shape, const TensorSpec& spec) {
  return shape.size() == spec.shape.size() && shape[1] >= 1 && shape[1] <= spec.most_timesteps &&
         std::equal(shape.begin() + 2, shape.end(), spec.shape.begin() + 2);
}

// Reads a shape, checks it against the declared one and returns how many elements it has.
int64_t read_shape(const dom::array& array, const TensorSpec& spec, size_t most_bytes,
                   const std::string& what, std::vector<int64_t>& shape) {
  for (const dom::element extent : array) {
    int64_t value = 0;
    if (extent.get(value) || value < 0) {
      refuse(400, "{}.shape: extents must be whole numbers, at least 0", what);
    }
    if (shape.size() == kMostRank)
      refuse(400, "{}.shape: has more than {} extents", what, kMostRank);
    shape.push_back(value);
  }
  if (shape.empty()) {
    refuse(400, "{}.shape: is empty; the model takes {}", what, shape_text(spec.shape));
  }
  // Each element takes at least a byte, so larger counts are refused in any case.
  const auto most = int64_t(most_bytes);
  int64_t sample = 1;
  for (size_t i = 1; i < shape.size(); ++i) {
    if (shape[i] > 0 && sample > most / shape[i]) {
      refuse(413, "{}.shape: {} is larger than this server takes", what, shape_text(shape));
    }
    sample *= shape[i];
  }
  if (spec.most_timesteps > 0 ? !fits_sequence(shape, spec) : sample != spec.sample_elements()) {
    refuse(
        400, "{}.shape: {} does not fit: the model takes {}, with the samples counted first{}",
        what, shape_text(shape), shape_text(spec.shape),
        spec.most_timesteps > 0 ? fmt::format(" and 1 to {} timesteps", spec.most_timesteps) : "");
  }
  if (shape[0] == 0) refuse(400, "{}.shape: {} holds no sample", what, shape_text(shape));
  const auto size = int64_t(std::max<size_t>(1, size_of(spec.type)));
  if (shape[0] > most / (sample * size)) {
    refuse(413, "{}.shape: {} is larger than this server takes ({} bytes a request)", what,
           shape_text(shape), most_bytes);
  }
  return shape[0] * sample;
}

// Reads the values of one tensor from JSON, flat or nested like its shape.
class JsonValues {
 public:
  JsonValues(Datatype given, Datatype declared, const std::string& what, InputTensor& to)
      : given_(given),
        checks_range_(is_whole(given) && given != declared),
        what_(what),
        to_(to),
        sink_(declared, to.values, what) {}

  void read(const dom::array& data, int64_t count) {
    if (given_ != Datatype::bytes) sink_.reserve(count);
    const bool nested = data.size() > 0 && (*data.begin()).is_array();
    if (nested) {
      read_nested(data, 0);
    } else {
      if (int64_t(data.size()) != count) wrong_count(int64_t(data.size()), count);
      for (const dom::element each : data) add(each);
    }
  }

 private:
  [[noreturn]] void wrong_count(int64_t has, int64_t wants) const {
    refuse(400, "{}.data: has {} values, but the shape {} needs {}", what_, has,
           shape_text(to_.shape), wants);
  }

  // The depth of the recursion is at most the rank of the shape.
  void read_nested(const dom::array& array, size_t axis) {
    if (int64_t(array.size()) != to_.shape[axis]) {
      refuse(400, "{}.data: an array at depth {} has {} elements, but the shape is {}", what_, axis,
             array.size(), shape_text(to_.shape));
    }
    for (const dom::element each : array) {
      if (axis + 1 == to_.shape.size()) {
        add(each);
        continue;
      }
      dom::array inner;
      if (each.get(inner)) {
        refuse(400, "{}.data: is nested less deeply than its shape {}", what_,
               shape_text(to_.shape));
      }
      read_nested(inner, axis + 1);
    }
  }

  void add(const dom::element& value) {
    if (given_ == Datatype::bytes) return add_text(value);
    switch (value.type()) {
      case dom::element_type::INT64:
        if (checks_range_ && !holds(given_, int64_t(value))) {
          not_of_type(fmt::format("{}", int64_t(value)));
        }
        return sink_.add(int64_t(value), place_++);
      case dom::element_type::DOUBLE:
        if (is_whole(given_)) not_of_type("a number with a fraction");
        return sink_.add(double(value), place_++);
      case dom::element_type::UINT64:  // what no INT64 holds
        if (checks_range_ && given_ != Datatype::uint64) {
          not_of_type(fmt::format("{}", uint64_t(value)));
        }
        return sink_.add(double(uint64_t(value)), place_++);
      case dom::element_type::BOOL:
        return sink_.add(int64_t(bool(value)), place_++);
      case dom::element_type::NULL_VALUE:  // a missing value
        if (is_whole(given_)) not_of_type("null");
        return sink_.add(std::numeric_limits<double>::quiet_NaN(), place_++);
      default:
        not_of_type("no number");
    }
  }

  void add_text(const dom::element& value) {
    std::string_view text;
    if (value.get(text)) not_of_type("no string");
    to_.values.insert(to_.values.end(), text.begin(), text.end());
    to_.offsets.push_back(int64_t(to_.values.size()));
    ++place_;
  }

  [[noreturn]] void not_of_type(std::string_view found) const {
    refuse(400, "{}.data: value {} is {}, but the datatype is {}", what_, place_, found,
           name(given_));
  }

  Datatype given_;
  bool checks_range_;  // the sink checks the model's own type
  const std::string& what_;
  InputTensor& to_;
  NumberSink sink_;
  int64_t place_ = 0;
};

// A request that is being read: its JSON object, and the binary data that have not been used.
struct Reading {
  std::span<const uint8_t> binary;
  std::span<const TensorSpec> inputs, outputs;
  size_t most_bytes;
};

Datatype read_datatype(const dom::object& object, const TensorSpec& spec, const std::string& what) {
  const auto element = find(object, "datatype");
  if (!element) refuse(400, "{}.datatype: is missing; the model takes {}", what, name(spec.type));
  const std::string_view text = text_of(*element, what + ".datatype");
  const auto given = parse_datatype(text);
  if (!given) refuse(400, "{}.datatype: {} is no datatype of the protocol", what, quote(text));
  if ((*given == Datatype::bytes) != (spec.type == Datatype::bytes)) {
    refuse(400, "{}.datatype: is {}, but the model takes {}", what, name(*given), name(spec.type));
  }
  return *given;
}

void read_input(const dom::object& object, const std::string& what, Reading& reading,
                InputTensor& to) {
  const auto name_element = find(object, "name");
  if (!name_element) refuse(400, "{}.name: is missing", what);
  to.spec = spec_by_name(text_of(*name_element, what + ".name"), reading.inputs, what + ".name");
  const TensorSpec& spec = reading.inputs[to.spec];
  const Datatype given = read_datatype(object, spec, what);
  const int64_t count = read_shape(array_of(find(object, "shape"), what + ".shape"), spec,
                                   reading.most_bytes, what, to.shape);
  to.offsets.push_back(0);
  const auto parameters = object_of(find(object, "parameters"), what + ".parameters");
  if (const auto size = parameters ? find(*parameters, "binary_data_size") : std::nullopt) {
    uint64_t bytes = 0;
    if (size->get(bytes) || bytes > reading.binary.size()) {
      refuse(400, "{}.parameters.binary_data_size: {} bytes of binary data are left in the body",
             what, reading.binary.size());
    }
    read_binary(reading.binary.first(bytes), given, spec.type, count, what, to);
    reading.binary = reading.binary.subspan(bytes);
    return;
  }
  const auto data = find(object, "data");
  if (!data) refuse(400, "{}: has neither data nor parameters.binary_data_size", what);
  JsonValues(given, spec.type, what, to).read(array_of(data, what + ".data"), count);
}

void read_inputs(const dom::object& root, Reading& reading, std::vector<InputTensor>& to) {
  const dom::array array = array_of(find(root, "inputs"), "inputs");
  if (array.size() == 0) refuse(400, "inputs: is empty");
  if (array.size() > kMostTensors) refuse(400, "inputs: has more than {} tensors", kMostTensors);
  to.resize(array.size());
  size_t i = 0;
  for (const dom::element element : array) {
    const std::string what = fmt::format("inputs[{}]", i);
    InputTensor& tensor = to[i++];
    tensor.shape.clear();
    tensor.values.clear();
    tensor.offsets.clear();
    dom::object object;
    if (element.get(object)) refuse(400, "{}: must be an object", what);
    read_input(object, what, reading, tensor);
    for (size_t before = 0; before + 1 < i; ++before) {
      if (to[before].spec == tensor.spec) refuse(400, "{}.name: was given before", what);
    }
    if (tensor.shape[0] != to[0].shape[0]) {
      refuse(400, "{}.shape: counts {} samples, but the first input has {}", what, tensor.shape[0],
             to[0].shape[0]);
    }
  }
}

void all_outputs(bool binary, std::span<const TensorSpec> outputs,
                 std::vector<RequestedOutput>& to) {
  for (size_t i = 0; i < outputs.size(); ++i) to.push_back({i, binary});
}

void read_outputs(const dom::object& root, const Reading& reading,
                  std::vector<RequestedOutput>& to) {
  const auto parameters = object_of(find(root, "parameters"), "parameters");
  const bool binary = flag_of(parameters ? find(*parameters, "binary_data_output") : std::nullopt,
                              false, "parameters.binary_data_output");
  to.clear();
  const auto outputs = find(root, "outputs");
  if (!outputs) return all_outputs(binary, reading.outputs, to);
  for (const dom::element element : array_of(outputs, "outputs")) {
    const std::string what = fmt::format("outputs[{}]", to.size());
    dom::object object;
    if (element.get(object)) refuse(400, "{}: must be an object", what);
    const auto name_element = find(object, "name");
    if (!name_element) refuse(400, "{}.name: is missing", what);
    RequestedOutput output;
    output.spec =
        spec_by_name(text_of(*name_element, what + ".name"), reading.outputs, what + ".name");
    const auto own = object_of(find(object, "parameters"), what + ".parameters");
    if (own && find(*own, "classification")) {
      refuse(400, "{}.parameters.classification: this server gives the output \"label\" instead",
             what);
    }
    output.binary = flag_of(own ? find(*own, "binary_data") : std::nullopt, binary,
                            what + ".parameters.binary_data");
    for (const RequestedOutput& before : to) {
      if (before.spec == output.spec) refuse(400, "{}.name: was given before", what);
    }
    to.push_back(output);
  }
  if (to.empty()) all_outputs(binary, reading.outputs, to);
}

QueueWishes read_wishes(const dom::object& root) {
  QueueWishes wishes;
  const auto parameters = object_of(find(root, "parameters"), "parameters");
  if (!parameters) return wishes;
  const auto read = [&](const char* name, uint64_t most, uint64_t& to) {
    const auto element = find(*parameters, name);
    if (element && (element->get(to) || to > most)) {
      refuse(400, "parameters.{}: must be a whole number from 0 to {}", name, most);
    }
  };
  read("priority", 3, wishes.priority);
  read("timeout", uint64_t{3'600'000'000}, wishes.timeout);
  return wishes;
}

// The whole body is the values of the only input, in its declared type; their count gives the
// number of samples. The outputs are returned as binary too.
void read_raw(std::span<const uint8_t> body, const Reading& reading, InferRequest& to) {
  if (reading.inputs.size() != 1 || reading.inputs[0].type == Datatype::bytes) {
    refuse(400,
           "Inference-Header-Content-Length: 0 goes with models that have one input of numbers; "
           "describe the inputs in JSON");
  }
  const TensorSpec& spec = reading.inputs[0];
  const size_t sample = size_t(spec.sample_elements()) * size_of(spec.type);
  if (body.empty() || body.size() % sample != 0) {
    refuse(400, "the body has {} bytes, which are no whole number of samples of {} {} ({} bytes)",
           body.size(), name(spec.type), shape_text(spec.shape), sample);
  }
  to.inputs.resize(1);
  InputTensor& tensor = to.inputs[0];
  tensor.spec = 0;
  tensor.shape = spec.shape;
  if (spec.most_timesteps > 0) tensor.shape[1] = spec.most_timesteps;
  tensor.shape[0] = int64_t(body.size() / sample);
  tensor.values.clear();
  tensor.offsets.clear();
  read_binary(body, spec.type, spec.type, tensor.shape[0] * spec.sample_elements(), "the body",
              tensor);
  to.outputs.clear();
  all_outputs(true, reading.outputs, to.outputs);
}

// The parser keeps a dozen times the memory of the largest text that it has read; every thread of
// connections has one.
struct ForgetLarge {
  dom::parser& parser;
  size_t length;
  ~ForgetLarge() {
    constexpr size_t kLarge = size_t{1} << 20;
    if (length > kLarge) parser = dom::parser();
  }
};

}  // namespace

struct RequestParser::Json {
  dom::parser parser;
};

RequestParser::RequestParser(size_t most_bytes)
    : json_(std::make_unique<Json>()), most_bytes_(most_bytes) {
  // On its first use simdjson chooses an implementation, in functions that end the program if an
  // allocation fails.
  (void)simdjson::get_active_implementation()->name();
}
RequestParser::~RequestParser() = default;

void RequestParser::parse(std::string& body, std::optional<size_t> header_length,
                          std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs,
                          InferRequest& to) {
  const size_t length = header_length.value_or(body.size());
  if (length > body.size()) {
    refuse(400, "Inference-Header-Content-Length: is {}, but the body has {} bytes", length,
           body.size());
  }
  to.id.clear();
  to.queue = {};
  // simdjson reads, but does not use, up to this many bytes past the end.
  body.reserve(body.size() + simdjson::SIMDJSON_PADDING);
  const auto* bytes = reinterpret_cast<const uint8_t*>(body.data());
  Reading reading{{bytes + length, body.size() - length}, inputs, outputs, most_bytes_};
  if (length == 0 && header_length) return read_raw(reading.binary, reading, to);
  const ForgetLarge forget{json_->parser, length};
  dom::element root;
  if (const auto error = json_->parser.parse(body.data(), length, false).get(root)) {
    if (error == simdjson::MEMALLOC) {  // a parser that lacks part of its memory would crash
      json_->parser = dom::parser();
      throw std::bad_alloc();
    }
    refuse(400, "the body is not JSON: {}", simdjson::error_message(error));
  }
  dom::object object;
  if (root.get(object)) refuse(400, "the body must be a JSON object");
  if (const auto id = find(object, "id")) to.id = text_of(*id, "id");
  read_inputs(object, reading, to.inputs);
  if (!reading.binary.empty()) {
    refuse(400, "{} bytes of the body belong to no input: give parameters.binary_data_size",
           reading.binary.size());
  }
  read_outputs(object, reading, to.outputs);
  to.queue = read_wishes(object);
}

}  // namespace ridgeline::serve
