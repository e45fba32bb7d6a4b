#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ridgeline/core/dtype.h"

namespace ridgeline {

enum class Reduce : uint8_t { sum, max, min };

// The processes of a run ("ranks") as kernels, planner and engine see them; dist/ implements it.
// Every rank makes the same collective calls in the same order. Memory is the host's. Failures
// throw Error(comm).
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // 0: the root, the one that writes and prints
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // among the ranks of this host
  virtual int local_size() const = 0;
  bool is_root() const { return rank() == 0; }

  virtual void barrier() = 0;
  virtual void broadcast(void* data, size_t bytes, int root = 0) = 0;
  // all[r * bytes ...] = the `mine` of rank r
  virtual void all_gather(const void* mine, void* all, size_t bytes) = 0;

  // to[i] = the sum, maximum or minimum of from[i] over all ranks; `to` may be `from`. All ranks
  // get the same bits. Floating-point values are sent as `wire`: bf16 rounds each rank's share and
  // the sum, and adds in fp32; other types are sent unchanged. Integers: int32 and int64.
  virtual void all_reduce(const void* from, void* to, int64_t count, DType dtype, Reduce how,
                          DType wire) = 0;
  // Sums like all_reduce, but each rank gets only its part of `to`: split(count, rank, size). fp32
  // and fp64.
  virtual void reduce_scatter(const void* from, void* to, int64_t count, DType dtype) = 0;
  // Fills in the other ranks' parts of `data`, each as its owner has it.
  virtual void all_gather_parts(void* data, int64_t count, DType dtype) = 0;

  // Asynchronous forms: the buffers must stay unchanged until the ticket is done. Sums are made in
  // the order of their starts; other collectives wait for all that were started.
  using Ticket = int64_t;  // 0: already done
  virtual Ticket start_all_reduce(const void* from, void* to, int64_t count, DType dtype,
                                  DType wire) = 0;
  virtual Ticket start_reduce_scatter(const void* from, void* to, int64_t count, DType dtype) = 0;
  virtual bool test(Ticket ticket) = 0;
  virtual void wait(Ticket ticket) = 0;

  // Seconds that callers have waited inside these calls, that is, communication that no work hid.
  virtual double blocked_seconds() const { return 0; }

  // Between begin and end this rank must make progress: a watchdog may call it hung if it makes
  // none for long. Time spent waiting for other ranks does not count.
  virtual void begin_work() {}
  virtual void end_work() {}

  // --- conveniences ---

  template <typename T>
  T from_root(T value) {
    broadcast(&value, sizeof(value));
    return value;
  }
  template <typename T>
  T reduce(T value, Reduce how) {
    all_reduce(&value, &value, 1, dtype_of<T>(), how, dtype_of<T>());
    return value;
  }
  template <typename T>
  void sum(std::vector<T>& values) {
    all_reduce(values.data(), values.data(), int64_t(values.size()), dtype_of<T>(), Reduce::sum,
               dtype_of<T>());
  }
  std::string text_from_root(std::string text);
  std::vector<std::string> texts(const std::string& mine);  // of every rank
};

}  // namespace ridgeline
