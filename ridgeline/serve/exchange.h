#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ridgeline/serve/batcher.h"
#include "ridgeline/serve/infer_request.h"
#include "ridgeline/serve/served_model.h"

namespace ridgeline::serve {

// A request and its response. A connection has one and reuses it.
struct Exchange : Job {
  // The response is complete. Called once for a request that was not answered at once, by any
  // thread.
  virtual void answered() noexcept = 0;

  // The request. Views are valid until it is answered.
  std::string_view method, target;
  std::string_view authorization, content_encoding, origin, host;
  std::string_view accept_encoding;
  std::string_view header_length;  // Inference-Header-Content-Length; empty if not given
  std::string body;
  std::string peer;
  Clock::time_point received;  // time of its last byte

  // The response.
  int status = 200;
  std::string_view content_type;
  std::string headers;  // complete lines, besides the usual ones
  std::string reply;

  // The parts of an inference request.
  InferRequest infer;
  std::shared_ptr<const ServedModel> model;
};

}  // namespace ridgeline::serve
