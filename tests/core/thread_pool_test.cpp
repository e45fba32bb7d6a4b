#include "ridgeline/core/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "ridgeline/core/error.h"

namespace ridgeline {
namespace {

class ThreadPools : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPools, testing::Range(1, 9));

TEST_P(ThreadPools, RunEveryThreadOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  std::vector<std::atomic<int>> calls(size_t(pool.size()));
  std::vector<std::thread::id> ids(calls.size());
  pool.run([&](int thread) {
    ++calls[size_t(thread)];
    ids[size_t(thread)] = std::this_thread::get_id();
  });
  for (const auto& count : calls) EXPECT_EQ(count, 1);
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  for (size_t i = 1; i < ids.size(); ++i) EXPECT_NE(ids[i], ids[0]) << i;
}

// One region's plain (not atomic) writes are read in the next, by the caller and by other threads.
TEST_P(ThreadPools, ManyRegionsFollowEachOther) {
  constexpr int kRegions = 300;
  ThreadPool pool(GetParam());
  const int size = pool.size();
  std::vector<int> slot(size_t(size), 0);
  std::atomic<int> wrong = 0;
  for (int region = 0; region < kRegions; ++region) {
    pool.run([&](int thread) {
      // Thread t takes over the slot that its neighbour wrote in the region before.
      int& mine = slot[size_t((thread + region) % size)];
      if (mine != region) ++wrong;
      mine = region + 1;
    });
    for (const int value : slot) ASSERT_EQ(value, region + 1);
  }
  EXPECT_EQ(wrong, 0);
}

TEST_P(ThreadPools, BarrierOrdersWhatIsBeforeItAndAfter) {
  constexpr int kPhases = 100;
  ThreadPool pool(GetParam());
  std::vector<int> slot(size_t(pool.size()), 0);
  std::atomic<int> wrong = 0;
  pool.run([&](int thread) {
    for (int phase = 1; phase <= kPhases; ++phase) {
      slot[size_t(thread)] = phase;
      pool.barrier();
      for (const int value : slot) {
        if (value != phase) ++wrong;
      }
      pool.barrier();
    }
  });
  EXPECT_EQ(wrong, 0);
}

// Longer than the spin: the threads have gone to sleep and must wake, also in the barrier.
TEST_P(ThreadPools, SleepingThreadsWake) {
  using namespace std::chrono_literals;
  ThreadPool pool(GetParam());
  std::atomic<int> calls = 0, after = 0;
  for (int region = 0; region < 3; ++region) {
    std::this_thread::sleep_for(5ms);
    pool.run([&](int thread) {
      ++calls;
      if (thread == region % pool.size()) std::this_thread::sleep_for(5ms);
      pool.barrier();
      if (calls == (region + 1) * pool.size()) ++after;
    });
  }
  EXPECT_EQ(calls, 3 * pool.size());
  EXPECT_EQ(after, 3 * pool.size());
}

TEST_P(ThreadPools, MayEndUnused) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(GetParam());
}

TEST(ThreadPool, ZeroMeansTheCallerAlone) { EXPECT_EQ(ThreadPool(0).size(), 1); }

TEST(ThreadPool, TwoPoolsDoNotMix) {
  ThreadPool outer(3), inner(2);
  std::atomic<int> calls = 0;
  outer.run([&](int thread) {
    if (thread == 0) inner.run([&](int) { ++calls; });
  });
  EXPECT_EQ(calls, 2);
}

// A worker that shares its caller's processor moves to another one, and may still return.
TEST(ThreadPool, AWorkerOnItsCallersProcessorKeepsItsAffinityMask) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  ThreadPool pool(2);
  for (int i = 0; i < 100; ++i) {
    const int cpu = sched_getcpu();
    ASSERT_GE(cpu, 0);
    pool.run([&](int thread) {
      if (thread == 0) return;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(size_t(cpu), &one);
      sched_setaffinity(0, sizeof(one), &one);
      sched_setaffinity(0, sizeof(all), &all);
    });
    cpu_set_t now;
    CPU_ZERO(&now);
    pool.run([&](int thread) {
      if (thread == 1) sched_getaffinity(0, sizeof(now), &now);
    });
    EXPECT_TRUE(CPU_EQUAL(&now, &all));
  }
}

TEST(Split, CoversEverythingOnceInWholeGrains) {
  for (const int64_t count : {0, 1, 2, 7, 64, 1000, 1021}) {
    for (const int64_t grain : {1, 4, 16, 64}) {
      for (int threads = 1; threads <= 8; ++threads) {
        int64_t next = 0;
        for (int thread = 0; thread < threads; ++thread) {
          const Range range = split(count, thread, threads, grain);
          ASSERT_EQ(range.begin, next);
          ASSERT_LE(range.begin, range.end);
          if (range.end != count) {
            ASSERT_EQ(range.end % grain, 0);
          }
          // Even to one grain.
          ASSERT_LE(range.end - range.begin, (count / grain / threads + 1) * grain);
          next = range.end;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

class ResolveThreads : public testing::Test {
 protected:
  ResolveThreads() {
    if (const char* text = std::getenv(kName)) before_ = text;
    unsetenv(kName);
  }
  ~ResolveThreads() override {
    before_.empty() ? unsetenv(kName) : setenv(kName, before_.c_str(), 1);
  }
  static void set(const char* text) { setenv(kName, text, 1); }

 private:
  static constexpr const char* kName = "RIDGELINE_THREADS";
  std::string before_;
};

TEST_F(ResolveThreads, FlagThenEnvironmentThenMachine) {
  EXPECT_EQ(resolve_threads(0), available_threads());
  set("3");
  EXPECT_EQ(resolve_threads(0), 3);
  EXPECT_EQ(resolve_threads(5), 5);
  set("");
  EXPECT_EQ(resolve_threads(0), available_threads());
}

TEST_F(ResolveThreads, NonsenseIsAUsageErrorThatNamesItsSource) {
  const auto expect_usage = [](int requested, const char* source) {
    try {
      resolve_threads(requested);
      ADD_FAILURE() << source << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), testing::HasSubstr(source));
    }
  };
  expect_usage(-1, "--threads -1");
  expect_usage(4097, "--threads 4097");
  for (const char* text : {"0", "-2", "two", "2x", "1.5", "4097", "99999999999999999999"}) {
    set(text);
    expect_usage(0, (std::string("RIDGELINE_THREADS=") + text).c_str());
  }
}

TEST(AvailableThreads, RespectTheAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(available_threads(), 1);
  EXPECT_LE(available_threads(), CPU_COUNT(&before));
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const int count = available_threads();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(count, 1);
}

TEST(ThreadPool, ShareCoversEveryItemOnceAndLeavesSmallJobsToTheCaller) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 7, 64, 1000, 1001}) {
      std::vector<std::atomic<int>> seen(size_t(count) + 1);
      std::atomic<int> calls{0};
      pool.share(count, 16, 100, [&](Range part) {
        ++calls;
        for (int64_t i = part.begin; i < part.end; ++i) ++seen[size_t(i)];
      });
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(seen[size_t(i)], 1) << i << " of " << count;
      EXPECT_EQ(calls, count < 200 ? 1 : threads);
    }
  }
}

}  // namespace
}  // namespace ridgeline
