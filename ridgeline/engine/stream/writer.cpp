#include "ridgeline/engine/stream/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace ridgeline::engine {
namespace {

void append_result(std::string& text, const WriterOptions& options, int64_t index, int32_t label,
                   std::span<const double> values) {
  auto out = std::back_inserter(text);
  const bool csv = options.format == InferFormat::csv;
  if (csv) {
    const fmt::format_int head(index), tail(label);
    text.append(head.data(), head.size()).append(1, ',').append(tail.data(), tail.size());
  } else {
    fmt::format_to(out, "{{\"index\":{},\"label\":{}", index, label);
    if (!values.empty()) fmt::format_to(out, ",\"{}\":[", options.letter);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (csv || i > 0) text += ',';
    if (!csv && !std::isfinite(values[i])) {
      text += "null";  // JSON has no NaN
    } else {
      fmt::format_to(out, "{:.9g}", values[i]);
    }
  }
  text += csv ? "\n" : values.empty() ? "}\n" : "]}\n";
}

std::string header(const WriterOptions& options) {
  if (options.format != InferFormat::csv || !options.header) return {};
  std::string text = "index,label";
  for (int64_t i = 0; options.outputs && i < options.classes; ++i) {
    text += fmt::format(",{}{}", options.letter, i);
  }
  return text + "\n";
}

}  // namespace

bool is_infer_output(std::string_view head) {
  return head.starts_with("index,label") || head.starts_with("{\"index\":");
}

// The part of the first rank looks like a whole output; others have no header: "17,3,0.1,...".
bool is_infer_part(std::string_view head) {
  const std::string_view digits = "0123456789";
  const size_t comma = std::min(head.find_first_not_of(digits), head.size());
  return is_infer_output(head) || (comma > 0 && head.substr(comma).starts_with(",") &&
                                   head.substr(comma + 1).find_first_not_of(digits) > 0);
}

ResultWriter::ResultWriter(OutputFile& output, const WriterOptions& options, Event& event,
                           std::function<void(const ChunkResult&)> seen)
    : output_(output),
      options_(options),
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
  if (!flushed_.exchange(true)) writing_.lock();  // for good: the process is about to end
}

void ResultWriter::run() try {
  std::string text = header(options_);
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
    const auto classes = result.outputs.empty() ? 0 : size_t(options_.classes);
    for (size_t r = 0; r < result.labels.size(); ++r) {
      append_result(text, options_, result.first_sample + int64_t(r), result.labels[r],
                    std::span(result.outputs).subspan(r * classes, classes));
    }
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
