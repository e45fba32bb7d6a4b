#include "ridgeline/serve/batcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <semaphore>
#include <stdexcept>

namespace ridgeline::serve {
namespace {

// Each output is its sample plus one; a sample of 99 simulates a device fault.
class PlusOne final : public Engine {
 public:
  explicit PlusOne(std::atomic<int>& inside) : inside_(inside) {}
  int64_t most() const override { return 4; }
  int64_t width() const override { return 1; }
  void run(std::span<const uint8_t> samples, int64_t count, std::span<float> outputs) override {
    EXPECT_LE(count, 4);
    EXPECT_EQ(outputs.size(), size_t(count));
    EXPECT_EQ(inside_.fetch_add(1), 0) << "two threads in one engine";
    for (size_t i = 0; i < samples.size(); ++i) {
      if (samples[i] == 99) {
        inside_.fetch_sub(1);
        throw std::runtime_error("device lost");
      }
      outputs[i] = float(samples[i]) + 1;
    }
    inside_.fetch_sub(1);
  }

 private:
  std::atomic<int>& inside_;
};

struct TestJob final : Job {
  explicit TestJob(std::vector<uint8_t> values) {
    samples = std::move(values);
    count = int64_t(samples.size());
  }
  void computed() noexcept override { done.release(); }
  std::counting_semaphore<> done{0};
};

// Submits like the thread of a connection.
Batcher::Accepted submit(Batcher& batcher, Job& job) {
  const Batcher::Accepted accepted = batcher.submit(job);
  Job* jobs[] = {&job};
  if (accepted == Batcher::Accepted::by_caller) batcher.compute(jobs, 0);
  return accepted;
}

void expect_plus_one(const TestJob& job) {
  EXPECT_EQ(job.error, "");
  ASSERT_EQ(job.outputs.size(), job.samples.size());
  for (size_t i = 0; i < job.samples.size(); ++i) {
    EXPECT_EQ(job.outputs[i], float(job.samples[i]) + 1);
  }
}

class BatcherTest : public ::testing::Test {
 protected:
  std::unique_ptr<Batcher> make(const BatchOptions& options) {
    return std::make_unique<Batcher>([this](int) { return std::make_unique<PlusOne>(inside_); },
                                     options, metrics_);
  }
  std::atomic<int> inside_{0};
  std::shared_ptr<ModelMetrics> metrics_ = std::make_shared<ModelMetrics>();
};

TEST_F(BatcherTest, JobsThatWaitShareALaunch) {
  BatchOptions options;
  options.max_delay = std::chrono::seconds(20);  // a full launch does not wait for it
  const auto batcher = make(options);
  TestJob a({1, 2}), b({3}), c({4});
  for (TestJob* job : {&a, &b, &c}) EXPECT_EQ(batcher->submit(*job), Batcher::Accepted::queued);
  for (TestJob* job : {&a, &b, &c}) {
    job->done.acquire();
    expect_plus_one(*job);
    EXPECT_EQ(job->batch, 4);
  }
  EXPECT_EQ(metrics_->batches.load(), 1u);
  EXPECT_EQ(metrics_->waiting.load(), 0);
}

TEST_F(BatcherTest, LargeJobsAreCut) {
  const auto batcher = make({});
  std::vector<uint8_t> values(37);
  for (size_t i = 0; i < values.size(); ++i) values[i] = uint8_t(i);
  TestJob job(values);
  EXPECT_EQ(batcher->submit(job), Batcher::Accepted::queued);
  job.done.acquire();
  expect_plus_one(job);
}

TEST_F(BatcherTest, AFullQueueTurnsJobsAway) {
  BatchOptions options;
  options.queue.most_waiting = 2;
  options.inline_limit = std::chrono::seconds(5);  // nothing is computed before compute()
  const auto batcher = make(options);
  TestJob a({1}), b({2}), c({3});
  EXPECT_EQ(batcher->submit(a), Batcher::Accepted::by_caller);
  EXPECT_EQ(batcher->submit(b), Batcher::Accepted::by_caller);
  EXPECT_EQ(batcher->submit(c), Batcher::Accepted::no);
  Job* jobs[] = {&a, &b};
  batcher->compute(jobs, 0);
  for (TestJob* job : {&a, &b}) {
    job->done.acquire();
    expect_plus_one(*job);
    EXPECT_EQ(job->batch, 2);
  }
  EXPECT_EQ(submit(*batcher, c), Batcher::Accepted::by_caller);
  c.done.acquire();
}

// An engine that signals when it computes and waits until it is released.
class Slow final : public Engine {
 public:
  Slow(std::counting_semaphore<>& began, std::counting_semaphore<>& go, std::vector<uint8_t>& order)
      : began_(began), go_(go), order_(order) {}
  int64_t most() const override { return 2; }
  int64_t width() const override { return 1; }
  void run(std::span<const uint8_t> samples, int64_t, std::span<float> outputs) override {
    began_.release();
    go_.acquire();
    order_.insert(order_.end(), samples.begin(), samples.end());
    std::ranges::fill(outputs, 0.0f);
  }

 private:
  std::counting_semaphore<>&began_, &go_;
  std::vector<uint8_t>& order_;
};

class QueueTest : public ::testing::Test {
 protected:
  QueueTest() {
    BatchOptions options;
    options.inline_limit = options.inline_limit.zero();
    batcher_ = std::make_unique<Batcher>(
        [this](int) { return std::make_unique<Slow>(began_, go_, order_); }, options, metrics_);
  }
  // Keeps the engine busy, so that later requests wait.
  void block() {
    ASSERT_EQ(batcher_->submit(first_), Batcher::Accepted::queued);
    began_.acquire();
  }
  std::counting_semaphore<> began_{0}, go_{0};
  std::vector<uint8_t> order_;
  std::shared_ptr<ModelMetrics> metrics_ = std::make_shared<ModelMetrics>();
  TestJob first_{{0}};
  std::unique_ptr<Batcher> batcher_;
};

TEST_F(QueueTest, PrioritiesGoFirst) {
  block();
  TestJob low({1, 1}), normal({2, 2}), high({3, 3}), again({4, 4});
  low.priority = Priority::low;
  high.priority = Priority::high;
  for (TestJob* job : {&low, &normal, &high, &again}) {
    EXPECT_EQ(batcher_->submit(*job), Batcher::Accepted::queued);
  }
  EXPECT_EQ(metrics_->waiting.load(), 4);
  go_.release(5);
  for (TestJob* job : {&first_, &low, &normal, &high, &again}) job->done.acquire();
  EXPECT_EQ(order_, (std::vector<uint8_t>{0, 3, 3, 2, 2, 4, 4, 1, 1}));
}

TEST_F(QueueTest, AbandonedRequestsAreNotComputed) {
  block();
  TestJob left({1}), late({2}), good({3});
  late.deadline = Clock::now();
  for (TestJob* job : {&left, &late, &good}) {
    EXPECT_EQ(batcher_->submit(*job), Batcher::Accepted::queued);
  }
  left.abandoned = true;
  go_.release(2);
  for (TestJob* job : {&first_, &left, &late, &good}) job->done.acquire();
  EXPECT_EQ(order_, (std::vector<uint8_t>{0, 3}));
  EXPECT_TRUE(left.overloaded && late.overloaded);
  EXPECT_EQ(good.error, "");
  EXPECT_EQ(metrics_->abandoned.load(), 1u);
  EXPECT_EQ(metrics_->expired.load(), 1u);
  EXPECT_EQ(metrics_->waiting.load(), 0);
}

TEST_F(BatcherTest, AFaultIsReportedOnlyToItsOwnLaunch) {
  const auto batcher = make({});
  TestJob bad({99}), good({1});
  submit(*batcher, bad);
  bad.done.acquire();
  EXPECT_NE(bad.error, "");
  submit(*batcher, good);
  good.done.acquire();
  expect_plus_one(good);
}

TEST_F(BatcherTest, AnExceptionAtTheStartOfAnEngineIsPassedOn) {
  const auto broken = [](int) -> std::unique_ptr<Engine> { throw std::runtime_error("no device"); };
  EXPECT_THROW(Batcher(broken, {}, metrics_), std::runtime_error);
}

// Threads of connections that compute, threads of engines, and large jobs among small ones: every
// job is computed.
TEST_F(BatcherTest, NoJobIsForgotten) {
  for (const bool inlined : {true, false}) {
    BatchOptions options;
    options.inline_limit = inlined ? std::chrono::seconds(5) : std::chrono::seconds(0);
    const auto batcher = make(options);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 400; ++i) {
          TestJob job(
              std::vector<uint8_t>(size_t(i % 50 == 0 ? 9 : 1 + i % 3), uint8_t(t * 20 + i % 20)));
          submit(*batcher, job);
          ASSERT_TRUE(job.done.try_acquire_for(std::chrono::seconds(60)));
          expect_plus_one(job);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(metrics_->waiting.load(), 0);
  }
}

}  // namespace
}  // namespace ridgeline::serve
