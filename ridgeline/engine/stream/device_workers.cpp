#include "ridgeline/engine/stream/device_workers.h"

#include <algorithm>
#include <sstream>

#include "ridgeline/core/device.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const Device& device : gpus()) names.push_back(to_string(device));
  return names;
}

std::vector<std::string> device_names(const std::string& text, const Communicator* ranks) {
  if (text == "cuda:all") {
    std::vector<std::string> names = gpu_names();
    if (names.empty()) throw_error(ErrorKind::device, "cuda:all: {}", gpu_support().refusal);
    return names;
  }
  if (text.find(',') == std::string::npos) {
    // Each rank of a host gets one GPU, as in training.
    const bool any = text == "auto" || text == "cuda";
    const std::vector<std::string> gpus = gpu_names();
    if (ranks != nullptr && ranks->size() > 1 && any && !gpus.empty()) {
      return {gpus[size_t(ranks->local_rank()) % gpus.size()]};
    }
    return {text};
  }
  std::vector<std::string> names;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (number && !names.empty() && names.back().starts_with("cuda:")) part = "cuda:" + part;
    names.push_back(to_string(parse_device(part)));
  }
  return names;
}

}  // namespace

std::vector<RunConfig> device_workers(const RunConfig& run, Communicator* ranks) {
  const bool many = ranks != nullptr && ranks->size() > 1;
  const int threads =
      run.threads == 0 && many ? threads_of_rank(*ranks) : resolve_threads(run.threads);
  const std::vector<std::string> names = device_names(run.device, ranks);
  std::vector<RunConfig> workers;
  for (const std::string& name : names) {
    workers.push_back(run);
    workers.back().device = name;
    settle_device(workers.back());
    workers.back().threads = std::max(1, threads / int(names.size()));
  }
  return workers;
}

}  // namespace ridgeline::engine
