#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/core/error.h"

namespace ridgeline::engine {

// The kinds of message between the root and another rank of an inference run.
enum class ChunkKind : int64_t {
  chunk,   // root to rank: samples to compute
  go,      // root to rank: begin with what was sent so far (scatter)
  stop,    // root to rank: no more chunks
  begun,   // rank to root, the first: from now on it waits only for the root
  ready,   // rank to root: it takes `count` chunks at a time
  result,  // rank to root
  report,  // rank to root, the last: its times, as text
};

struct ChunkHead {
  ChunkKind kind = ChunkKind::chunk;
  int64_t number = 0;        // chunks are counted in the order of the input, from 0
  int64_t first_sample = 0;  // its index in the input
  int64_t count = 0;         // of samples
  // For texts: where the chunk begins in its file, and the fields of every record of a csv file.
  int64_t line = 1;
  int64_t columns = 0;
  int64_t cut_short = 0;  // 1: has fewer samples than requested, but is not the last
};

// Samples as stored in the file, after a head, so that they can be sent unchanged.
class Chunk {
 public:
  Chunk() : buffer_(sizeof(ChunkHead)) { set_head({}); }
  explicit Chunk(std::vector<uint8_t> buffer) : buffer_(std::move(buffer)) {
    if (buffer_.size() < sizeof(ChunkHead)) {
      throw_error(ErrorKind::comm, "a message of {} bytes is none of ours", buffer_.size());
    }
  }

  ChunkHead head() const {
    ChunkHead head;
    std::memcpy(&head, buffer_.data(), sizeof(head));
    return head;
  }
  void set_head(const ChunkHead& head) { std::memcpy(buffer_.data(), &head, sizeof(head)); }
  std::span<const uint8_t> body() const { return std::span(buffer_).subspan(sizeof(ChunkHead)); }
  // Head and body; a body is appended.
  std::vector<uint8_t>& buffer() { return buffer_; }
  size_t bytes() const { return buffer_.size(); }

 private:
  std::vector<uint8_t> buffer_;
};

// The model's outputs for a chunk, or the reason why it could not be read.
struct ChunkResult {
  int64_t number = 0, first_sample = 0, count = 0;
  std::vector<int32_t> labels;
  std::vector<double> outputs;  // [count, classes], or empty if only labels are wanted
  std::string error;            // empty: none
  ErrorKind error_kind = ErrorKind::data;

  // Packs it into a message. Probabilities are sent as fp32 unless `wide`.
  std::vector<uint8_t> pack(bool wide) const;
  static ChunkResult unpack(const Chunk& message);
};

}  // namespace ridgeline::engine
