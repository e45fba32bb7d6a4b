#include "ridgeline/cuda/libraries/nccl.h"

#include <mutex>
#include <set>

#include "ridgeline/core/shared_library.h"
#include "ridgeline/cuda/error.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#define RIDGELINE_HAVE_NCCL 1
#endif

namespace ridgeline::cuda {

struct Collectives::Failure {
  std::mutex mutex;
  std::string message;
};

#ifdef RIDGELINE_HAVE_NCCL

// The functions we call, looked up by name.
struct Collectives::Api {
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRank) init = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) begin_group = nullptr;
  decltype(&ncclGroupEnd) end_group = nullptr;
  decltype(&ncclGetErrorString) error_text = nullptr;

  void check(ncclResult_t result, const char* what, int64_t count) const {
    if (result == ncclSuccess) return;
    throw_error(ErrorKind::comm, "NCCL {} of {} values: {}", what, count, error_text(result));
  }

  // Returns why the library cannot be used; "" if it can.
  std::string fill() {
    SharedLibrary library("libnccl.so.2", {"libnccl.so.2"});
    library.find(unique_id, "ncclGetUniqueId");
    library.find(init, "ncclCommInitRank");
    library.find(destroy, "ncclCommDestroy");
    library.find(all_reduce, "ncclAllReduce");
    library.find(all_gather, "ncclAllGather");
    library.find(send, "ncclSend");
    library.find(receive, "ncclRecv");
    library.find(begin_group, "ncclGroupStart");
    library.find(end_group, "ncclGroupEnd");
    library.find(error_text, "ncclGetErrorString");
    return library.refusal();
  }
};

void Collectives::open(const std::string& gpu) {
  api_ = std::make_unique<Api>();
  std::string mine = api_->fill();
  for (const std::string& each : ranks_.texts(mine)) {
    if (!each.empty()) refusal_ = each;
  }
  std::set<std::string> gpus;
  for (const std::string& each : ranks_.texts(gpu)) {
    if (!gpus.insert(each).second) refusal_ = "several ranks share a GPU (" + each + ")";
  }
  if (!refusal_.empty()) return;
  ncclUniqueId id{};
  if (ranks_.is_root() && api_->unique_id(&id) != ncclSuccess) refusal_ = "NCCL gives no id";
  refusal_ = ranks_.text_from_root(refusal_);
  if (!refusal_.empty()) return;
  ranks_.broadcast(&id, sizeof(id));
  ncclComm_t communicator = nullptr;
  const ncclResult_t result = api_->init(&communicator, ranks_.size(), id, ranks_.rank());
  mine = result == ncclSuccess ? "" : fmt::format("NCCL: {}", api_->error_text(result));
  for (const std::string& each : ranks_.texts(mine)) {
    if (!each.empty()) refusal_ = each;
  }
  communicator_ = communicator;
}

void Collectives::all_reduce(const void* from, void* to, int64_t count, DType dtype) {
  const auto type = dtype == DType::fp64 ? ncclFloat64 : ncclFloat32;
  api_->check(api_->all_reduce(from, to, size_t(count), type, ncclSum,
                               static_cast<ncclComm_t>(communicator_), stream_),
              "all-reduce", count);
}

void Collectives::exchange(const void* from, void* to, int64_t part) {
  const auto communicator = static_cast<ncclComm_t>(communicator_);
  const size_t bytes = size_t(part) * size_of(DType::bf16);
  api_->check(api_->begin_group(), "exchange", part);
  for (int r = 0; r < ranks_.size(); ++r) {
    const size_t at = size_t(r) * bytes;
    api_->check(api_->send(static_cast<const std::byte*>(from) + at, size_t(part), ncclBfloat16, r,
                           communicator, stream_),
                "exchange", part);
    api_->check(api_->receive(static_cast<std::byte*>(to) + at, size_t(part), ncclBfloat16, r,
                              communicator, stream_),
                "exchange", part);
  }
  api_->check(api_->end_group(), "exchange", part);
}

void Collectives::all_gather(void* data, int64_t part) {
  const size_t mine = size_t(ranks_.rank()) * size_t(part) * size_of(DType::bf16);
  api_->check(api_->all_gather(static_cast<std::byte*>(data) + mine, data, size_t(part),
                               ncclBfloat16, static_cast<ncclComm_t>(communicator_), stream_),
              "all-gather", part);
}

Collectives::~Collectives() {
  cudaStreamSynchronize(stream_);
  if (communicator_ != nullptr) api_->destroy(static_cast<ncclComm_t>(communicator_));
  for (const auto& [token, mark] : marks_) {
    if (mark.event != nullptr) cudaEventDestroy(mark.event);
  }
  if (forked_ != nullptr) cudaEventDestroy(forked_);
  cudaStreamDestroy(stream_);
}

#else

struct Collectives::Api {};

void Collectives::open(const std::string&) { refusal_ = "this build has no NCCL"; }

void Collectives::all_reduce(const void*, void*, int64_t, DType) {
  throw_error(ErrorKind::comm, "{}", refusal_);
}
void Collectives::exchange(const void*, void*, int64_t) {
  throw_error(ErrorKind::comm, "{}", refusal_);
}
void Collectives::all_gather(void*, int64_t) { throw_error(ErrorKind::comm, "{}", refusal_); }

Collectives::~Collectives() {
  cudaStreamSynchronize(stream_);
  for (const auto& [token, mark] : marks_) {
    if (mark.event != nullptr) cudaEventDestroy(mark.event);
  }
  if (forked_ != nullptr) cudaEventDestroy(forked_);
  cudaStreamDestroy(stream_);
}

#endif

Collectives::Collectives(Communicator& ranks, const std::string& gpu)
    : ranks_(ranks), failure_(std::make_unique<Failure>()) {
  // Work that waits for other machines gets the higher priority.
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "a stream for collectives");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
        "a stream for collectives");
  check(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming), "an event for collectives");
  open(gpu);
}

void Collectives::fork(CUstream_st* main) {
  check(cudaEventRecord(forked_, main), "the start of an all-reduce");
  check(cudaStreamWaitEvent(stream_, forked_, 0), "the start of an all-reduce");
}

void Collectives::leave(const void* token) {
  Mark& mark = marks_[token];
  if (mark.event == nullptr) {
    check(cudaEventCreateWithFlags(&mark.event, cudaEventDisableTiming), "an event");
  }
  check(cudaEventRecord(mark.event, stream_), "the start of an all-reduce");
  mark.pending = true;
}

void Collectives::join(const void* token, CUstream_st* main) {
  Mark& mark = marks_[token];
  if (!mark.pending) return;
  check(cudaStreamWaitEvent(main, mark.event, 0), "the wait for an all-reduce");
  mark.pending = false;
}

void Collectives::set_failure(const std::string& message) noexcept {
  const std::scoped_lock lock(failure_->mutex);
  if (failure_->message.empty()) failure_->message = message;
}

void Collectives::check_failure() {
  const std::scoped_lock lock(failure_->mutex);
  if (!failure_->message.empty()) throw Error(ErrorKind::comm, failure_->message);
}

}  // namespace ridgeline::cuda
