#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ridgeline/serve/infer_request.h"
#include "ridgeline/serve/model_outputs.h"

namespace ridgeline::serve {

// Writes the response to a request: JSON, followed by the outputs that were requested as binary.
// `numbers` is [samples][outputs.width()], in the units of the data. Returns the bytes of JSON in
// `body` if binary outputs follow, else 0. A number that is not finite is null in JSON.
size_t write_response(const ModelOutputs& outputs, std::string_view model, std::string_view version,
                      const InferRequest& request, int64_t samples, std::span<const float> numbers,
                      std::string& body);

// Returns a text as a JSON string, in quotes.
std::string json_text(std::string_view text);

// {"error":"..."}
std::string error_body(std::string_view message);

}  // namespace ridgeline::serve
