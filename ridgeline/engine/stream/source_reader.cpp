#include "ridgeline/engine/stream/source_reader.h"

#include <utility>

namespace ridgeline::engine {
namespace {

constexpr size_t kMostWaiting = size_t{16} << 20;

}  // namespace

SourceReader::SourceReader(SampleSource& source, int64_t samples, size_t ahead, Event& event)
    : source_(source), samples_(samples), ahead_(ahead), event_(event), thread_([this] {
        run();
      }) {}

SourceReader::~SourceReader() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

const Chunk* SourceReader::peek() {
  const std::scoped_lock lock(mutex_);
  if (!chunks_.empty()) return &chunks_.front();  // a deque's elements stay where they are
  return nullptr;
}

void SourceReader::check() {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

Chunk SourceReader::take() {
  Chunk chunk;
  {
    const std::scoped_lock lock(mutex_);
    chunk = std::move(chunks_.front());
    chunks_.pop_front();
    waiting_bytes_ -= chunk.bytes();
    bytes_ += double(chunk.bytes());
  }
  wake_.notify_one();
  return chunk;
}

bool SourceReader::at_end() {
  const std::scoped_lock lock(mutex_);
  return ended_ && chunks_.empty();
}

bool SourceReader::complete() {
  const std::scoped_lock lock(mutex_);
  return ended_;
}

size_t SourceReader::waiting() {
  const std::scoped_lock lock(mutex_);
  return chunks_.size();
}

bool SourceReader::has_room() const {
  if (ahead_ == 0 || chunks_.empty()) return true;
  return chunks_.size() < ahead_ && waiting_bytes_ < kMostWaiting;
}

void SourceReader::run() try {
  for (;;) {
    Chunk chunk;
    const bool more = source_.next(samples_, chunk);
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || has_room(); });
      if (stop_) return;
      if (more) {
        waiting_bytes_ += chunk.bytes();
        chunks_.push_back(std::move(chunk));
      }
      ended_ = !more;
    }
    event_.set();
    if (!more) return;
  }
} catch (...) {
  {
    const std::scoped_lock lock(mutex_);
    failure_ = std::current_exception();
    ended_ = true;
  }
  event_.set();
}

}  // namespace ridgeline::engine
