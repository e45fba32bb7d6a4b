#pragma once

#include <string>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/serve/exchange.h"

namespace ridgeline::serve {

// The destination of the access log: a file that is appended to, or stderr.
class LogFile {
 public:
  // "-" is stderr, "" is nowhere. Throws Error(io) if the file cannot be written.
  explicit LogFile(const std::string& path);
  bool wanted() const { return fd_ >= 0; }
  // Appends in one call, so that lines of several threads do not mix. Failures are ignored: a full
  // disk must not end the server.
  void append(const std::string& lines) const;
  // Reopens the file after it was moved away (SIGHUP).
  void reopen();

 private:
  std::string path_;
  Descriptor file_;
  int fd_ = -1;
};

// One thread's lines, each a JSON object: time, peer, method, path, status, bytes, seconds, and for
// an inference request the model, samples, seconds in the queue and samples of its launch.
class AccessLog {
 public:
  explicit AccessLog(const LogFile& file) : file_(file) {}
  ~AccessLog() { flush(); }
  void add(const Exchange& exchange);
  void flush();

 private:
  const LogFile& file_;
  std::string lines_;
};

}  // namespace ridgeline::serve
