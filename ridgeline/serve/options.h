#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/serve/batcher.h"

namespace ridgeline::serve {

struct ServeOptions {
  std::vector<std::string> models;  // PATH, NAME=PATH or NAME:VERSION=PATH
  std::string folder;               // --models; empty: none
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any free one
  std::string token_file;
  bool insecure = false;   // other addresses than loopback need no token
  std::string access_log;  // file; "-" is stderr; empty: none
  int io_threads = 0;      // 0: one per core
  int64_t max_batch = 64;  // samples per launch
  BatchOptions batch;
  engine::ModelOptions model;
  std::vector<std::string> devices;        // of the instances; empty: model.run.device
  std::chrono::milliseconds poll_time{0};  // interval between checks of the folder; 0: never

  size_t most_body = size_t{16} << 20;     // bytes of a request
  size_t most_tensors = size_t{64} << 20;  // bytes of its prepared samples
  int64_t most_connections = 4096;
  std::chrono::seconds request_time{30};  // to send a request, or to receive a response
  std::chrono::seconds idle_time{75};     // between requests of a connection
  std::chrono::seconds drain_time{30};    // after SIGTERM, for requests in progress
};

// Serves until SIGTERM or SIGINT, answers the requests in progress and returns the exit code.
// Throws Error(usage) for bad options, Error(model) for bad models, Error(io) if the address cannot
// be used.
int serve(const ServeOptions& options);

}  // namespace ridgeline::serve
