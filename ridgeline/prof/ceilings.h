#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/core/precision.h"
#include "ridgeline/core/thread_pool.h"

namespace ridgeline::prof {

// Copy rate of buffers that together take `bytes`: the caches are faster than memory.
struct Bandwidth {
  double bytes = 0;
  double rate = 0;  // bytes read and written a second
};

// What this machine can do at best, as measured: on a CPU multiply-adds in registers with all
// threads of a pool together, on a GPU its best large product.
struct Ceilings {
  double fp32_flops = 0, fp64_flops = 0;  // a multiply-add is two flops
  double tf32_flops = 0;                  // GPUs only; 0: none
  double half_flops = 0;                  // GPUs: bf16 and fp16; CPUs: bf16; 0: no unit for them
  std::vector<Bandwidth> bandwidths;      // by growing size; the last is main memory
  // What keeps short work from its rates; 0: not measured, or nothing of the kind.
  double launch_seconds = 0;     // GPUs: the shortest launch, from one to the next in a graph
  double region_seconds = 0;     // CPUs: an empty parallel region of all threads
  double host_bandwidth = 0;     // GPUs: to and from the host's pinned memory, mean
  double network_bandwidth = 0;  // bytes a second between ranks
  int threads = 0;               // 0: a GPU
  std::string machine;           // Runtime::fingerprint() of the machine measured
  std::string date;              // UTC, "2026-01-31"
  // Whether several tries agreed on each figure. On a busy machine they do not, or there is no time
  // for several: the figures are then measured again by the next run.
  bool certain = true;

  std::string when() const;                      // "2026-01-31", and that it is uncertain if it is
  double flops(Precision precision) const;       // of the units that precision computes on
  double bandwidth(double working_bytes) const;  // of the smallest measured size that holds it
  double memory_bandwidth() const;
};

struct Rate {
  double value = 0;
  bool certain = false;  // several tries agreed on it
};

// Units of work a second: the best of `tries` that each do as many units as take about
// `try_seconds`, found by doubling `first`. Ends early, with the best so far, when all tries
// together have taken `most_seconds`. `seconds_of` does that many units and says how long they
// took.
Rate best_rate(const std::function<double(int64_t)>& seconds_of, int tries, double try_seconds,
               double most_seconds, int64_t first = 1);

// The best of several short tries, because neighbours only ever slow one down. Takes at most
// `most_seconds`, however busy the machine is.
using Measuring = std::function<void()>;  // called before each figure
Ceilings measure_ceilings(ThreadPool& pool, const std::string& machine,
                          const Measuring& measuring = {}, double most_seconds = 1);

// A file kept from an earlier measurement. Empty when there is none, or it is damaged, of another
// version or of another machine.
std::optional<Ceilings> read_ceilings(const std::filesystem::path& file,
                                      const std::string& machine);
// A file that cannot be written is no error: the next run measures again.
void keep_ceilings(const std::filesystem::path& file, const Ceilings& ceilings);

std::string today();  // UTC, "2026-01-31"

// From `file`, else measured and kept there (a folder that cannot be written is not an error). A
// kept figure that is uncertain, or that a glance shows to be too low, because the machine was busy
// when it was taken, is measured again, and the better of old and new is kept. `again` measures
// anyway.
Ceilings ceilings_of(ThreadPool& pool, const std::string& machine,
                     const std::filesystem::path& file, bool again = false,
                     const Measuring& measuring = {});

}  // namespace ridgeline::prof
