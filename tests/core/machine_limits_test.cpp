#include "ridgeline/core/machine_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

// Returns the result of `f` in a child process, under a limit that is set there.
int in_child(int which, rlim_t limit, const std::function<int()>& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit both{limit, limit};
    ::_exit(::setrlimit(decltype(RLIMIT_AS)(which), &both) == 0 ? f() : 100);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
}

// The address-space limit that leaves `more` bytes to this process; not usable with a sanitizer.
[[maybe_unused]] rlim_t beyond_now(size_t more) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return rlim_t(pages) * rlim_t(::sysconf(_SC_PAGESIZE)) + rlim_t(more);
}

TEST(MachineLimits, ThreadsAreThereWithoutLimits) {
  EXPECT_EQ(obtainable_threads(0), 0);
  EXPECT_EQ(obtainable_threads(5), 5);
  EXPECT_EQ(obtainable_threads(3, size_t{1} << 20), 3);
  EXPECT_EQ(affordable_threads(1), 1);
  EXPECT_EQ(affordable_threads(4), 4);
  EXPECT_TRUE(has_address_space(size_t{1} << 46));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// Stacks of 64 MiB in 256 MiB: some fit, not all.
TEST(MachineLimits, StacksThatDoNotFitMakeFewerThreads) {
  const auto few = [] { return obtainable_threads(20, size_t{64} << 20); };
  const int given = in_child(RLIMIT_AS, beyond_now(size_t{256} << 20), few);
  EXPECT_GE(given, 1);
  EXPECT_LE(given, 4);
  EXPECT_EQ(
      in_child(RLIMIT_AS, beyond_now(size_t{256} << 20), [] { return affordable_threads(200); }), 1)
      << "a quarter of it for stacks of 8 MiB";
}

TEST(MachineLimits, AddressSpaceIsAskedForWithoutTakingIt) {
  const auto fits = [](size_t bytes) {
    return in_child(RLIMIT_AS, beyond_now(size_t{256} << 20), [bytes] {
      // Repeatedly, to check that nothing is kept.
      bool all = address_space_is_limited();
      for (int i = 0; i < 20; ++i) all = all && has_address_space(bytes);
      return int(all);
    });
  };
  EXPECT_EQ(fits(size_t{64} << 20), 1);
  EXPECT_EQ(fits(size_t{512} << 20), 0);
}

#endif

TEST(MachineLimits, RefusedThreadsAreCounted) {
  if (::geteuid() != 0) GTEST_SKIP() << "to be a user without other threads needs root";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer has a thread of its own";
#endif
  const auto as_nobody = [](rlim_t limit, const std::function<int()>& f) {
    return in_child(RLIMIT_NPROC, limit, [&f] {
      constexpr uid_t kNobody = 54322;
      return ::setuid(kNobody) == 0 ? f() : 100;
    });
  };
  // The process itself counts as one.
  EXPECT_EQ(as_nobody(6, [] { return obtainable_threads(20); }), 5);
  EXPECT_EQ(as_nobody(6,
                      [] {
                        obtainable_threads(20);
                        return obtainable_threads(5);  // the earlier threads are gone
                      }),
            5);
  EXPECT_EQ(as_nobody(1, [] { return affordable_threads(8); }), 1);
  // Eight are left to others, and half of the rest to OpenMP.
  EXPECT_EQ(as_nobody(15, [] { return affordable_threads(8); }), 4);
  EXPECT_EQ(as_nobody(23, [] { return affordable_threads(8); }), 8);
  EXPECT_EQ(as_nobody(15, [] { return ThreadPool(affordable_threads(8)).size(); }), 4);
}

// Folders that look like /proc and /sys/fs/cgroup.
class CpuQuota : public ::testing::Test {
 protected:
  CpuQuota() {
    std::string pattern = (fs::temp_directory_path() / "ridgeline-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~CpuQuota() override { fs::remove_all(folder_); }

  void put(const fs::path& file, const std::string& text) const {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }
  double quota() const { return cpu_quota({folder_ / "proc", folder_ / "cgroup"}); }

  fs::path folder_;
};

TEST_F(CpuQuota, IsInfiniteWithoutAny) {
  EXPECT_TRUE(std::isinf(quota()));
  put("proc/self/cgroup", "0::/a/b\n");
  put("cgroup/cpu.max", "max 100000\n");
  put("cgroup/a/b/cpu.max", "no number at all\n");
  EXPECT_TRUE(std::isinf(quota()));
}

TEST_F(CpuQuota, IsTheLeastOfTheGroupAndThoseAbove) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("cgroup/a/b/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
  put("cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  put("cgroup/cpu.max", "50000 100000\n");  // a container sees itself at the top
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CpuQuota, ReadsTheFirstVersionToo) {
  put("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/a\n0::/\n");
  put("cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n");
  put("cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3);
  put("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3);
  put("cgroup/cpu/a/cpu.cfs_quota_us", "100000\n");
  put("cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 1);
}

}  // namespace
}  // namespace ridgeline
