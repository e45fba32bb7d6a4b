#include "ridgeline/serve/job_queue.h"

#include <ctime>

namespace ridgeline::serve {

void JobQueue::List::add(Job* job) {
  job->next = nullptr;
  (last != nullptr ? last->next : first) = job;
  last = job;
}

Job* JobQueue::List::pop() {
  Job* const job = first;
  first = job->next;
  if (first == nullptr) last = nullptr;
  job->next = nullptr;
  return job;
}

JobQueue::JobQueue(const Limits& limits, std::shared_ptr<ModelMetrics> metrics)
    : limits_(limits), metrics_(std::move(metrics)) {
  ::sem_init(&signal_, 0, 0);
}
JobQueue::~JobQueue() { ::sem_destroy(&signal_); }

bool JobQueue::admit(const Job& job) {
  const int64_t before = jobs_.fetch_add(1, std::memory_order_relaxed);
  const size_t bytes = bytes_.fetch_add(job.samples.size(), std::memory_order_relaxed);
  if (before >= limits_.most_waiting ||
      (before > 0 && bytes + job.samples.size() > limits_.most_bytes)) {
    jobs_.fetch_sub(1, std::memory_order_relaxed);
    bytes_.fetch_sub(job.samples.size(), std::memory_order_relaxed);
    return false;
  }
  metrics_->waiting.fetch_add(1, std::memory_order_relaxed);
  metrics_->waiting_samples.fetch_add(job.count, std::memory_order_relaxed);
  return true;
}

void JobQueue::leave(const Job& job) {
  jobs_.fetch_sub(1, std::memory_order_relaxed);
  bytes_.fetch_sub(job.samples.size(), std::memory_order_relaxed);
  metrics_->waiting.fetch_sub(1, std::memory_order_relaxed);
  metrics_->waiting_samples.fetch_sub(job.count, std::memory_order_relaxed);
}

void JobQueue::push(Job& job) {
  const int64_t count = job.count;  // the job may be destroyed as soon as it is queued
  std::atomic<Job*>& top = incoming_[size_t(job.priority)];
  samples_.fetch_add(count);
  job.next = top.load(std::memory_order_relaxed);
  while (!top.compare_exchange_weak(job.next, &job)) {
  }
  wake();
}

// One signal is enough for any number of jobs: a thread that leaves some behind signals again.
void JobQueue::wake() {
  if (!awake_.exchange(true)) ::sem_post(&signal_);
}

void JobQueue::stop() {
  stop_ = true;
  ::sem_post(&signal_);
}

bool JobQueue::wait(int64_t most, std::chrono::microseconds max_delay) {
  for (;;) {
    while (::sem_wait(&signal_) != 0) {  // a signal handler ran
    }
    awake_ = false;
    if (stop_) ::sem_post(&signal_);  // for the other threads
    if (samples_.load() <= 0) {
      if (stop_) return false;
      continue;
    }
    if (max_delay.count() == 0 || stop_) return true;
    const std::scoped_lock lock(taking_);
    sort_in();
    Clock::time_point oldest = Clock::time_point::max();
    for (const List& list : waiting_) {
      if (list.first != nullptr) oldest = std::min(oldest, list.first->queued);
    }
    if (oldest == Clock::time_point::max()) continue;
    timespec until{};
    const auto wanted = (oldest + max_delay).time_since_epoch();
    const auto whole = std::chrono::floor<std::chrono::seconds>(wanted);
    until.tv_sec = whole.count();
    until.tv_nsec = std::chrono::nanoseconds(wanted - whole).count();
    while (samples_.load() < most && Clock::now() < oldest + max_delay && !stop_) {
      if (::sem_clockwait(&signal_, CLOCK_MONOTONIC, &until) == 0) awake_ = false;
      if (stop_) ::sem_post(&signal_);
    }
    return true;
  }
}

// Moves new jobs to the ends of their lists, the oldest first.
void JobQueue::sort_in() {
  for (size_t level = 0; level < kPriorities; ++level) {
    Job* newest = incoming_[level].exchange(nullptr);
    Job* oldest = nullptr;
    while (newest != nullptr) {
      Job* const older = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = older;
    }
    while (oldest != nullptr) {
      Job* const newer = oldest->next;
      waiting_[level].add(oldest);
      oldest = newer;
    }
  }
}

JobQueue::Taken JobQueue::take(int64_t most) {
  List jobs, dropped;
  {
    const std::scoped_lock lock(taking_);
    sort_in();
    const auto now = Clock::now();
    int64_t count = 0;
    bool full = false;
    for (List& list : waiting_) {
      while (!full && list.first != nullptr) {
        Job* const job = list.first;
        const bool unwanted = job->abandoned || now > job->deadline;
        if (!unwanted && count > 0 && count + job->count > most) {
          full = true;
          break;
        }
        if (!unwanted) count += job->count;
        (unwanted ? dropped : jobs).add(list.pop());
        samples_.fetch_sub(job->count);
      }
    }
  }
  if (samples_.load() > 0) wake();
  for (const List* list : {&jobs, &dropped}) {
    for (const Job* job = list->first; job != nullptr; job = job->next) leave(*job);
  }
  return {jobs.first, dropped.first};
}

}  // namespace ridgeline::serve
