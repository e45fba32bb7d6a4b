#include "ridgeline/engine/profile/program_use.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace ridgeline::engine {
namespace {

double seconds_of(const timeval& time) { return double(time.tv_sec) + 1e-6 * double(time.tv_usec); }

// Returns the seconds since the system started this process, in its clock ticks of 10 ms; 0:
// unknown.
double elapsed_seconds() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The name in parentheses may contain spaces; the start time is the twentieth field after it.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  timespec now{};
  const long ticks = sysconf(_SC_CLK_TCK);
  if (!fields || ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double begin = std::stod(field) / double(ticks);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec) - begin;
}

}  // namespace

ProgramUse program_use() {
  ProgramUse use;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    use.user = seconds_of(usage.ru_utime);
    use.system = seconds_of(usage.ru_stime);
    use.peak_bytes = int64_t{usage.ru_maxrss} * 1024;  // Linux counts in KiB
  }
  use.elapsed = elapsed_seconds();
  return use;
}

}  // namespace ridgeline::engine
