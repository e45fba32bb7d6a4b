#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "ridgeline/cuda/error.h"

namespace ridgeline::cuda::recurrent {

// A second stream, whose work a first stream waits for at certain points. Both may be part of one
// captured graph.
class SideStream {
 public:
  explicit SideStream(int64_t marks) : marks_(size_t(marks) + 1) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a second stream");
    for (cudaEvent_t& mark : marks_) {
      check(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming), "an event");
    }
  }
  ~SideStream() {
    for (const cudaEvent_t mark : marks_) {
      if (mark != nullptr) cudaEventDestroy(mark);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  cudaStream_t stream() const { return stream_; }
  // Later work on this stream waits for what `main` has enqueued so far.
  cudaError_t fork(cudaStream_t main) const {
    const cudaError_t error = cudaEventRecord(marks_.back(), main);
    return error != cudaSuccess ? error : cudaStreamWaitEvent(stream_, marks_.back(), 0);
  }
  cudaError_t mark(int64_t i) const { return cudaEventRecord(marks_[size_t(i)], stream_); }
  cudaError_t wait(int64_t i, cudaStream_t main) const {
    return cudaStreamWaitEvent(main, marks_[size_t(i)], 0);
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> marks_;
};

}  // namespace ridgeline::cuda::recurrent
