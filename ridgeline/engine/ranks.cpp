#include "ridgeline/engine/ranks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/engine/config_difference.h"

namespace ridgeline::engine {
namespace {

constexpr uint64_t kHashStart = 0xcbf29ce484222325ull;

// FNV-1a over words: enough to detect copies that differ.
uint64_t hash(const void* data, size_t bytes, uint64_t from = kHashStart) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t all = from;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    all = (all ^ word) * 0x100000001b3ull;
    all ^= all >> 29;
  }
  for (; bytes > 0; --bytes, ++at) all = (all ^ *at) * 0x100000001b3ull;
  return all;
}

uint64_t executable_hash() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::vector<char> buffer(size_t{1} << 20);
  uint64_t all = kHashStart;
  while (file) {
    file.read(buffer.data(), std::streamsize(buffer.size()));
    all = hash(buffer.data(), size_t(file.gcount()), all);
  }
  return all;
}

// Returns the first setting in which a rank differs from the root.
std::string first_difference(const std::string& mine, const std::string& root) {
  const std::vector<Difference> all = differences(mine, root);
  if (all.empty()) return {};
  const auto text = [](const std::string& value) { return value.empty() ? "nothing" : value; };
  return fmt::format("'{} = {}' and not '{}'", all[0].key, text(all[0].left), text(all[0].right));
}

std::string host() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

// Throws on all ranks if one has a message.
void throw_first(Communicator& ranks, const std::string& mine, const std::string& remedy) {
  const std::vector<std::string> all = ranks.texts(mine);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    throw_error(ErrorKind::comm, "rank {} {}; {}", r, all[r], remedy);
  }
}

bool has_roots_build(Communicator& ranks) {
  const uint64_t build = executable_hash();
  return ranks.from_root(build) == build;
}

std::string config_difference(Communicator& ranks, const Config& config) {
  // Threads and devices may differ between machines: they do not change the results.
  Config common = config;
  common.run.threads = 0;
  common.run.device = "auto";
  const std::string text = to_toml(common);
  return first_difference(text, ranks.text_from_root(text));
}

}  // namespace

void check_alike(Communicator& ranks, const Config& config, const data::DataSet& set) {
  const bool same_build = has_roots_build(ranks);
  const std::string difference = config_difference(ranks, config);
  const uint64_t data = hash(&set.test.hash, sizeof(set.test.hash), set.train.hash);
  const bool same_data = ranks.from_root(data) == data;
  std::string mine;
  if (!same_build) {
    mine = fmt::format("({}) runs another build of ridgeline than rank 0", host());
  } else if (!difference.empty()) {
    mine = fmt::format("({}) has another config than rank 0: {}", host(), difference);
  } else if (!same_data) {
    mine = fmt::format("({}) has other data for {} than rank 0", host(), config.data.name);
  }
  throw_first(ranks, mine, "all ranks need the same build, config and data");
}

void check_same_settings(Communicator& ranks, const std::string& settings) {
  const std::string difference = first_difference(settings, ranks.text_from_root(settings));
  throw_first(ranks,
              difference.empty() ? ""
                                 : fmt::format("({}) was started with other flags than rank 0: {}",
                                               host(), difference),
              "start all ranks with the same command");
}

void check_same_model(Communicator& ranks, const Config& config, const nn::Model& model) {
  const bool same_build = has_roots_build(ranks);
  Config network = config;
  network.run = {};  // a CPU uses tf32 weights as fp32
  const std::string difference = config_difference(ranks, network);
  uint64_t weights = kHashStart;
  for (const nn::Param& param : model.params()) {
    weights = hash(param.value.view().data, param.value.view().bytes(), weights);
  }
  const bool same_weights = ranks.from_root(weights) == weights;
  std::string mine;
  if (!same_build) {
    mine = fmt::format("({}) runs another build of ridgeline than rank 0", host());
  } else if (!difference.empty() || !same_weights) {
    mine = fmt::format("({}) has loaded another model than rank 0{}", host(),
                       difference.empty() ? "" : ": " + difference);
  }
  throw_first(ranks, mine, "all ranks need the same build and model file");
}

void check_same_part(Communicator& ranks, const data::SampleSet& set) {
  const bool same = ranks.from_root(set.hash) == set.hash;
  throw_first(ranks,
              same ? "" : fmt::format("({}) has other data for {} than rank 0", host(), set.name),
              "all ranks need the same data, and the same command");
}

void check_replicas(Communicator& ranks, const Snapshot& mine, int64_t step) {
  std::vector<uint64_t> own;
  for (const Snapshot::Item& item : mine.items) {
    own.push_back(hash(item.value.view().data, item.value.view().bytes()));
  }
  std::vector<uint64_t> root = own;
  ranks.broadcast(root.data(), root.size() * sizeof(uint64_t));
  std::string difference;
  for (size_t i = 0; i < own.size() && difference.empty(); ++i) {
    if (own[i] == root[i]) continue;
    difference = fmt::format("({}) has drifted from rank 0: {} differs after step {}", host(),
                             mine.items[i].name, step);
  }
  throw_first(ranks, difference,
              "is a machine faulty, or are they of different kinds? Continue with --resume");
}

void share_snapshot(Communicator& ranks, Snapshot& snapshot) {
  for (Snapshot::Item& item : snapshot.items) {
    ranks.broadcast(item.value.view().data, item.value.view().bytes());
  }
}

int threads_of_rank(Communicator& ranks) {
  cpu_set_t own;
  CPU_ZERO(&own);
  ::sched_getaffinity(0, sizeof(own), &own);
  struct RankCpus {
    cpu_set_t cpus;
    char host[64];
  } mine{own, {}};
  host().copy(mine.host, sizeof(mine.host) - 1);
  std::vector<RankCpus> all(size_t(ranks.size()));
  ranks.all_gather(&mine, all.data(), sizeof(mine));
  int sharing = 0;
  for (const RankCpus& rank : all) {
    cpu_set_t both;
    CPU_AND(&both, &own, &rank.cpus);
    sharing += std::strcmp(rank.host, mine.host) == 0 && CPU_COUNT(&both) > 0;
  }
  return std::max(1, resolve_threads(0) / std::max(1, sharing));
}

}  // namespace ridgeline::engine
