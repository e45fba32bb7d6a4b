#include "ridgeline/serve/batcher.h"

#include <algorithm>
#include <exception>

#include "ridgeline/core/error.h"
#include "ridgeline/core/failure.h"

namespace ridgeline::serve {
namespace {

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Batcher::Batcher(const std::function<std::unique_ptr<Engine>()>& make, const BatchOptions& options,
                 std::shared_ptr<ModelMetrics> metrics)
    : options_(options), metrics_(std::move(metrics)) {
  for (int i = 0; i < options.instances; ++i) instances_.push_back(std::make_unique<Instance>());
  try {
    // One after another: an engine that measures its kernels wants the machine for itself.
    for (size_t i = 0; i < instances_.size(); ++i) start(i, make);
  } catch (...) {
    stop();
    throw;
  }
  most_ = instances_.front()->engine->most();
  choose_inline();
}

void Batcher::start(size_t index, const std::function<std::unique_ptr<Engine>()>& make) {
  Instance& instance = *instances_[index];
  instance.thread = std::thread([this, &instance, &make] {
    try {
      instance.engine = make();
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

// A launch is timed on samples of zeros, after one that warms up.
void Batcher::choose_inline() {
  if (options_.inline_limit.count() == 0 || options_.max_delay.count() > 0) return;
  Instance& instance = *instances_.front();
  if (!acquire(instance)) return;
  try {
    // Without samples an engine computes whatever is in its memory, which is zeros at first.
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
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
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
  job.queued = Clock::now();
  // A large job would keep the submitting thread from its other connections.
  const bool help = inlined_ && job.count <= most_;
  {
    const std::scoped_lock lock(mutex_);
    if (jobs_ >= options_.most_waiting ||
        (jobs_ > 0 && bytes_ + job.samples.size() > options_.most_bytes)) {
      return Accepted::no;
    }
    (last_ != nullptr ? last_->next : first_) = &job;
    last_ = &job;
    ++jobs_;
    waiting_samples_ += job.count;
    bytes_ += job.samples.size();
    metrics_->waiting.fetch_add(1, std::memory_order_relaxed);
    metrics_->waiting_samples.fetch_add(job.count, std::memory_order_relaxed);
  }
  if (help) return Accepted::help_soon;
  wake_.notify_one();
  return Accepted::queued;
}

// Jobs of one launch, as a list; null: none wait. A job that is larger than a launch goes alone.
Job* Batcher::take(int64_t most) {
  const std::scoped_lock lock(mutex_);
  Job* const first = first_;
  Job* last = nullptr;
  int64_t count = 0, jobs = 0;
  for (Job* job = first; job != nullptr && (last == nullptr || count + job->count <= most);
       job = job->next) {
    count += job->count;
    bytes_ -= job->samples.size();
    ++jobs;
    last = job;
  }
  if (last == nullptr) return nullptr;
  first_ = last->next;
  if (first_ == nullptr) last_ = nullptr;
  last->next = nullptr;
  jobs_ -= jobs;
  waiting_samples_ -= count;
  metrics_->waiting.fetch_sub(jobs, std::memory_order_relaxed);
  metrics_->waiting_samples.fetch_sub(count, std::memory_order_relaxed);
  return first;
}

bool Batcher::wait_for_jobs() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || first_ != nullptr; });
    if (first_ == nullptr) return false;
    if (options_.max_delay.count() == 0 || waiting_samples_ >= most_ || stop_) return true;
    const auto until = first_->queued + options_.max_delay;
    if (Clock::now() >= until) return true;
    wake_.wait_until(lock, until, [this] { return stop_ || waiting_samples_ >= most_; });
    if (first_ != nullptr) return true;  // another thread may have been faster
  }
}

void Batcher::work(Instance& instance) {
  while (wait_for_jobs()) {
    if (!acquire(instance)) {
      instance.busy.wait(true);
      continue;
    }
    if (Job* jobs = take(instance.engine->most())) compute(instance, jobs);
    release(instance);
  }
}

bool Batcher::idle() {
  const std::scoped_lock lock(mutex_);
  return first_ == nullptr;
}

void Batcher::help() {
  // The calling thread has connections to look after, so an engine's own thread takes over if other
  // threads submit without an end.
  constexpr int kMostLaunches = 16;
  int launches = 0;
  // Whoever leaves an engine looks at the queue once more: a job that came before that, and whose
  // thread found the engine busy, is seen then.
  while (!idle()) {
    const auto free = std::ranges::find_if(instances_, [](const auto& i) { return acquire(*i); });
    if (free == instances_.end()) return;
    Instance& instance = **free;
    while (launches < kMostLaunches) {
      Job* const jobs = take(instance.engine->most());
      if (jobs == nullptr) break;
      compute(instance, jobs);
      ++launches;
    }
    release(instance);
    if (launches == kMostLaunches) {
      wake_.notify_one();
      return;
    }
  }
}

void Batcher::compute(Instance& instance, Job* first) {
  const auto begin = Clock::now();
  int64_t count = 0;
  for (Job* job = first; job != nullptr; job = job->next) {
    job->started = begin;
    metrics_->queue_seconds.observe(seconds(begin - job->queued));
    count += job->count;
  }
  try {
    if (first->next == nullptr && count > most_) {
      compute_large(instance, *first);
    } else {
      compute_together(instance, first, count);
    }
  } catch (const std::exception& error) {
    for (Job* job = first; job != nullptr; job = job->next) {
      job->error = failure_of(error).message;
      if (job->error.empty()) job->error = "unknown";
    }
  }
  metrics_->compute_seconds.observe(seconds(Clock::now() - begin));
  metrics_->samples.fetch_add(uint64_t(count), std::memory_order_relaxed);
  finish(first);
}

void Batcher::compute_together(Instance& instance, Job* first, int64_t count) {
  const auto width = size_t(instance.engine->width());
  metrics_->batches.fetch_add(1, std::memory_order_relaxed);
  metrics_->batch_samples.observe(double(count));
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

void Batcher::compute_large(Instance& instance, Job& job) {
  const int64_t width = instance.engine->width(), count = job.count;
  const size_t sample = job.samples.size() / size_t(count);
  job.batch = most_;
  job.outputs.resize(size_t(count * width));
  for (int64_t begin = 0; begin < count; begin += most_) {
    const int64_t part = std::min(most_, count - begin);
    metrics_->batches.fetch_add(1, std::memory_order_relaxed);
    metrics_->batch_samples.observe(double(part));
    instance.engine->run(
        std::span<const uint8_t>(job.samples)
            .subspan(size_t(begin) * sample, size_t(part) * sample),
        part, std::span(job.outputs).subspan(size_t(begin * width), size_t(part * width)));
  }
}

// A job may be gone as soon as it is told.
void Batcher::finish(Job* first) {
  while (first != nullptr) {
    Job* const next = first->next;
    first->computed();
    first = next;
  }
}

}  // namespace ridgeline::serve
