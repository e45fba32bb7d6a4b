#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ridgeline::data::testing {

struct Request {
  std::string path;                   // "/mnist/train-labels-idx1-ubyte.gz"
  std::optional<int64_t> range_from;  // of "Range: bytes=N-"
};

struct Reply {
  int status = 200;
  std::string body{};
  std::string location{};              // of a redirect
  bool ranges = true;                  // answers a range with 206; otherwise with the whole file
  std::optional<size_t> cut_after{};   // closes after this many bytes of the body
  std::optional<int> stall_seconds{};  // after the cut, waits this long before it closes
};

// An HTTP server on 127.0.0.1 and a free port, with one request per connection, for as long as the
// object exists.
class LoopbackServer {
 public:
  explicit LoopbackServer(std::function<Reply(const Request&)> handler);
  ~LoopbackServer();
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<Request> requests() const;

 private:
  void serve();
  void answer(int connection);

  std::function<Reply(const Request&)> handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::thread thread_;
};

}  // namespace ridgeline::data::testing
