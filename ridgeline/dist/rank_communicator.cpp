#include "ridgeline/dist/rank_communicator.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "ridgeline/core/file.h"
#include "ridgeline/core/reserve_memory.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/dist/self.h"

namespace ridgeline::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOpen = 1024;  // tickets at a time; a further start waits for the oldest
// A waiter polls this often before it sleeps: most waits are shorter than a sleep and its wake-up.
constexpr int kSpins = 2000;

// Bytes of shared memory that each rank requests: enough for the gradients of a few million
// weights; a host with less gives what it has.
constexpr size_t kMostSegment = size_t{32} << 20;

template <typename To, typename From>
void convert(const From* from, To* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = To(float(from[i]));
}

// Collective: one rank whose library does not accept it is enough.
std::string refuse_device_memory(Transport& transport) {
  const int32_t mine = transport.takes_device_memory() ? 1 : 0;
  int32_t all = mine;
  transport.all_reduce(&mine, &all, 1, DType::int32, Reduce::min);
  if (all == 1) return {};
  return fmt::format("{} does not say{} that it takes memory of a GPU", transport.library(),
                     mine == 1 ? " on every rank" : "");
}

}  // namespace

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
      .count();
}

// Rounds like the wire format, so that one rank computes what several do.
void SelfCommunicator::all_reduce(const void* from, void* to, int64_t count, DType dtype, Reduce,
                                  DType wire) {
  if (wire == DType::bf16 && dtype == DType::fp32) {
    const auto* source = static_cast<const float*>(from);
    auto* target = static_cast<float*>(to);
    for (int64_t i = 0; i < count; ++i) target[i] = float(Bf16(source[i]));
    return;
  }
  if (from != to && count > 0) std::memcpy(to, from, size_t(count) * size_of(dtype));
}

// While an object lives, the caller is blocked: its time is counted, and it need not make progress.
class RankCommunicator::Waiting {
 public:
  explicit Waiting(RankCommunicator& ranks) : ranks_(ranks), working_(ranks.pulse_ != 0) {
    ranks.pulse_ = 0;
  }
  ~Waiting() {
    ranks_.blocked_ += std::chrono::duration<double>(Clock::now() - start_).count();
    if (working_) ranks_.pulse_ = now_ms();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  RankCommunicator& ranks_;
  bool working_;
  Clock::time_point start_ = Clock::now();
};

RankCommunicator::RankCommunicator(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)),
      device_refusal_(refuse_device_memory(*transport_)),
      ring_(kMostOpen) {
  const SharedSegments shared = transport_->shared_segments(SharedSum::kBytes, kMostSegment);
  if (shared.begins.empty()) return;
  segment_bytes_ = shared.bytes - SharedSum::kBytes;
  if (segment_bytes_ > 0) {
    for (std::byte* begin : shared.begins) segments_.push_back(begin + SharedSum::kBytes);
  }
  shared_.emplace(shared.begins, transport_->rank());
}

bool RankCommunicator::reserve(size_t bytes) {
  if (bytes <= reserved_) return true;
  if (bytes > segment_bytes_) return false;
  if (!reserve_memory(segments_[size_t(rank())] + reserved_, bytes - reserved_)) return false;
  reserved_ = bytes;
  return true;
}

RankCommunicator::~RankCommunicator() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void RankCommunicator::set_hooks(RankHooks hooks) {
  const std::scoped_lock lock(hooking_);
  hooks_ = std::move(hooks);
}

void RankCommunicator::set_end(std::function<void(int code, const std::string& message)> end) {
  end_ = std::move(end);
}

void RankCommunicator::end(int code, const std::string& message) {
  if (end_) end_(code, message);
  write_stderr("ridgeline: " + one_line(message) + "\n");
  ::_exit(code);
}

RankHooks RankCommunicator::hooks() const {
  const std::scoped_lock lock(hooking_);
  return hooks_;
}

std::span<const int64_t> RankCommunicator::parts(int64_t count) {
  parts_.clear();
  for (int r = 0; r < size(); ++r) {
    const Range part = split(count, r, size());
    parts_.push_back(part.end - part.begin);
  }
  return parts_;
}

// Each rank sums one part, which all others send it, and sends the sum to all: half the bytes of
// fp32 at the cost of two roundings, for any number of ranks.
void RankCommunicator::do_bf16_sum(const Job& job) {
  const auto counts = parts(job.count);
  const int64_t mine = counts[size_t(rank())];
  packed_.resize(size_t(job.count));
  received_.resize(size_t(mine * size()));
  convert(static_cast<const float*>(job.from), packed_.data(), job.count);
  transport_->exchange_parts(packed_.data(), received_.data(), counts, sizeof(Bf16));
  Bf16* sum = packed_.data() + split(job.count, rank(), size()).begin;
  for (int64_t i = 0; i < mine; ++i) {
    float total = 0;
    for (int r = 0; r < size(); ++r) total += float(received_[size_t(r * mine + i)]);
    sum[i] = Bf16(total);
  }
  transport_->all_gather_parts(packed_.data(), counts, sizeof(Bf16));
  convert(packed_.data(), static_cast<float*>(job.to), job.count);
}

void RankCommunicator::do_all_reduce(const Job& job, Reduce how) {
  if (job.count == 0) return;
  if (how == Reduce::sum && job.wire == DType::bf16 && job.dtype == DType::fp32) {
    return do_bf16_sum(job);
  }
  if (shared_ && how == Reduce::sum && (job.dtype == DType::fp32 || job.dtype == DType::fp64)) {
    return shared_->all_reduce(job.from, job.to, job.count, job.dtype);
  }
  if (job.dtype != DType::bf16 && job.dtype != DType::fp16) {
    return transport_->all_reduce(job.from, job.to, job.count, job.dtype, how);
  }
  dispatch_float(job.dtype, [&](auto zero) {  // half types are added in fp32
    using T = decltype(zero);
    wide_.resize(size_t(job.count));
    convert(static_cast<const T*>(job.from), wide_.data(), job.count);
    transport_->all_reduce(wide_.data(), wide_.data(), job.count, DType::fp32, how);
    convert(wide_.data(), static_cast<T*>(job.to), job.count);
  });
}

void RankCommunicator::do_scatter(const Job& job) {
  auto* to = static_cast<std::byte*>(job.to) +
             split(job.count, rank(), size()).begin * int64_t(size_of(job.dtype));
  if (shared_) return shared_->reduce_scatter(job.from, to, job.count, job.dtype);
  transport_->reduce_scatter(job.from, to, parts(job.count), job.dtype);
}

void RankCommunicator::do_job(const Job& job) {
  if (job.scatter) return do_scatter(job);
  do_all_reduce(job, Reduce::sum);
}

void RankCommunicator::barrier() {
  wait(started_);
  const Waiting waiting(*this);
  transport_->barrier();
}

void RankCommunicator::broadcast(void* data, size_t bytes, int root) {
  wait(started_);
  const Waiting waiting(*this);
  transport_->broadcast(data, bytes, root);
}

void RankCommunicator::all_gather(const void* mine, void* all, size_t bytes) {
  wait(started_);
  const Waiting waiting(*this);
  transport_->all_gather(mine, all, bytes);
}

void RankCommunicator::all_reduce(const void* from, void* to, int64_t count, DType dtype,
                                  Reduce how, DType wire) {
  wait(started_);
  const Waiting waiting(*this);
  do_all_reduce({from, to, count, dtype, wire, false}, how);
}

void RankCommunicator::all_reduce_device(const void* from, void* to, int64_t count, DType dtype) {
  wait(started_);
  const Waiting waiting(*this);
  if (count > 0) transport_->all_reduce(from, to, count, dtype, Reduce::sum);
}

void RankCommunicator::reduce_scatter(const void* from, void* to, int64_t count, DType dtype) {
  wait(started_);
  const Waiting waiting(*this);
  do_scatter({from, to, count, dtype, dtype, true});
}

void RankCommunicator::all_gather_parts(void* data, int64_t count, DType dtype) {
  wait(started_);
  const Waiting waiting(*this);
  if (shared_) return shared_->all_gather_parts(data, count, size_of(dtype));
  transport_->all_gather_parts(data, parts(count), size_of(dtype));
}

Communicator::Ticket RankCommunicator::start_all_reduce(const void* from, void* to, int64_t count,
                                                        DType dtype, DType wire) {
  return start({from, to, count, dtype, wire, false});
}

Communicator::Ticket RankCommunicator::start_reduce_scatter(const void* from, void* to,
                                                            int64_t count, DType dtype) {
  return start({from, to, count, dtype, dtype, true});
}

Communicator::Ticket RankCommunicator::start(const Job& job) {
  if (!transport_->any_thread()) {
    const Waiting waiting(*this);
    do_job(job);
    return 0;
  }
  if (started_ - finished_ >= Ticket(kMostOpen)) wait(started_ - Ticket(kMostOpen) + 1);
  {
    const std::scoped_lock lock(mutex_);
    ring_[size_t(++started_) % kMostOpen] = job;
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  }
  wake_.notify_one();
  return started_;
}

void RankCommunicator::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || finished_ < started_; });
    if (stop_) return;
    const Job job = ring_[size_t(finished_ + 1) % kMostOpen];
    lock.unlock();
    try {
      do_job(job);
    } catch (...) {
      lock.lock();
      if (!failure_) failure_ = std::current_exception();
      failed_ = true;
      lock.unlock();
    }
    lock.lock();
    ++finished_;
    done_.notify_all();
  }
}

bool RankCommunicator::test(Ticket ticket) { return finished_ >= ticket; }

void RankCommunicator::wait(Ticket ticket) {
  if (!test(ticket)) {
    const Waiting waiting(*this);
    for (int i = 0; i < kSpins && !test(ticket); ++i) std::this_thread::yield();
    if (!test(ticket)) {
      std::unique_lock lock(mutex_);
      done_.wait(lock, [&] { return test(ticket); });
    }
  }
  if (failed_) rethrow();
}

void RankCommunicator::wait_until(const std::function<bool()>& done) {
  if (done()) return;
  const Waiting waiting(*this);
  for (int looks = 0; !done(); ++looks) {
    if (looks > kSpins) std::this_thread::yield();
  }
}

void RankCommunicator::rethrow() {
  std::unique_lock lock(mutex_);
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  failed_ = false;
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ridgeline::dist
