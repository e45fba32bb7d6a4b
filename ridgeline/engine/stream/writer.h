#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "ridgeline/engine/stream/chunk.h"
#include "ridgeline/engine/stream/event.h"
#include "ridgeline/engine/stream/output.h"
#include "ridgeline/engine/stream/result_format.h"
#include "ridgeline/engine/stream/result_text.h"

namespace ridgeline::engine {

// Writes results, which arrive in any order, as lines in the order of the input. It has its own
// thread, so that neither formatting nor the disk blocks the others.
class ResultWriter {
 public:
  // The writer's thread calls `seen` with each result in order. The event is set when something was
  // written.
  ResultWriter(OutputFile& output, const WriterOptions& options, Event& event,
               std::function<void(const ChunkResult&)> seen = {});
  ~ResultWriter();

  void put(ChunkResult result);                 // never waits
  int64_t next() const { return next_; }        // all chunks before this one are written
  int64_t written() const { return written_; }  // samples
  const ResultText& text() const { return text_; }
  bool closed() const { return closed_; }  // the reader of stdout has gone
  // Waits until the header and the chunks before `end` are written. Rethrows the thread's
  // exception; a result that is an error is thrown once all before it are written.
  void finish(int64_t end);
  void check();  // rethrows the thread's exception
  // Called from another thread before the process ends: completes the line being written, which is
  // the last.
  void flush_and_close();

 private:
  void run();

  OutputFile& output_;
  const ResultText text_;
  Event& event_;
  const std::function<void(const ChunkResult&)> seen_;
  std::mutex mutex_, writing_;
  std::condition_variable wake_, done_;
  std::map<int64_t, ChunkResult> waiting_;
  std::atomic<int64_t> next_, written_{0};
  std::atomic<bool> closed_{false}, flushed_{false};
  std::exception_ptr failure_;
  bool begun_ = false;  // the header is written
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ridgeline::engine
