#include "ridgeline/dist/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <sstream>

namespace ridgeline::dist {
namespace {

bool ready(int fd, short what, int wait_ms) {
  pollfd poll_for{fd, what, 0};
  int found = 0;
  do {
    found = ::poll(&poll_for, 1, wait_ms);
  } while (found < 0 && errno == EINTR);
  return found > 0;
}

void no_delay(int fd) {
  const int yes = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

// Returns the IPv4 addresses of this host except loopback.
std::string own_addresses() {
  std::string all;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN] = "";
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
    all += std::string(" ") + text;
  }
  ::freeifaddrs(list);
  return all;
}

int connect_to(const std::string& host, int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  bool good = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  if (!good && errno == EINPROGRESS && ready(fd, POLLOUT, 2000)) {
    int error = 0;
    socklen_t size = sizeof(error);
    good = ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }
  if (!good) {
    ::close(fd);
    return -1;
  }
  ::fcntl(fd, F_SETFL, flags);
  no_delay(fd);
  return fd;
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string random_token() {
  unsigned char bytes[16]{};
  if (::getrandom(bytes, sizeof(bytes), 0) != ssize_t(sizeof(bytes))) return {};
  constexpr const char* kDigits = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : bytes) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

int listen_for_ranks(bool loopback, int ranks, std::string& address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof(own);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof(own)) != 0 || ::listen(fd, ranks) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    ::close(fd);
    return -1;
  }
  address = std::to_string(ntohs(own.sin_port)) + (loopback ? "" : own_addresses()) + " 127.0.0.1";
  return fd;
}

int accept_one(int listener, int wait_ms) {
  if (wait_ms <= 0 || !ready(listener, POLLIN, wait_ms)) return -1;
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) no_delay(fd);
  return fd;
}

int connect_to_any(const std::string& address) {
  std::istringstream words(address);
  int port = 0;
  words >> port;
  for (std::string host; words >> host;) {
    const int fd = connect_to(host, port);
    if (fd >= 0) return fd;
  }
  return -1;
}

bool read_exactly(int fd, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!ready(fd, POLLIN, kConnectMs)) return false;
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= size_t(got);
  }
  return true;
}

}  // namespace ridgeline::dist
