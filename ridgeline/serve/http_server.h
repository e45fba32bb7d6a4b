#pragma once

#include <memory>

#include "ridgeline/serve/access_log.h"
#include "ridgeline/serve/router.h"

namespace ridgeline::serve {

// Connections: HTTP/1.1 with keep-alive and pipelining on a socket, one thread per given core. A
// connection belongs to one thread for its life, so that a request takes no lock but that of its
// model's queue.
class HttpServer {
 public:
  // Listens from here on. Throws Error(io) if the address cannot be used.
  HttpServer(const ServeOptions& options, Router& router, const Repository& repository,
             Metrics& metrics, const LogFile& log);
  ~HttpServer();  // stops

  int port() const;  // as given, or chosen by the system

  // Accepts no new connections, closes idle ones, and answers the others.
  void drain();
  bool drained() const;  // no connection is left
  void stop();           // ends all threads, whatever they are doing

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridgeline::serve
