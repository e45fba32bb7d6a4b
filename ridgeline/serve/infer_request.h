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
  size_t spec = 0;               // which of the model's inputs it is
  std::vector<int64_t> shape;    // as given; the first extent counts samples
  std::vector<uint8_t> values;   // dense numbers of the declared type; of BYTES the texts in a row
  std::vector<int64_t> offsets;  // of BYTES: text i is values[offsets[i], offsets[i + 1])

  std::string_view text(size_t i) const {
    return {reinterpret_cast<const char*>(values.data()) + offsets[i],
            size_t(offsets[i + 1] - offsets[i])};
  }
};

struct RequestedOutput {
  size_t spec = 0;      // which of the model's outputs it is
  bool binary = false;  // after the JSON, not in it
};

// What a request may ask of the queue, by the protocol's parameters of the same names.
struct QueueWishes {
  uint64_t priority = 0;  // 1 is before 2, 2 before 3; 0: not given
  uint64_t timeout = 0;   // microseconds to wait at most; 0: as long as it takes
};

// A request to infer. Kept and used again by its connection, so that its memory is too.
struct InferRequest {
  std::string id;
  std::vector<InputTensor> inputs;
  std::vector<RequestedOutput> outputs;
  QueueWishes queue;
};

// Reads requests of the Open Inference Protocol: JSON, or JSON followed by binary tensors. One for
// each thread: it keeps the memory of the JSON parser.
class RequestParser {
 public:
  // `most_bytes`: of the tensors of one request, once converted.
  explicit RequestParser(size_t most_bytes);
  ~RequestParser();

  // `header_length` is the value of Inference-Header-Content-Length: how many bytes of the body are
  // JSON. 0: all of it is the one input's values, and there is no JSON. Throws HttpError, 400 or
  // 413, that names the field. The body may be given more capacity.
  void parse(std::string& body, std::optional<size_t> header_length,
             std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs,
             InferRequest& to);

 private:
  struct Json;
  std::unique_ptr<Json> json_;
  size_t most_bytes_;
};

}  // namespace ridgeline::serve
