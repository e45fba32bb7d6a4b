#include "ridgeline/prof/network.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "ridgeline/core/cache_file.h"
#include "ridgeline/core/json.h"

namespace ridgeline::prof {
namespace {

using nlohmann::json;

struct Unit {
  const char* name;
  double factor;
};
constexpr Unit kRates[] = {{"kB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9},
                           {"Mb/s", 0.125e6}, {"Gb/s", 0.125e9}, {"Gbit/s", 0.125e9}};
constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

template <size_t N>
double parse(const std::string& text, const Unit (&units)[N], const std::string& whole) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  for (const Unit& unit : units) {
    if (std::string(end) == unit.name && value > 0 && std::isfinite(value)) {
      return value * unit.factor;
    }
  }
  throw_error(ErrorKind::usage, "--network {}: '{}' is not understood; write it as in 25GB/s,2us",
              whole, text);
}

// The bytes per rank and direction over the message size, for the best algorithm for large sums.
double share(int ranks) { return 2.0 * double(ranks - 1) / double(ranks); }
double rounds(int ranks) { return std::ceil(std::log2(double(ranks))); }

// Returns the best of `tries`, or of fewer if they take long: all ranks know the slowest one's
// time, so that all end together.
double seconds_of_sum(Communicator& ranks, std::vector<float>& from, std::vector<float>& to,
                      int tries) {
  constexpr double kMostSeconds = 0.25;
  double best = std::numeric_limits<double>::infinity(), spent = 0;
  for (int i = 0; i < tries && spent < kMostSeconds; ++i) {
    ranks.barrier();
    const auto start = std::chrono::steady_clock::now();
    ranks.all_reduce(from.data(), to.data(), int64_t(from.size()), DType::fp32, Reduce::sum,
                     DType::fp32);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double slowest = ranks.reduce(seconds, Reduce::max);
    best = std::min(best, slowest);
    spent += slowest;
  }
  return best;
}

// Returns the hosts in the order of their ranks, which identify a measurement.
std::string place(Communicator& ranks) {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  std::string all;
  for (const std::string& host : ranks.texts(name)) all += host + " ";
  return all;
}

// Returns the kept measurement of these hosts; nothing if the file is missing or damaged.
Network read_network(const std::filesystem::path& file, const std::string& hosts) {
  const json kept = parse_json(read_cache_file(file).value_or(""));
  const auto number = [&](const char* key) {
    const auto found = kept.find(key);
    return found != kept.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  if (!kept.is_object() || kept.value("hosts", json()) != hosts) return {};
  return {number("bandwidth"), number("latency")};
}

}  // namespace

Network parse_network(const std::string& text) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos) {
    throw_error(ErrorKind::usage, "--network {}: write a rate and a latency, as in 25GB/s,2us",
                text);
  }
  return {parse(text.substr(0, comma), kRates, text), parse(text.substr(comma + 1), kTimes, text)};
}

std::string to_string(const Network& network) {
  return fmt::format("{:.3g} GB/s, {:.3g} us", 1e-9 * network.bandwidth, 1e6 * network.latency);
}

double all_reduce_seconds(double bytes, int ranks, const Network& network) {
  if (ranks < 2) return 0;
  const double large =
      2 * rounds(ranks) * network.latency + share(ranks) * bytes / network.bandwidth;
  const double small = rounds(ranks) * (network.latency + bytes / network.bandwidth);
  return std::min(large, small);
}

Network measure_network(Communicator& ranks) {
  std::vector<float> one(2, 1), one_sum(2);
  std::vector<float> many(size_t{1} << 20, 1), many_sum(many.size());  // 4 MiB
  seconds_of_sum(ranks, many, many_sum, 2);                            // pages, connections
  const double small = seconds_of_sum(ranks, one, one_sum, 50);
  const double large = seconds_of_sum(ranks, many, many_sum, 8);
  Network network;
  network.latency = small / rounds(ranks.size());
  const double bytes = double(many.size() * sizeof(float));
  const double moving = std::max(large - 2 * small, 0.1 * large);
  network.bandwidth = share(ranks.size()) * bytes / moving;
  return network;
}

Network network_of(Communicator& ranks, const std::filesystem::path& file, bool again) {
  const std::string here = place(ranks);
  Network network;
  if (ranks.is_root() && !again) {
    network = read_network(file, here);
  }
  network = ranks.from_root(network);
  if (network.bandwidth > 0 && network.latency > 0) return network;
  network = ranks.from_root(measure_network(ranks));
  if (ranks.is_root()) {
    const json kept{
        {"hosts", here}, {"bandwidth", network.bandwidth}, {"latency", network.latency}};
    write_cache_file(file, dump_json(kept, -1) + "\n");  // on failure the next run measures again
  }
  return network;
}

}  // namespace ridgeline::prof
