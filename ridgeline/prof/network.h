#pragma once

#include <filesystem>
#include <string>

#include "ridgeline/core/communicator.h"

namespace ridgeline::prof {

// The network between ranks, as two numbers: a message of n bytes takes
// latency + n / bandwidth.
struct Network {
  double bandwidth = 0;  // bytes per second, each way
  double latency = 0;    // seconds
};

// "25GB/s,2us": kB, MB, GB, Gb (bits) a second; ns, us, ms. Throws usage.
Network parse_network(const std::string& text);
std::string to_string(const Network& network);

// Returns the seconds to sum `bytes` over `ranks`, by the best of the usual algorithms: recursive
// halving and doubling (few messages: log2 N there and back, 2 (N-1)/N of the bytes), or whole
// messages in log2 N rounds if they are so small that only the latency counts.
double all_reduce_seconds(double bytes, int ranks, const Network& network);

// Collective: fits both numbers to all-reduces of 8 bytes and of some megabytes, the best of
// several each. A file kept for these hosts saves the measurement; `again` measures anyway.
Network measure_network(Communicator& ranks);
Network network_of(Communicator& ranks, const std::filesystem::path& file, bool again = false);

}  // namespace ridgeline::prof
