#include "ridgeline/core/thread_trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline {
namespace {

TEST(ThreadTrace, KeepsEachThreadsShareOfARegion) {
  ThreadPool pool(3), alone(1);
  pool.run([](int) {});  // not traced
  ThreadTrace trace;
  for (int region = 0; region < 2; ++region) {
    pool.run([&](int thread) {
      if (thread == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      pool.barrier();
    });
  }
  alone.run([](int) {});
  const auto spans = trace.take();
  ASSERT_EQ(spans.size(), 6u);
  int64_t waited = 0;
  int seen[3] = {};
  for (const ThreadSpan& span : spans) {
    ++seen[span.thread];
    const int64_t took = span.end - span.begin;
    EXPECT_GE(span.waited, 0);
    EXPECT_LE(span.waited, took);
    // The sleeper keeps the others waiting, not itself.
    if (span.thread == 1) {
      EXPECT_GE(took - span.waited, 4'000'000);
    } else {
      waited += span.waited;
    }
  }
  for (const int count : seen) EXPECT_EQ(count, 2);
  EXPECT_GT(waited, 0);
  EXPECT_TRUE(trace.take().empty());
}

TEST(ThreadTrace, EndsWithItsLife) {
  ThreadPool pool(2);
  { const ThreadTrace trace; }
  pool.run([](int) {});
  ThreadTrace next;
  EXPECT_TRUE(next.take().empty());
}

}  // namespace
}  // namespace ridgeline
