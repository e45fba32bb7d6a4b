#pragma once

#include <cstddef>
#include <string>

// The TCP functions of the watchdog. Failures are -1 or false: it works without connections.
namespace ridgeline::dist {

constexpr int kConnectMs = 10'000;  // to wait for a connection

std::string host_name();
std::string random_token();  // 32 hexadecimal digits of the system's randomness

// Listens on a free port: of loopback, or of every interface. `address` becomes "PORT ADDRESS...",
// which others may try; it stays empty on failure.
int listen_for_ranks(bool loopback, int ranks, std::string& address);
int accept_one(int listener, int wait_ms);
int connect_to_any(const std::string& address);
bool read_exactly(int fd, void* data, size_t bytes);  // within kConnectMs

}  // namespace ridgeline::dist
