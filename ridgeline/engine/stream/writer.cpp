#include "ridgeline/engine/stream/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ridgeline::engine {
// The part of the first rank looks like a complete output; others have no header: "17,3,0.1,...".
bool is_infer_part(std::string_view head) {
  const std::string_view digits = "0123456789";
  const size_t comma = std::min(head.find_first_not_of(digits), head.size());
  return is_infer_output(head) || (comma > 0 && head.substr(comma).starts_with(",") &&
                                   head.substr(comma + 1).find_first_not_of(digits) > 0);
}

ResultWriter::ResultWriter(OutputFile& output, const WriterOptions& options, Event& event,
                           std::function<void(const ChunkResult&)> seen)
    : output_(output),
      text_(options),
      event_(event),
      seen_(std::move(seen)),
      next_(options.first),
      thread_([this] { run(); }) {}

ResultWriter::~ResultWriter() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ResultWriter::put(ChunkResult result) {
  {
    const std::scoped_lock lock(mutex_);
    waiting_.emplace(result.number, std::move(result));
  }
  wake_.notify_one();
}

void ResultWriter::check() {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void ResultWriter::finish(int64_t end) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return failure_ || closed_ || (begun_ && next_ >= end); });
  if (failure_) std::rethrow_exception(failure_);
}

void ResultWriter::flush_and_close() {
  if (!flushed_.exchange(true)) writing_.lock();  // never unlocked: the process ends
}

void ResultWriter::run() try {
  std::string text = text_.header();
  {
    const std::scoped_lock writing(writing_);
    closed_ = !output_.write(text);
  }
  {
    const std::scoped_lock lock(mutex_);
    begun_ = true;
  }
  done_.notify_all();
  for (;;) {
    ChunkResult result;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] {
        return stop_ || (!waiting_.empty() && waiting_.begin()->first == next_);
      });
      if (stop_) return;
      result = std::move(waiting_.extract(waiting_.begin()).mapped());
    }
    if (!result.error.empty()) throw Error(result.error_kind, result.error);
    text.clear();
    text_.append(result, text);
    if (seen_) seen_(result);
    if (!closed_) {
      const std::scoped_lock writing(writing_);
      closed_ = !output_.write(text);
    }
    output_.keep();
    {
      const std::scoped_lock lock(mutex_);
      written_ += result.count;
      ++next_;
    }
    done_.notify_all();
    event_.set();
  }
} catch (...) {
  {
    const std::scoped_lock lock(mutex_);
    failure_ = std::current_exception();
  }
  done_.notify_all();
  event_.set();
}

}  // namespace ridgeline::engine
