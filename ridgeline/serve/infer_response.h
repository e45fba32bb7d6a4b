#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ridgeline/serve/infer_request.h"
#include "ridgeline/serve/model_outputs.h"

namespace ridgeline::serve {

// Writes the answer to a request: JSON, and after it the outputs that were asked for as binary.
// `numbers` is [samples][outputs.width()], restored. Returns how many bytes of `body` are JSON if
// binary outputs follow, else 0. A number that is not finite is null in JSON.
size_t write_response(const ModelOutputs& outputs, std::string_view model, std::string_view version,
                      const InferRequest& request, int64_t samples, std::span<const float> numbers,
                      std::string& body);

// A text as JSON, in quotes.
std::string json_text(std::string_view text);

// {"error":"..."}
std::string error_body(std::string_view message);

}  // namespace ridgeline::serve
