// The only file that uses MPI. It is a shared object of its own, opened when a launcher has started
// several ranks: the tool starts where no MPI is installed, and a single process never loads or
// initialises it.
#include "ridgeline/dist/transport.h"

#include <mpi.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <climits>
#include <limits>
#include <vector>

#include "ridgeline/core/reserve_memory.h"

// Whether MPI accepts GPU memory: an extension of Open MPI that others have too. Null if the
// library that is found at run time lacks it.
extern "C" int MPIX_Query_cuda_support(void) __attribute__((weak, visibility("default")));

namespace ridgeline::dist {
namespace {

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw_error(ErrorKind::comm, "{} failed: {}", what, std::string(text, size_t(length)));
}

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return MPI_DOUBLE;
    case DType::fp32:
      return MPI_FLOAT;
    case DType::int64:
      return MPI_INT64_T;
    case DType::int32:
      return MPI_INT32_T;
    default:
      throw_error(ErrorKind::comm, "MPI does not add up {} values", name(dtype));
  }
}

MPI_Op op_of(Reduce how) {
  return how == Reduce::sum ? MPI_SUM : how == Reduce::max ? MPI_MAX : MPI_MIN;
}

int narrow(int64_t count) {
  if (count > INT_MAX) throw_error(ErrorKind::comm, "MPI takes no {} elements at once", count);
  return int(count);
}

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init");
    any_thread_ = provided >= MPI_THREAD_SERIALIZED;
    // Our own communicator, so that a library that uses MPI too cannot interfere with our messages.
    check(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
    check(MPI_Comm_dup(world_, &pairs_), "MPI_Comm_dup");
    check(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(world_, &size_), "MPI_Comm_size");
    MPI_Comm host = MPI_COMM_NULL;
    check(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
          "MPI_Comm_split_type");
    check(MPI_Comm_rank(host, &local_rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(host, &local_size_), "MPI_Comm_size");
    MPI_Comm_free(&host);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  bool any_thread() const override { return any_thread_; }
  bool takes_device_memory() const override {
    return MPIX_Query_cuda_support != nullptr && MPIX_Query_cuda_support() == 1;
  }

  std::string library() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, size_t(std::max(0, length)));
    return all.substr(0, all.find_first_of(",\n"));
  }

  void barrier() override { check(MPI_Barrier(world_), "MPI_Barrier"); }

  void broadcast(void* data, size_t bytes, int root) override {
    // Sent in chunks, because counts are ints.
    constexpr size_t kChunk = size_t{1} << 30;
    auto* at = static_cast<std::byte*>(data);
    for (size_t done = 0; done < bytes; done += kChunk) {
      const size_t part = std::min(kChunk, bytes - done);
      check(MPI_Bcast(at + done, int(part), MPI_BYTE, root, world_), "MPI_Bcast");
    }
  }

  void all_gather(const void* mine, void* all, size_t bytes) override {
    const int count = narrow(int64_t(bytes));
    check(MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, world_), "MPI_Allgather");
  }

  void all_reduce(const void* from, void* to, int64_t count, DType dtype, Reduce how) override {
    check(MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, narrow(count), type_of(dtype),
                        op_of(how), world_),
          "MPI_Allreduce");
  }

  void reduce_scatter(const void* from, void* to, std::span<const int64_t> counts,
                      DType dtype) override {
    lay_out(counts);
    check(MPI_Reduce_scatter(from, to, counts_.data(), type_of(dtype), MPI_SUM, world_),
          "MPI_Reduce_scatter");
  }

  void all_gather_parts(void* data, std::span<const int64_t> counts,
                        size_t element_bytes) override {
    lay_out(counts, element_bytes);
    check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, counts_.data(), offsets_.data(),
                         MPI_BYTE, world_),
          "MPI_Allgatherv");
  }

  void exchange_parts(const void* from, void* to, std::span<const int64_t> counts,
                      size_t element_bytes) override {
    lay_out(counts, element_bytes);
    const int mine = counts_[size_t(rank_)];
    in_counts_.assign(size_t(size_), mine);
    in_offsets_.resize(size_t(size_));
    for (int r = 0; r < size_; ++r) in_offsets_[size_t(r)] = narrow(int64_t(r) * mine);
    check(MPI_Alltoallv(from, counts_.data(), offsets_.data(), MPI_BYTE, to, in_counts_.data(),
                        in_offsets_.data(), MPI_BYTE, world_),
          "MPI_Alltoallv");
  }

  SharedSegments shared_segments(size_t least, size_t more) override {
    if (local_size_ != size_) return {};
    const size_t free = free_bytes();
    // If more is requested than available, Open MPI fails on one rank, and the others wait for it.
    if (free < least + kPage) return {};
    const size_t bytes = std::clamp(free / 2 / kPage * kPage, least, least + more);
    std::byte* mine = nullptr;
    // Without enough shared memory the sums use messages. Either all ranks have it or none.
    const int code = MPI_Win_allocate_shared(MPI_Aint(bytes + kPage), 1, MPI_INFO_NULL, world_,
                                             static_cast<void*>(&mine), &window_);
    int worst = code == MPI_SUCCESS ? 0 : 1;
    check(MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, world_), "MPI_Allreduce");
    if (worst != 0) {
      window_ = MPI_WIN_NULL;  // not freed: that is collective, and some ranks have none
      return {};
    }
    std::vector<std::byte*> segments(size_t(size_), nullptr);
    for (int r = 0; r < size_; ++r) {
      MPI_Aint size = 0;
      int unit = 0;
      check(
          MPI_Win_shared_query(window_, r, &size, &unit, static_cast<void*>(&segments[size_t(r)])),
          "MPI_Win_shared_query");
      segments[size_t(r)] = next_page(segments[size_t(r)]);
    }
    // Memory beyond `least` is not allocated until it is reserved.
    int reserved = reserve_memory(segments[size_t(rank_)], least) ? 1 : 0;
    check(MPI_Allreduce(MPI_IN_PLACE, &reserved, 1, MPI_INT, MPI_MIN, world_), "MPI_Allreduce");
    if (reserved == 0) return {};
    return {std::move(segments), bytes};
  }

  Request start_send(int to, const void* data, size_t bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(data, narrow(int64_t(bytes)), MPI_BYTE, to, kTag, pairs_, &request),
          "MPI_Isend");
    return place_of(request);
  }

  bool probe(Envelope& found) override {
    int there = 0, bytes = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kTag, pairs_, &there, &status), "MPI_Iprobe");
    if (!there) return false;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    found = {status.MPI_SOURCE, size_t(bytes)};
    return true;
  }

  Request start_receive(const Envelope& message, void* data) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(data, narrow(int64_t(message.bytes)), MPI_BYTE, message.from, kTag, pairs_,
                    &request),
          "MPI_Irecv");
    return place_of(request);
  }

  bool test(Request request) override {
    int done = 0;
    check(MPI_Test(&requests_[size_t(request)], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) free_.push_back(request);
    return done != 0;
  }

  void finish() override {
    int done = 0;
    MPI_Finalized(&done);
    if (done) return;
    if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
    MPI_Comm_free(&pairs_);
    MPI_Comm_free(&world_);
    check(MPI_Finalize(), "MPI_Finalize");
  }

  void abort(int code) noexcept override { MPI_Abort(MPI_COMM_WORLD, code); }

 private:
  // MPI's alignment of segments is unspecified. All ranks map them by whole pages, so all find the
  // same address offset.
  static constexpr size_t kPage = 4096;
  static std::byte* next_page(std::byte* at) {
    const auto past = reinterpret_cast<uintptr_t>(at) % kPage;
    return past == 0 ? at : at + (kPage - past);
  }

  // A rank's share of the free shared memory, the same on all: containers have little of it (64 MiB
  // by default), and MPI itself needs some.
  size_t free_bytes() {
    struct statvfs disk {};
    uint64_t bytes = std::numeric_limits<uint64_t>::max();
    if (::statvfs("/dev/shm", &disk) == 0 && disk.f_blocks != 0) {  // 0: no limit
      bytes = uint64_t(disk.f_bavail) * disk.f_frsize / uint64_t(size_);
    }
    check(MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_UINT64_T, MPI_MIN, world_), "MPI_Allreduce");
    return size_t(bytes);
  }

  // Converts counts and offsets for MPI, in bytes or elements.
  void lay_out(std::span<const int64_t> counts, size_t scale = 1) {
    counts_.resize(counts.size());
    offsets_.resize(counts.size());
    int64_t at = 0;
    for (size_t r = 0; r < counts.size(); ++r) {
      counts_[r] = narrow(counts[r] * int64_t(scale));
      offsets_[r] = narrow(at);
      at += counts[r] * int64_t(scale);
    }
  }

  Request place_of(MPI_Request request) {
    if (free_.empty()) {
      requests_.push_back(request);
      return Request(requests_.size()) - 1;
    }
    const Request place = free_.back();
    free_.pop_back();
    requests_[size_t(place)] = request;
    return place;
  }

  static constexpr int kTag = 1;
  MPI_Comm world_ = MPI_COMM_NULL, pairs_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<MPI_Request> requests_;
  std::vector<Request> free_;  // indices in requests_
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  bool any_thread_ = false;
  std::vector<int> counts_, offsets_, in_counts_, in_offsets_;
};

}  // namespace
}  // namespace ridgeline::dist

extern "C" __attribute__((visibility("default"))) ridgeline::dist::Transport*
ridgeline_mpi_transport() {
  return new ridgeline::dist::MpiTransport;
}
