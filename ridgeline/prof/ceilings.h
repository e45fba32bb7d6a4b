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
  double rate = 0;  // bytes read and written per second
};

// The best rates of this machine, as measured: on a CPU multiply-adds in registers with all threads
// of a pool together, on a GPU its best large product.
struct Ceilings {
  double fp32_flops = 0, fp64_flops = 0;  // a multiply-add is two flops
  double tf32_flops = 0;                  // GPUs only; 0: none
  double half_flops = 0;                  // GPUs: bf16 and fp16; CPUs: bf16; 0: no such unit
  std::vector<Bandwidth> bandwidths;      // by growing size; the last is main memory
  // Overheads of short work; 0: not measured, or not applicable.
  double launch_seconds = 0;     // GPUs: the shortest launch, from one to the next in a graph
  double region_seconds = 0;     // CPUs: an empty parallel region of all threads
  double host_bandwidth = 0;     // GPUs: to and from the host's pinned memory, mean
  double network_bandwidth = 0;  // bytes per second between ranks
  int threads = 0;               // 0: a GPU
  std::string machine;           // Runtime::fingerprint() of the machine measured
  std::string date;              // UTC, "2026-01-31"
  // Whether several tries agreed on each value. On a busy machine they do not, or there is no time
  // for several; a run after ten minutes then measures again.
  bool certain = true;

  std::string when() const;                      // "2026-01-31", and a remark if it is uncertain
  double flops(Precision precision) const;       // of the units for that precision
  double bandwidth(double working_bytes) const;  // of the smallest measured size that holds it
  double memory_bandwidth() const;
};

struct Rate {
  double value = 0;
  bool certain = false;  // several tries agreed on it
};

// Returns units of work per second: the best of `tries` that each do as many units as take about
// `try_seconds`, found by doubling `first`. Ends early, with the best so far, once all tries
// together have taken `most_seconds`. `seconds_of` does that many units and returns how long they
// took.
Rate best_rate(const std::function<double(int64_t)>& seconds_of, int tries, double try_seconds,
               double most_seconds, int64_t first = 1);

// Measures with the best of several short tries, because other processes can only slow one down.
// Takes at most `most_seconds`, however busy the machine is.
using Measuring = std::function<void()>;  // called before each measurement
Ceilings measure_ceilings(ThreadPool& pool, const std::string& machine,
                          const Measuring& measuring = {}, double most_seconds = 1);

// Reads a file kept from an earlier measurement. Empty if it is missing, damaged, of another
// version or of another machine.
std::optional<Ceilings> read_ceilings(const std::filesystem::path& file,
                                      const std::string& machine);
// A file that cannot be written is no error: the next run measures again.
void keep_ceilings(const std::filesystem::path& file, const Ceilings& ceilings);

std::string today();  // UTC, "2026-01-31"

// Reads `file`, else measures and keeps the result there (a folder that cannot be written is no
// error). Kept values that are uncertain and ten minutes old, or that a quick check shows to be too
// low because the machine was busy, are measured again, and the better of old and new is kept.
// `again` measures anyway.
Ceilings ceilings_of(ThreadPool& pool, const std::string& machine,
                     const std::filesystem::path& file, bool again = false,
                     const Measuring& measuring = {});

}  // namespace ridgeline::prof
