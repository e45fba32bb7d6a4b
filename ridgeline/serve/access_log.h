#pragma once

#include <string>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/serve/exchange.h"

namespace ridgeline::serve {

// Where lines of the access log go: a file that is appended to, or stderr.
class LogFile {
 public:
  // "-" is stderr, "" is nowhere. Throws io when the file cannot be written.
  explicit LogFile(const std::string& path);
  bool wanted() const { return fd_ >= 0; }
  // Appends in one call, so that lines of several threads do not mix. What cannot be written is
  // lost: a full disk must not end the server.
  void append(const std::string& lines) const;
  // Opens the file anew, after it was moved away (SIGHUP).
  void reopen();

 private:
  std::string path_;
  Descriptor file_;
  int fd_ = -1;
};

// One thread's lines, an object of JSON each: time, peer, method, path, status, bytes, seconds, and
// of a request to infer the model, samples, seconds in the queue and samples of its launch.
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
