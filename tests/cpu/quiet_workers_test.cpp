// The thread team that makes OpenMP's workers sleep between their tasks.
#include "ridgeline/cpu/onednn/quiet_workers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "ridgeline/cpu/onednn/kernels.h"

namespace ridgeline::cpu {
namespace {

int64_t threads_here() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST(QuietWorkers, AreHadOnceForTheProcessAndOnlyWhereProcessorsAreShort) {
  if (onednn_kernels().empty()) GTEST_SKIP() << "built without oneDNN";
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) {
    GTEST_SKIP() << "the environment says how OpenMP waits";
  }
  const int processors = int(std::thread::hardware_concurrency());
  quiet_workers(1);  // there is room for one of our threads and one of theirs
  quiet_workers(processors + 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (threads_here() <= processors && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const int64_t once = threads_here();
  EXPECT_GT(once, processors);  // the team and its keeper
  quiet_workers(processors + 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(threads_here(), once + 1);  // the team may have been incomplete
}

}  // namespace
}  // namespace ridgeline::cpu
