#include "ridgeline/serve/model_inputs.h"

#include <algorithm>
#include <variant>

#include "ridgeline/core/text_format.h"
#include "ridgeline/data/field_set.h"
#include "ridgeline/engine/prepared_inputs.h"
#include "ridgeline/serve/http_error.h"

namespace ridgeline::serve {
namespace {

std::vector<int64_t> with_samples(const Shape& shape) {
  std::vector<int64_t> extents = {-1};
  extents.insert(extents.end(), shape.dims().begin(), shape.dims().end());
  if (extents.size() == 1) extents.push_back(1);
  return extents;
}

TensorSpec spec_of(const data::NumberFeature& feature) {
  // A boolean that may be missing is a number that may be NaN.
  const bool truth = feature.boolean && feature.missing == data::MissingRule::refuse;
  const Datatype number = feature.shape.rank() == 0 ? Datatype::fp64 : Datatype::fp32;
  return {feature.field, truth ? Datatype::boolean : number, with_samples(feature.shape)};
}
TensorSpec spec_of(const data::CategoryFeature& feature) {
  return {feature.field, Datatype::bytes, {-1, 1}};
}
TensorSpec spec_of(const data::ImageFeature& feature) {
  return {feature.field, Datatype::uint8, with_samples(feature.shape)};
}

// The samples of a request have one number of timesteps, at most as many as the model takes.
TensorSpec spec_of(const data::SequenceFeature& feature) {
  TensorSpec spec{feature.timestep.field, Datatype::fp32,
                  with_samples(feature.timestep.shape.prepend(1)), feature.length};
  spec.shape[1] = -1;
  return spec;
}

DType dtype_of(Datatype type) {
  return type == Datatype::fp64 ? DType::fp64 : type == Datatype::fp32 ? DType::fp32 : DType::uint8;
}

// The field's values are those of the tensor, which outlives it.
data::Field field_of(const TensorSpec& spec, const InputTensor& tensor) {
  if (spec.type == Datatype::bytes) {
    return data::text_field(
        spec.name, {reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size()},
        tensor.offsets);
  }
  std::vector<int64_t> extents = {tensor.shape[0]};
  const bool single = spec.shape.size() == 2 && spec.shape[1] == 1 && spec.type != Datatype::fp32;
  if (spec.most_timesteps > 0) extents.push_back(tensor.shape[1]);
  if (!single) {
    extents.insert(extents.end(), spec.shape.begin() + int(extents.size()), spec.shape.end());
  }
  const Tensor values{const_cast<uint8_t*>(tensor.values.data()), dtype_of(spec.type),
                      Shape(std::span<const int64_t>(extents)), Device{}};
  return data::borrowed_field(spec.name, values);
}

}  // namespace

ModelInputs::ModelInputs(const engine::LoadedModel& model) : model_(model) {
  const Shape input = model.model.input();
  if (model.preparation) {
    describe_fields();
    dtype_ = engine::input_dtype(*model.preparation);
  } else if (model.config.data.text) {
    specs_.push_back({"text", Datatype::bytes, {-1, 1}});
  } else {
    codes_ = model.model.layers().front()->codes_below();
    specs_.push_back({codes_ > 0 ? "codes" : "input", Datatype::uint8, with_samples(input)});
  }
  sample_bytes_ = size_t(input.numel()) * size_of(dtype_);
  if (model.preparation && model.preparation->sequence() != nullptr) {
    sample_bytes_ += sizeof(int32_t);  // its number of timesteps
  }
  if (declared_ == 0) declared_ = specs_.size();
}

void ModelInputs::describe_fields() {
  const auto& features = model_.preparation->features();
  bool numbers = features.size() > 1;
  for (const data::Feature& feature : features) {
    specs_.push_back(std::visit([](const auto& each) { return spec_of(each); }, feature));
    const TensorSpec& spec = specs_.back();
    numbers = numbers && spec.sample_elements() == 1 && spec.type != Datatype::bytes;
  }
  declared_ = specs_.size();
  const bool taken = std::ranges::any_of(specs_, [](const auto& s) { return s.name == "input"; });
  if (numbers && !taken) {
    specs_.push_back({"input", Datatype::fp64, {-1, int64_t(features.size())}});
  }
}

int64_t ModelInputs::prepare(InferRequest& request, size_t most_bytes,
                             std::vector<uint8_t>& samples) const {
  if (model_.preparation) {
    try {
      return prepare_fields(request, most_bytes, samples);
    } catch (const Error& error) {
      // Error(data) messages begin with a file name, which does not exist here.
      std::string_view what = error.what();
      while (what.starts_with(": ")) what.remove_prefix(2);
      refuse(400, "{}", what);
    }
  }
  if (specs_.front().type == Datatype::bytes) return prepare_texts(request, most_bytes, samples);
  InputTensor& tensor = request.inputs.front();
  std::swap(samples, tensor.values);
  if (codes_ > 0) {
    try {
      engine::check_codes(samples, codes_, int64_t(sample_bytes_), 0, "inputs[0]");
    } catch (const Error& error) {
      refuse(400, "{}", error.what());
    }
  }
  return tensor.shape[0];
}

int64_t ModelInputs::prepare_texts(const InferRequest& request, size_t most_bytes,
                                   std::vector<uint8_t>& samples) const {
  const InputTensor& tensor = request.inputs.front();
  const auto count = size_t(tensor.shape[0]);
  if (count > most_bytes / sample_bytes_) {
    refuse(413, "inputs[0].shape: at most {} texts fit into one request",
           most_bytes / sample_bytes_);
  }
  const data::TextCoding& coding = model_.config.data.text->coding;
  samples.resize(count * sample_bytes_);
  for (size_t i = 0; i < count; ++i) {
    coding.vocabulary.encode(tensor.text(i), coding.backward,
                             std::span(samples).subspan(i * sample_bytes_, sample_bytes_));
  }
  return int64_t(count);
}

int64_t ModelInputs::prepare_fields(const InferRequest& request, size_t most_bytes,
                                    std::vector<uint8_t>& samples) const {
  const data::Preparation& preparation = *model_.preparation;
  data::FieldSet set("the request");
  std::vector<InputTensor> columns;  // of a table given as one tensor
  const auto joined = std::ranges::find_if(
      request.inputs, [&](const InputTensor& tensor) { return tensor.spec >= declared_; });
  if (joined != request.inputs.end()) {
    if (request.inputs.size() > 1) {
      refuse(400, "inputs: give \"input\" with all columns, or each column by its name, not both");
    }
    const size_t width = declared_, size = sizeof(double);
    const auto rows = size_t(joined->shape[0]);
    columns.resize(width);
    for (size_t c = 0; c < width; ++c) {
      columns[c].shape = {int64_t(rows), 1};
      for (size_t r = 0; r < rows; ++r) {
        const auto from = joined->values.begin() + ptrdiff_t((r * width + c) * size);
        columns[c].values.insert(columns[c].values.end(), from, from + ptrdiff_t(size));
      }
      TensorSpec spec = specs_[c];
      spec.type = Datatype::fp64;
      set.add(field_of(spec, columns[c]));
    }
  } else {
    for (const InputTensor& tensor : request.inputs) {
      set.add(field_of(specs_[tensor.spec], tensor));
    }
    for (const TensorSpec& spec : declared()) {
      if (set.find(spec.name) == nullptr) refuse(400, "inputs: {} is missing", quote(spec.name));
    }
  }
  const int64_t count = engine::prepared_samples(set, preparation);
  if (size_t(count) > most_bytes / sample_bytes_) {
    refuse(413, "inputs: at most {} samples fit into one request", most_bytes / sample_bytes_);
  }
  samples.clear();
  engine::append_inputs(set, preparation, 0, count, samples);
  return count;
}

}  // namespace ridgeline::serve
