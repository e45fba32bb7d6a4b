#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "ridgeline/engine/stream/event.h"
#include "ridgeline/engine/stream/samples.h"

namespace ridgeline::engine {

// Reads a few chunks ahead of the consumer, on its own thread.
class SourceReader {
 public:
  // At most `ahead` chunks of up to `samples` samples wait, fewer if they are large; 0: the whole
  // file. The event is set when another chunk is ready.
  SourceReader(SampleSource& source, int64_t samples, size_t ahead, Event& event);
  ~SourceReader();

  const Chunk* peek();  // the next one; null: not read yet, or at the end
  Chunk take();
  bool at_end();    // all readable chunks were taken
  bool complete();  // the reader is done
  void check();     // rethrows an error of the reader
  size_t waiting();
  double bytes() const { return bytes_; }

 private:
  void run();
  bool has_room() const;

  SampleSource& source_;
  const int64_t samples_;
  const size_t ahead_;
  Event& event_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Chunk> chunks_;
  size_t waiting_bytes_ = 0;
  std::exception_ptr failure_;
  bool ended_ = false, stop_ = false;
  double bytes_ = 0;
  std::thread thread_;
};

}  // namespace ridgeline::engine
