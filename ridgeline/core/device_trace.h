#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ridgeline {

// Records of what a GPU and its driver did. Times are seconds from one common zero.

// One launch of a GPU function.
struct LaunchRecord {
  std::string name;  // of the GPU function
  double begin = 0, end = 0;
  int stream = 0;
  int grid[3] = {}, block[3] = {};
  int registers = 0;     // a thread
  int64_t shared = 0;    // bytes a block
  double occupancy = 0;  // of an SM's threads, by these limits; 0: unknown
  const char* occupied_by =
      "";  // what limits it: "threads", "registers", "shared memory", "blocks"
};
struct CopyRecord {
  const char* kind = "";  // "to the GPU", "to the host", "on the GPU", "fill"
  double begin = 0, end = 0;
  int stream = 0;
  int64_t bytes = 0;
  bool pageable = false;  // the host side is pageable memory, which the driver copies once more
};
struct ApiRecord {
  std::string name;  // "cudaGraphLaunch"
  double begin = 0, end = 0;
  int thread = 0;  // counted from 0 in order of appearance
};

struct DeviceTrace {
  std::vector<LaunchRecord> launches;
  std::vector<CopyRecord> copies;
  std::vector<ApiRecord> calls;
};

// Records from its construction on. If it is made before a device is first used, it sees the
// start-up as well.
class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;
  virtual DeviceTrace take() = 0;       // records since the last take(); waits for the device
  virtual void pause(bool paused) = 0;  // while paused, work is neither recorded nor slowed
};

}  // namespace ridgeline
