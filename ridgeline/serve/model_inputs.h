#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/serve/infer_request.h"

namespace ridgeline::serve {

// A model's inputs, and the conversion of a request to its samples: bytes or codes directly, texts
// by its vocabulary, fields by its preparation. Thread-safe.
class ModelInputs {
 public:
  explicit ModelInputs(const engine::LoadedModel& model);  // which must outlive it

  // The inputs that a request may name. The last of them may be all columns of a table as one
  // tensor.
  std::span<const TensorSpec> accepted() const { return specs_; }
  // The inputs that the metadata lists.
  std::span<const TensorSpec> declared() const { return std::span(specs_).first(declared_); }

  DType dtype() const { return dtype_; }  // of samples: uint8 or fp32
  size_t sample_bytes() const { return sample_bytes_; }

  // Replaces `samples` by those of the request, [count][sample_bytes()], and returns their count.
  // May take the memory of the request's tensors. Throws HttpError 400 for invalid samples, and 413
  // for more than `most_bytes`.
  int64_t prepare(InferRequest& request, size_t most_bytes, std::vector<uint8_t>& samples) const;

 private:
  void describe_fields();
  int64_t prepare_texts(const InferRequest& request, size_t most_bytes,
                        std::vector<uint8_t>& samples) const;
  int64_t prepare_fields(const InferRequest& request, size_t most_bytes,
                         std::vector<uint8_t>& samples) const;

  const engine::LoadedModel& model_;
  std::vector<TensorSpec> specs_;
  size_t declared_ = 0;
  DType dtype_ = DType::uint8;
  size_t sample_bytes_ = 0;
  int64_t codes_ = 0;  // codes that the first layer knows; 0: samples are not codes
};

}  // namespace ridgeline::serve
