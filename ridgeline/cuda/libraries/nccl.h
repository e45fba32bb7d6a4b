#pragma once

#include <map>
#include <memory>
#include <string>

#include "ridgeline/core/communicator.h"

struct CUstream_st;
struct CUevent_st;

namespace ridgeline::cuda {

// A GPU's collectives need more than the stream of its other work: a second stream, so that they
// overlap with computation, events between the two, and NCCL if every rank has a GPU of its own.
// The library is opened at run time; `refusal` says why it cannot be used.
class Collectives {
 public:
  // Collective: all `ranks` construct theirs at the same time. `gpu` names this rank's GPU
  // uniquely.
  Collectives(Communicator& ranks, const std::string& gpu);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  Communicator& ranks() { return ranks_; }
  CUstream_st* stream() const { return stream_; }
  const std::string& nccl_refusal() const { return refusal_; }

  // to[i] = the sum of from[i] over the ranks, on stream(); fp32 or fp64. Only if nccl_refusal() is
  // empty.
  void all_reduce(const void* from, void* to, int64_t count, DType dtype);
  // Both move bf16 values, `part` per rank, under the same conditions. exchange(): to[r] =
  // from[this rank] of rank r. all_gather(): data[r] = data[r] of rank r, in place.
  void exchange(const void* from, void* to, int64_t part);
  void all_gather(void* data, int64_t part);

  // fork() makes stream() wait for the work of `main` so far, and leave() records an event under
  // the token's address. join() makes `main` wait for that event and then drops it.
  void fork(CUstream_st* main);
  void leave(const void* token);
  void join(const void* token, CUstream_st* main);

  // A host node of a graph cannot throw: its error is thrown by the next check().
  void set_failure(const std::string& message) noexcept;
  void check_failure();

 private:
  struct Api;
  struct Mark {
    CUevent_st* event = nullptr;
    bool pending = false;
  };
  void open(const std::string& gpu);

  Communicator& ranks_;
  std::string refusal_;
  std::unique_ptr<Api> api_;
  void* communicator_ = nullptr;  // an ncclComm_t
  CUstream_st* stream_ = nullptr;
  CUevent_st* forked_ = nullptr;
  std::map<const void*, Mark> marks_;
  struct Failure;
  std::unique_ptr<Failure> failure_;
};

}  // namespace ridgeline::cuda
