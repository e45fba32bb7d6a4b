#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/serve/datatype.h"

namespace ridgeline::serve {

// One input of a request, checked and converted to the type that the model declares.
struct InputTensor {
  size_t spec = 0;               // index of the model's input
  std::vector<int64_t> shape;    // as given; the first extent counts samples
  std::vector<uint8_t> values;   // dense numbers of the declared type; for BYTES the joined texts
  std::vector<int64_t> offsets;  // for BYTES: text i is values[offsets[i], offsets[i + 1])

  std::string_view text(size_t i) const {
    return {reinterpret_cast<const char*>(values.data()) + offsets[i],
            size_t(offsets[i + 1] - offsets[i])};
  }
};

struct RequestedOutput {
  size_t spec = 0;      // index of the model's output
  bool binary = false;  // after the JSON, not inside it
};

// A request's parameters for the queue, with the protocol's names.
struct QueueWishes {
  uint64_t priority = 0;  // 1 is before 2, 2 before 3; 0: not given
  uint64_t timeout = 0;   // longest wait in microseconds; 0: unlimited
};

// An inference request. Its connection reuses it, and with it its memory.
struct InferRequest {
  std::string id;
  std::vector<InputTensor> inputs;
  std::vector<RequestedOutput> outputs;
  QueueWishes queue;
};

// Parses requests of the Open Inference Protocol: JSON, or JSON followed by binary tensors. One per
// thread, because it keeps the memory of the JSON parser.
class RequestParser {
 public:
  // `most_bytes` limits the converted tensors of one request.
  explicit RequestParser(size_t most_bytes);
  ~RequestParser();

  // `header_length` is the value of Inference-Header-Content-Length: the number of bytes of the
  // body that are JSON. 0: the body is the values of the only input, without JSON. Throws
  // HttpError, 400 or 413, that names the field. May enlarge the body's capacity.
  void parse(std::string& body, std::optional<size_t> header_length,
             std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs,
             InferRequest& to);

 private:
  struct Json;
  std::unique_ptr<Json> json_;
  size_t most_bytes_;
};

}  // namespace ridgeline::serve
