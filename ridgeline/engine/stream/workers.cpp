#include "ridgeline/engine/stream/workers.h"

#include <algorithm>
#include <utility>

#include "ridgeline/engine/predict.h"

namespace ridgeline::engine {
namespace {

constexpr size_t kMostSpans = 100'000;  // per rank: viewers cannot open larger traces

void add_span(std::vector<ChunkSpan>& spans, const ChunkSpan& span) {
  if (spans.size() < kMostSpans) spans.push_back(span);
}

}  // namespace

Workers::Workers(const LoadedModel& model, const Decoder& decoder, const WorkerOptions& options,
                 const RunClock& clock, Event& event)
    : model_(model), decoder_(decoder), options_(options), clock_(clock), event_(event) {
  const int decoders = decoder.identity() || options.echo ? 0 : std::max(1, options.decoders);
  // For each device one chunk computes and one waits; each decoder has one in reserve.
  credits_ = options.credits > 0 ? options.credits : int(2 * options.devices.size()) + decoders;
  times_.devices.resize(options.devices.size());
  for (size_t i = 0; i < options.devices.size(); ++i) {
    times_.devices[i].device = options.devices[i].device;
  }
  // An engine takes as many threads as it can use, so all other threads are created first.
  std::unique_lock engines_wait(starting_);
  try {
    for (size_t i = 0; i < options.devices.size(); ++i) {
      threads_.emplace_back([this, i] { options_.echo ? run_echo(i) : run_device(i); });
    }
    for (int i = 0; i < decoders; ++i) threads_.emplace_back([this] { run_decoder(); });
  } catch (const std::exception&) {  // no more threads, or no memory for them
    // One decoder can do the work of several, more slowly.
    if (threads_.size() > options.devices.size()) return;
    begin_stop();
    engines_wait.unlock();
    join_all();  // the destructor does not run for a constructor that throws
    throw;
  }
}

Workers::~Workers() {
  begin_stop();
  join_all();
}

void Workers::begin_stop() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  given_wake_.notify_all();
  samples_wake_.notify_all();
}

void Workers::join_all() {
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::stopping() const {
  const std::scoped_lock lock(mutex_);
  return stop_;
}

void Workers::give(Chunk chunk) {
  const double now = clock_.now();
  const bool direct = decoder_.identity() || options_.echo;
  {
    const std::scoped_lock lock(mutex_);
    if (direct) {
      const ChunkHead head = chunk.head();
      samples_.push_back({head, std::move(chunk), {}, now});
    } else {
      given_.push_back({std::move(chunk), now});
    }
  }
  (direct ? samples_wake_ : given_wake_).notify_one();
}

std::optional<ChunkResult> Workers::take() {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (results_.empty()) return std::nullopt;
  ChunkResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

void Workers::hold(bool held) {
  {
    const std::scoped_lock lock(mutex_);
    held_ = held;
  }
  samples_wake_.notify_all();
}

void Workers::wait_ready() {
  std::unique_lock lock(mutex_);
  ready_wake_.wait(lock, [this] { return failure_ || ready_ == options_.devices.size(); });
  if (failure_) std::rethrow_exception(failure_);
}

void Workers::arrived(int64_t number, double seconds) {
  const double now = clock_.now();
  const std::scoped_lock lock(mutex_);
  // A trace's row shows one event at a time.
  const double begin = std::max(now - seconds, last_arrival_);
  last_arrival_ = now;
  add_span(times_.spans, {-2, number, begin, begin, begin, now});
}

RankTimes Workers::times() const {
  const std::scoped_lock lock(mutex_);
  return times_;
}

std::optional<Workers::TimedChunk> Workers::next_given() {
  std::unique_lock lock(mutex_);
  given_wake_.wait(lock, [this] { return stop_ || !given_.empty(); });
  if (stop_) return std::nullopt;
  TimedChunk given = std::move(given_.front());
  given_.pop_front();
  return given;
}

std::optional<Workers::Samples> Workers::next_samples(size_t index) {
  const double begin = clock_.now();
  std::unique_lock lock(mutex_);
  samples_wake_.wait(lock, [this] { return stop_ || (!held_ && !samples_.empty()); });
  if (stop_) return std::nullopt;
  Samples samples = std::move(samples_.front());
  samples_.pop_front();
  times_.devices[index].waiting += clock_.now() - begin;
  return samples;
}

void Workers::finish(ChunkResult result) {
  {
    const std::scoped_lock lock(mutex_);
    results_.push_back(std::move(result));
  }
  event_.set();
}

void Workers::fail() {
  {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  ready_wake_.notify_all();
  event_.set();
}

// A chunk that cannot be read is a result too, so that the chunks before it in the input are not
// lost.
void Workers::run_decoder() try {
  while (auto given = next_given()) {
    const ChunkHead head = given->chunk.head();
    const double begin = clock_.now();
    Samples samples{head, Chunk(), {}, given->in};
    try {
      decoder_.decode(given->chunk, samples.bytes);
    } catch (const Error& error) {
      finish({head.number, head.first_sample, head.count, {}, {}, error.what(), error.kind()});
      continue;
    }
    const double end = clock_.now();
    {
      const std::scoped_lock lock(mutex_);
      times_.decoding += end - begin;
      if (options_.spans) add_span(times_.spans, {-1, head.number, begin, begin, begin, end});
      samples_.push_back(std::move(samples));
    }
    samples_wake_.notify_one();
  }
} catch (...) {
  fail();
}

void Workers::run_device(size_t index) try {
  std::optional<Machine> machine;
  std::optional<Predictor> predictor;
  {
    const std::scoped_lock starting(starting_);
    if (stopping()) return;
    machine.emplace(options_.devices[index]);
    Config config = model_.config;
    config.run = options_.devices[index];
    const auto memory_ready = [&] {
      const std::scoped_lock lock(mutex_);
      times_.devices[index].memory_ready = clock_.now();
    };
    PredictorOptions options = predictor_options(model_, options_.batch,
                                                 !options_.outputs ? Answer::labels
                                                 : options_.logits ? Answer::logits
                                                                   : Answer::outputs);
    options.memory_ready = memory_ready;
    predictor.emplace(*machine, config, model_.model, model_.scaling, model_.classes, options);
  }
  {
    const std::scoped_lock lock(mutex_);
    times_.devices[index].engine_ready = clock_.now();
    times_.devices[index].device = to_string(machine->device());
    ++ready_;
  }
  ready_wake_.notify_all();
  while (auto samples = next_samples(index)) compute(index, *predictor, std::move(*samples));
} catch (...) {
  fail();
}

void Workers::compute(size_t index, Predictor& predictor, Samples samples) {
  const double begin = clock_.now();
  predictor.load(decoder_.identity() ? samples.chunk.body()
                                     : std::span<const uint8_t>(samples.bytes));
  const double copied = clock_.now();
  predictor.compute();
  const double computed = clock_.now();
  const ChunkHead& head = samples.head;
  ChunkResult result{head.number, head.first_sample, head.count, {}, {}, {}, {}};
  if (options_.outputs) {
    result.outputs = predictor.outputs();
  } else {
    result.labels = predictor.labels();
  }
  const double read = clock_.now();
  const auto count = size_t(head.count), classes = size_t(model_.model.output().numel());
  if (options_.outputs) {
    result.outputs.resize(count * classes);
    for (size_t i = 0; i < count; ++i) {
      const auto first = result.outputs.begin() + ptrdiff_t(i * classes);
      result.labels.push_back(int32_t(std::max_element(first, first + ptrdiff_t(classes)) - first));
    }
  }
  result.labels.resize(count);
  {
    const std::scoped_lock lock(mutex_);
    DeviceTimes& device = times_.devices[index];
    if (device.first_in < 0) device.first_in = samples.in;
    if (device.compute_start < 0) device.compute_start = copied;
    device.last_in = std::max(device.last_in, samples.in);
    device.compute_end = computed;
    device.copying += copied - begin + read - computed;
    device.computing += computed - copied;
    ++device.chunks;
    device.samples += head.count;
    if (options_.spans) {
      add_span(times_.spans, {int(index), head.number, begin, copied, computed, read});
    }
  }
  finish(std::move(result));
}

void Workers::run_echo(size_t index) try {
  {
    const std::scoped_lock lock(mutex_);
    times_.devices[index].memory_ready = times_.devices[index].engine_ready = clock_.now();
    ++ready_;
  }
  ready_wake_.notify_all();
  while (auto samples = next_samples(index)) {
    const ChunkHead& head = samples->head;
    ChunkResult result{head.number, head.first_sample, head.count, {}, {}, {}, {}};
    result.labels.assign(size_t(head.count), 0);
    {
      const std::scoped_lock lock(mutex_);
      DeviceTimes& device = times_.devices[index];
      if (device.first_in < 0) device.first_in = device.compute_start = samples->in;
      device.last_in = samples->in;
      device.compute_end = clock_.now();
      ++device.chunks;
      device.samples += samples->head.count;
    }
    finish(std::move(result));
  }
} catch (...) {
  fail();
}

}  // namespace ridgeline::engine
