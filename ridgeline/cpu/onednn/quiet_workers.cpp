#include "ridgeline/cpu/onednn/quiet_workers.h"

#ifdef RIDGELINE_HAVE_ONEDNN

#include <omp.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "ridgeline/core/machine_limits.h"

namespace ridgeline::cpu {
namespace {

// A thread that has a team of its own and sleeps until the process ends.
class SleepingTeam {
 public:
  explicit SleepingTeam(int size)
      : keeper_([this, size] {
// The team stays with its thread. An empty region would be optimised away.
#pragma omp parallel num_threads(size)
          members_.fetch_add(1, std::memory_order_relaxed);
          std::unique_lock lock(mutex_);
          ended_.wait(lock, [this] { return end_; });
        }) {
  }
  ~SleepingTeam() {
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
    }
    ended_.notify_one();
    keeper_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::atomic<int> members_{0};
  std::thread keeper_;
};

// Starts no team if the system is short of threads or of memory for their stacks, because the team
// only saves time.
std::unique_ptr<SleepingTeam> make_team(int size) {
  constexpr int kSpare = 16;  // threads left for others
  if (address_space_is_limited()) return nullptr;
  if (obtainable_threads(size + kSpare) < size + kSpare) return nullptr;
  try {
    return std::make_unique<SleepingTeam>(size);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

}  // namespace

void quiet_workers(int threads) {
  const int processors = omp_get_num_procs();
  if (2 * threads - 1 <= processors) return;
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  static const std::unique_ptr<SleepingTeam> team = make_team(processors + 1);
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {

void quiet_workers(int) {}  // no OpenMP

}  // namespace ridgeline::cpu

#endif
