#include "tests/data/loopback_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string_view>

namespace ridgeline::data::testing {
namespace {

bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(size_t(sent));
  }
  return true;
}

std::string receive_head(int connection) {
  std::string head;
  char buffer[4096];
  while (head.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = ::recv(connection, buffer, sizeof buffer, 0);
    if (got <= 0) return "";
    head.append(buffer, size_t(got));
  }
  return head;
}

Request parse(const std::string& head) {
  Request request;
  const size_t begin = head.find(' ') + 1;
  request.path = head.substr(begin, head.find(' ', begin) - begin);
  const std::string_view key = "Range: bytes=";
  if (const size_t at = head.find(key); at != std::string::npos) {
    request.range_from = std::stoll(head.substr(at + key.size()));
  }
  return request;
}

}  // namespace

LoopbackServer::LoopbackServer(std::function<Reply(const Request&)> handler)
    : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || ::bind(listener_, generic, size) != 0 || ::listen(listener_, 8) != 0 ||
      ::getsockname(listener_, generic, &size) != 0) {
    throw std::runtime_error("no loopback socket");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

LoopbackServer::~LoopbackServer() {
  stop_ = true;
  thread_.join();
  ::close(listener_);
}

std::vector<Request> LoopbackServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void LoopbackServer::serve() {
  while (!stop_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (::poll(&waiting, 1, 20) <= 0) continue;
    const int connection = ::accept(listener_, nullptr, nullptr);
    if (connection < 0) continue;
    answer(connection);
    ::close(connection);
  }
}

void LoopbackServer::answer(int connection) {
  const std::string head = receive_head(connection);
  if (head.empty()) return;
  const Request request = parse(head);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const Reply reply = handler_(request);
  std::string_view body = reply.body;
  std::string out = "HTTP/1.1 " + std::to_string(reply.status) + " X\r\n";
  if (request.range_from && reply.ranges && reply.status == 200) {
    const auto from = size_t(*request.range_from);
    out = "HTTP/1.1 206 X\r\nContent-Range: bytes " + std::to_string(from) + "-" +
          std::to_string(body.size() - 1) + "/" + std::to_string(body.size()) + "\r\n";
    body.remove_prefix(std::min(from, body.size()));
  }
  if (!reply.location.empty()) out += "Location: " + reply.location + "\r\n";
  out += "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
  send_all(connection, out);
  send_all(connection, body.substr(0, reply.cut_after.value_or(body.size())));
  for (int i = 0; i < reply.stall_seconds.value_or(0) * 50 && !stop_; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace ridgeline::data::testing
