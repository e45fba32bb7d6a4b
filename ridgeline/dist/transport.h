#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/core/communicator.h"

namespace ridgeline::dist {

struct SharedSegments {
  std::vector<std::byte*> begins;  // by rank, aligned to 64 bytes
  size_t bytes = 0;                // of each
};

// The functions of a message-passing library: blocking collectives of plain types, one caller at a
// time. RankCommunicator builds a Communicator on it.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual std::string library() const = 0;  // name and version
  // Whether calls may come from a thread other than its creator.
  virtual bool any_thread() const = 0;
  // Whether all_reduce() also accepts GPU memory.
  virtual bool takes_device_memory() const { return false; }

  virtual void barrier() = 0;
  virtual void broadcast(void* data, size_t bytes, int root) = 0;
  virtual void all_gather(const void* mine, void* all, size_t bytes) = 0;
  // fp32, fp64, int32 or int64; `to` may be `from`.
  virtual void all_reduce(const void* from, void* to, int64_t count, DType dtype, Reduce how) = 0;

  // `counts` has the number of elements of each rank, whose parts are in rank order. to[0 ..
  // counts[rank]) = the sum of the ranks' elements of this rank's part; fp32 or fp64
  virtual void reduce_scatter(const void* from, void* to, std::span<const int64_t> counts,
                              DType dtype) = 0;
  // In place: a rank's own part is already in `data`.
  virtual void all_gather_parts(void* data, std::span<const int64_t> counts,
                                size_t element_bytes) = 0;
  // to = counts[rank] elements from each rank in order: its elements of this rank's part
  virtual void exchange_parts(const void* from, void* to, std::span<const int64_t> counts,
                              size_t element_bytes) = 0;

  // Memory that all ranks share, if all are on one host: one segment per rank, initially zero,
  // valid until finish(), of at least `least` bytes and up to `more` beyond that as available; the
  // latter may be used once reserve_memory() has returned true. Empty if there is none. Collective,
  // once.
  virtual SharedSegments shared_segments(size_t /*least*/, size_t /*more*/) { return {}; }

  // Messages between two ranks, in order for each pair, independent of all collectives. Nothing
  // here waits; `data` must stay in place until test() has returned true, once, for its request.
  using Request = int64_t;
  struct Envelope {
    int from = 0;
    size_t bytes = 0;
  };
  virtual Request start_send(int to, const void* data, size_t bytes) = 0;
  virtual bool probe(Envelope& found) = 0;  // the next message that is not being received yet
  virtual Request start_receive(const Envelope& message, void* data) = 0;
  virtual bool test(Request request) = 0;
  // Takes over memory of a request that will never complete, because the library may still access
  // it.
  void keep(std::vector<uint8_t> buffer) { kept_.push_back(std::move(buffer)); }

  // Ends MPI: by agreement of all ranks, or by force of one.
  virtual void finish() = 0;
  virtual void abort(int code) noexcept = 0;

 private:
  std::vector<std::vector<uint8_t>> kept_;
};

}  // namespace ridgeline::dist
