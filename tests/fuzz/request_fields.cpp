#include "ridgeline/nn/activation.h"
#include "ridgeline/serve/http_error.h"
#include "ridgeline/serve/model_inputs.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;
using namespace ridgeline::serve;

namespace {

const std::vector<TensorSpec> kOutputs = {{"values", Datatype::fp32, {-1, 1}}};
constexpr size_t kMostBytes = 1 << 16;
constexpr int64_t kMostInputs = 1 << 12;

// Prepares the samples of a request for a model with this preparation.
void prepare(const data::Preparation& preparation, std::string body) {
  const Shape shape = preparation.input_shape();
  if (shape.numel() > kMostInputs) return;
  const engine::LoadedModel loaded{
      .config = {},
      .model = nn::Model({std::make_shared<nn::ActivationLayer>(ActivationKind::relu)}, shape),
      .scaling = {},
      .symbols = {},
      .preparation = preparation,
      .warnings = {}};
  const ModelInputs inputs(loaded);
  const size_t json = body.find('\0');  // where binary tensors begin
  InferRequest request;
  static RequestParser requests(kMostBytes);
  requests.parse(body, json == body.npos ? std::nullopt : std::optional(json), inputs.accepted(),
                 kOutputs, request);
  std::vector<uint8_t> samples;
  const int64_t count = inputs.prepare(request, kMostBytes, samples);
  fuzz::expect(count >= 0 && samples.size() == size_t(count) * inputs.sample_bytes(),
               "whole samples");
}

}  // namespace

// A line with the preparation of a model, and the body of a request to that model.
FUZZ_TARGET(request_fields) {
  const std::string_view text = fuzz::as_text(input);
  const size_t line = text.find('\n');
  if (line == text.npos) return;
  fuzz::refused_or_read([&] {
    const auto preparation = data::Preparation::from_json(text.substr(0, line), "model");
    try {
      prepare(preparation, std::string(text.substr(line + 1)));
    } catch (const HttpError& refusal) {
      fuzz::expect(refusal.status >= 400 && refusal.status < 500, refusal.what());
      fuzz::check_message(refusal.what());
    }
  });
}
