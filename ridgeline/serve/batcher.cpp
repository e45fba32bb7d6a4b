#include "ridgeline/serve/batcher.h"

#include <algorithm>
#include <exception>

#include "ridgeline/core/error.h"
#include "ridgeline/core/failure.h"

namespace ridgeline::serve {
namespace {

void fail(Job& job, std::string_view why) noexcept {
  try {
    job.error = why;
  } catch (const std::bad_alloc&) {
    job.error = "out of memory";  // so short that it needs none
  }
}

// Never empty.
std::string reason(const std::exception& error) noexcept {
  try {
    std::string why = failure_of(error).message;
    return why.empty() ? "unknown" : why;
  } catch (const std::bad_alloc&) {
    return "out of memory";
  }
}

}  // namespace

Batcher::Batcher(const MakeEngine& make, const BatchOptions& options,
                 std::shared_ptr<ModelMetrics> metrics)
    : options_(options), metrics_(std::move(metrics)), queue_(options.queue, metrics_) {
  try {
    // Engines start one after another, because each measures its kernels on an idle machine.
    start(make);
    most_ = instances_.front()->engine->most();
    choose_inline();
    const int automatic = inlined_ ? std::max(1, options.io_threads) : 1;
    const auto wanted = size_t(options.instances > 0 ? options.instances : automatic);
    while (instances_.size() < wanted) start(make);
  } catch (...) {
    stop();
    throw;
  }
}

void Batcher::start(const MakeEngine& make) {
  const size_t index = instances_.size();
  instances_.push_back(std::make_unique<Instance>());
  Instance& instance = *instances_.back();
  instance.thread = std::thread([this, &instance, &make, index] {
    try {
      instance.engine = make(int(index));
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
      started_.notify_all();
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      ++ready_;
      started_.notify_all();
    }
    work(instance);
  });
  std::unique_lock lock(mutex_);
  started_.wait(lock, [&] { return failure_ || ready_ == index + 1; });
  if (failure_) std::rethrow_exception(failure_);
}

// Times a launch on samples of zeros, after a warm-up.
void Batcher::choose_inline() {
  if (options_.inline_limit.count() == 0 || options_.max_delay.count() > 0) return;
  Instance& instance = *instances_.front();
  if (!acquire(instance)) return;
  try {
    // Without samples an engine computes on its memory, which is initially zero.
    std::vector<float> outputs(size_t(most_ * instance.engine->width()));
    Clock::duration best = Clock::duration::max();
    for (int i = 0; i < 3; ++i) {
      const auto begin = Clock::now();
      instance.engine->run({}, most_, outputs);
      best = std::min(best, Clock::now() - begin);
    }
    inlined_ = best < options_.inline_limit;
  } catch (...) {
    release(instance);
    throw;
  }
  release(instance);
}

Batcher::~Batcher() { stop(); }

void Batcher::stop() {
  queue_.stop();
  for (const auto& instance : instances_) {
    if (instance->thread.joinable()) instance->thread.join();
  }
}

void Batcher::release(Instance& instance) {
  instance.busy.store(false);
  instance.busy.notify_one();
}

Batcher::Accepted Batcher::submit(Job& job) {
  job.next = nullptr;
  job.error.clear();
  job.overloaded = false;
  job.queued = Clock::now();
  if (!queue_.admit(job)) return Accepted::no;
  // A large job would block the thread's other connections.
  if (inlined_ && job.count <= most_) return Accepted::by_caller;
  queue_.push(job);
  return Accepted::queued;
}

void Batcher::work(Instance& instance) {
  while (queue_.wait(instance.engine->most(), options_.max_delay)) {
    while (!acquire(instance)) instance.busy.wait(true);
    const auto [jobs, dropped] = queue_.take(instance.engine->most());
    if (jobs != nullptr) launch(instance, jobs);
    release(instance);
    drop(dropped);
  }
}

Batcher::Instance* Batcher::acquire_any(size_t first) {
  for (size_t i = 0; i < instances_.size(); ++i) {
    Instance& instance = *instances_[(first + i) % instances_.size()];
    if (acquire(instance)) return &instance;
  }
  return nullptr;
}

void Batcher::compute(std::span<Job*> jobs, size_t thread) {
  Instance* const instance = acquire_any(thread);
  if (instance == nullptr) {  // another thread will compute it
    for (Job* job : jobs) queue_.push(*job);
    return;
  }
  if (jobs.size() > 1) std::ranges::stable_sort(jobs, {}, &Job::priority);
  for (size_t i = 0; i < jobs.size();) {
    Job* const first = jobs[i];
    Job* last = first;
    int64_t count = first->count;
    queue_.leave(*first);
    for (++i; i < jobs.size() && count + jobs[i]->count <= most_; ++i) {
      queue_.leave(*jobs[i]);
      count += jobs[i]->count;
      last = last->next = jobs[i];
    }
    last->next = nullptr;
    launch(*instance, first);
  }
  release(*instance);
}

// Nobody waits for these any more, or their deadline has passed.
void Batcher::drop(Job* first) {
  for (Job* job = first; job != nullptr; job = job->next) {
    (job->abandoned ? metrics_->abandoned : metrics_->expired)
        .fetch_add(1, std::memory_order_relaxed);
    job->overloaded = true;
    fail(*job, "the request waited for longer than its timeout");
  }
  finish(first);
}

void Batcher::launch(Instance& instance, Job* first) {
  const auto begin = Clock::now();
  int64_t count = 0;
  for (Job* job = first; job != nullptr; job = job->next) {
    job->started = begin;
    metrics_->queue_seconds.observe(seconds(begin - job->queued));
    count += job->count;
  }
  try {
    if (first->next == nullptr && count > most_) {
      launch_large(instance, *first);
    } else {
      launch_together(instance, first, count);
    }
  } catch (const std::exception& error) {
    const std::string why = reason(error);
    for (Job* job = first; job != nullptr; job = job->next) fail(*job, why);
  }
  metrics_->compute_seconds.observe(seconds(Clock::now() - begin));
  metrics_->samples.fetch_add(uint64_t(count), std::memory_order_relaxed);
  finish(first);
}

void Batcher::launch_together(Instance& instance, Job* first, int64_t count) {
  const auto width = size_t(instance.engine->width());
  metrics_->batches.fetch_add(1, std::memory_order_relaxed);
  metrics_->batch_samples.observe(double(count));
  metrics_->limit_seconds.fetch_add(instance.engine->limit_seconds(count),
                                    std::memory_order_relaxed);
  if (first->next == nullptr) {
    first->batch = count;
    first->outputs.resize(size_t(count) * width);
    instance.engine->run(first->samples, count, first->outputs);
    return;
  }
  instance.samples.clear();
  for (Job* job = first; job != nullptr; job = job->next) {
    instance.samples.insert(instance.samples.end(), job->samples.begin(), job->samples.end());
  }
  instance.outputs.resize(size_t(count) * width);
  instance.engine->run(instance.samples, count, instance.outputs);
  const float* from = instance.outputs.data();
  for (Job* job = first; job != nullptr; job = job->next) {
    job->batch = count;
    const size_t numbers = size_t(job->count) * width;
    job->outputs.assign(from, from + numbers);
    from += numbers;
  }
}

void Batcher::launch_large(Instance& instance, Job& job) {
  const int64_t width = instance.engine->width(), count = job.count;
  const size_t sample = job.samples.size() / size_t(count);
  job.batch = most_;
  job.outputs.resize(size_t(count * width));
  for (int64_t begin = 0; begin < count; begin += most_) {
    const int64_t part = std::min(most_, count - begin);
    metrics_->batches.fetch_add(1, std::memory_order_relaxed);
    metrics_->batch_samples.observe(double(part));
    metrics_->limit_seconds.fetch_add(instance.engine->limit_seconds(part),
                                      std::memory_order_relaxed);
    instance.engine->run(
        std::span<const uint8_t>(job.samples)
            .subspan(size_t(begin) * sample, size_t(part) * sample),
        part, std::span(job.outputs).subspan(size_t(begin * width), size_t(part * width)));
  }
}

// A job may be destroyed as soon as it is notified.
void Batcher::finish(Job* first) {
  while (first != nullptr) {
    Job* const next = first->next;
    first->computed();
    first = next;
  }
}

}  // namespace ridgeline::serve
