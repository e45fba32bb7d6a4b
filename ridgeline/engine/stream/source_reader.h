#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "ridgeline/engine/stream/bell.h"
#include "ridgeline/engine/stream/items.h"

namespace ridgeline::engine {

// Reads a few chunks ahead of whoever takes them, by a thread of its own.
class SourceReader {
 public:
  // At most `ahead` chunks wait, and of large ones fewer; 0: all of the file. The bell is rung when
  // one more does.
  SourceReader(ItemSource& source, int64_t rows, size_t ahead, Bell& bell);
  ~SourceReader();

  const Chunk* peek();  // the next one; null: not read yet, or the end
  Chunk take();
  bool at_end();    // all that could be read were taken
  bool complete();  // nothing more will be read
  void check();     // throws what reading has thrown
  size_t waiting();
  double bytes() const { return bytes_; }

 private:
  void run();
  bool has_room() const;

  ItemSource& source_;
  const int64_t rows_;
  const size_t ahead_;
  Bell& bell_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::deque<Chunk> chunks_;
  size_t waiting_bytes_ = 0;
  std::exception_ptr failure_;
  bool ended_ = false, stop_ = false;
  double bytes_ = 0;
  std::thread thread_;
};

}  // namespace ridgeline::engine
