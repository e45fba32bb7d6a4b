#include "ridgeline/core/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <set>
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

// On a busy machine fewer system threads take the parts of all threads. A region of these computes
// the same, barrier by barrier; the parts of a system thread begin and end at different times.
TEST_P(ThreadPools, FewerRunnersComputeTheSame) {
  ThreadPool pool(GetParam());
  const int size = pool.size();
  for (const int runners : {1, 2, size - 1, size, 1}) {
    if (runners < 1 || runners > size) continue;
    if (!pool.set_runners(runners)) GTEST_SKIP() << "this build does not switch stacks";
    ASSERT_EQ(pool.runners(), runners);
    std::vector<int> slot(size_t(size), 0);
    std::vector<std::thread::id> ids(slot.size());
    std::atomic<int> wrong = 0, ended = 0;
    for (int region = 0; region < 20; ++region) {
      pool.run([&](int thread) {
        ids[size_t(thread)] = std::this_thread::get_id();
        for (int phase = 1; phase <= region; ++phase) {
          slot[size_t(thread)] = phase;
          pool.barrier();
          for (const int value : slot) wrong += value != phase;
          pool.barrier();
        }
        ++ended;
      });
      ASSERT_EQ(ended, (region + 1) * size);
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(int(std::set(ids.begin(), ids.end()).size()), runners);
    EXPECT_EQ(ids[0], std::this_thread::get_id());
  }
}

// A thread that waits for another without a barrier lets the others of its system thread go on.
TEST_P(ThreadPools, YieldLetsTheOthersGoOn) {
  ThreadPool pool(GetParam());
  for (const int runners : {1, 2, pool.size()}) {
    if (runners > pool.size()) continue;
    if (!pool.set_runners(runners)) GTEST_SKIP() << "this build does not switch stacks";
    std::atomic<int> next = pool.size() - 1;  // the last thread is the first to be allowed
    pool.run([&](int thread) {
      while (next != thread) pool.yield();
      --next;
      pool.barrier();
    });
    EXPECT_EQ(next, -1);
  }
}

// The rounding mode, like any state of a system thread, is that of the part that set it.
TEST(ThreadPool, PartsOfARunnerKeepTheirFloatingPointState) {
  ThreadPool pool(3);
  if (!pool.set_runners(1)) GTEST_SKIP() << "this build does not switch stacks";
  const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TONEAREST};
  int wrong = 0;
  pool.run([&](int thread) {
    std::fesetround(modes[thread]);
    for (int i = 0; i < 3; ++i) {
      pool.barrier();
      wrong += std::fegetround() != modes[thread];
    }
    std::fesetround(FE_TONEAREST);
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

// A region inside a part of a region of another pool, both with fewer runners.
TEST(ThreadPool, RunnersOfTwoPoolsDoNotMix) {
  ThreadPool outer(3), inner(2);
  if (!outer.set_runners(1) || !inner.set_runners(1)) GTEST_SKIP();
  std::atomic<int> calls = 0;
  outer.run([&](int) {
    outer.barrier();
    inner.run([&](int) {
      inner.barrier();
      ++calls;
    });
    outer.barrier();
  });
  EXPECT_EQ(calls, 6);
}

// A worker that shares its processor with a busy thread holds its caller up; the caller then runs
// the regions alone, each in much less than a slice of the scheduler's time.
TEST(ThreadPool, ACallerDoesNotWaitForAWorkerWithoutAProcessor) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "wants two processors";
  if (access("/proc/self/schedstat", R_OK) != 0) GTEST_SKIP() << "the system counts no delays";
  ThreadPool watched(2);
  if (!ThreadPool(2).set_runners(1)) GTEST_SKIP() << "this build does not switch stacks";
  int cpu = 0;
  while (!CPU_ISSET(size_t(cpu), &all)) ++cpu;
  cpu_set_t one, others = all;
  CPU_ZERO(&one);
  CPU_SET(size_t(cpu), &one);
  CPU_CLR(size_t(cpu), &others);
  watched.run([&](int thread) { sched_setaffinity(0, sizeof(one), thread == 0 ? &others : &one); });
  std::atomic<bool> end = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back([&] {
      sched_setaffinity(0, sizeof(one), &one);
      while (!end) {
      }
    });
  }
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  bool alone = false;
  while (!alone && Clock::now() < deadline) {
    watched.run([&](int) { watched.barrier(); });
    alone = watched.runners() == 1;
  }
  end = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_TRUE(alone);
  // Without others it takes its worker back.
  const auto again = Clock::now() + std::chrono::seconds(20);
  while (watched.runners() == 1 && Clock::now() < again)
    watched.run([&](int) { watched.barrier(); });
  EXPECT_EQ(watched.runners(), 2);
  sched_setaffinity(0, sizeof(all), &all);
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
