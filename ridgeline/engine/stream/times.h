#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "ridgeline/prof/timeline.h"

namespace ridgeline::engine {

// Seconds since the start of the root's process, on every rank: the ranks synchronise their clocks
// at one barrier, so they agree to within the time of a message.
class RunClock {
 public:
  RunClock();  // for a single process
  // `age_then` is the age of the root's process at the barrier that this rank has just left.
  explicit RunClock(double age_then);

  double now() const {
    return offset_ +
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  double started() const { return started_; }  // this process

  static double process_age();

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double offset_, started_;
};

// The times at which one device did its work. A negative time means never.
struct DeviceTimes {
  std::string device;
  double memory_ready = -1, engine_ready = -1;
  double first_in = -1, compute_start = -1, last_in = -1, compute_end = -1;
  double copying = 0, computing = 0, waiting = 0;  // seconds, of its thread
  int64_t chunks = 0, samples = 0;
};

struct ChunkSpan {
  int device = 0;  // of the rank; -1: decoding, by any of its threads; -2: in flight to the rank
  int64_t number = 0;
  double begin = 0, copied = 0, computed = 0, end = 0;  // in, computing until, results out until
};

// A rank of an inference run.
struct RankTimes {
  int rank = 0;
  std::string host;
  bool lost = false;
  double start = 0, results_out = -1;
  double decoding = 0;            // seconds, of all decoding threads
  double network = 0;             // seconds in which a message was in flight
  double sent = 0, received = 0;  // bytes
  std::vector<DeviceTimes> devices;
  std::vector<ChunkSpan> spans;  // if a trace is wanted; beyond a limit the latest are dropped

  std::string to_json(bool with_spans) const;
  static RankTimes from_json(const std::string& text);
};

// Returns the table for a terminal.
std::string to_table(const std::vector<RankTimes>& ranks);
void add_to_timeline(const std::vector<RankTimes>& ranks, prof::Timeline& timeline);

}  // namespace ridgeline::engine
