#include "ridgeline/cuda/population/group.h"

#include <algorithm>
#include <tuple>

#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/population/kernels.h"

namespace ridgeline::cuda {
namespace {

auto key(const PopulationShape& s) {
  return std::tuple(s.inputs, s.hidden, s.classes, s.batch, s.numbers, s.rule);
}

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event of a population");
  return event;
}

}  // namespace

PopulationGroup::PopulationGroup(int gpu)
    : runtime_(gpu), uploaded_(make_event()), done_(make_event()) {}

PopulationGroup::~PopulationGroup() {
  cudaStreamSynchronize(runtime_.stream());
  for (const cudaEvent_t event : ready_) cudaEventDestroy(event);
  for (const cudaEvent_t event : {uploaded_, done_}) cudaEventDestroy(event);
  if (host_args_ != nullptr) cudaFreeHost(host_args_);
}

size_t PopulationGroup::free_bytes() const { return runtime_.free_memory(); }

std::string PopulationGroup::kernel() const { return kPopulationKernel; }

void PopulationGroup::entered() {
  // The current device is a property of each thread.
  check(cudaSetDevice(runtime_.device().index), to_string(runtime_.device()));
  const std::lock_guard lock(mutex_);
  ++inside_;
}

void PopulationGroup::left() noexcept {
  const std::lock_guard lock(mutex_);
  --inside_;
  if (!waiting_.empty() && int(waiting_.size()) >= inside_) launch_all();
}

void* PopulationGroup::resident(const void* host, size_t bytes) {
  const std::lock_guard lock(copying_);
  const auto [at, fresh] = copies_.try_emplace({host, bytes});
  if (fresh) {
    at->second = DeviceBuffer(runtime_, bytes);
    runtime_.upload(at->second.data(), host, bytes);
    runtime_.synchronize();  // other streams read it from now on
  }
  return at->second.data();
}

void PopulationGroup::train(const PopulationShape& shape, const MemberArgs& args,
                            cudaStream_t stream) {
  Request request{shape, args, stream, {}};
  std::unique_lock lock(mutex_);
  waiting_.push_back(&request);
  if (int(waiting_.size()) >= inside_) {
    launch_all();
  } else {
    launched_.wait(lock, [&] { return request.launched; });
  }
  if (!request.failure.empty()) throw_error(ErrorKind::device, "{}", request.failure);
}

void PopulationGroup::launch_all() noexcept {
  std::string failure;
  try {
    launch_waiting();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  for (Request* request : waiting_) {
    request->failure = failure;
    request->launched = true;
  }
  waiting_.clear();
  launched_.notify_all();
}

void PopulationGroup::make_room(size_t members) {
  while (ready_.size() < members) ready_.push_back(make_event());
  if (members <= room_) return;
  runtime_.synchronize();
  if (host_args_ != nullptr) cudaFreeHost(host_args_);
  host_args_ = nullptr;
  room_ = 0;
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, members * sizeof(MemberArgs)), "pinned memory of a population");
  host_args_ = static_cast<MemberArgs*>(pinned);
  args_ = DeviceBuffer(runtime_, members * sizeof(MemberArgs));
  room_ = members;
}

void PopulationGroup::launch_waiting() {
  const cudaStream_t stream = runtime_.stream();
  make_room(waiting_.size());
  // Members of one shape must be adjacent; the order among them does not matter.
  std::ranges::stable_sort(
      waiting_, [](const Request* a, const Request* b) { return key(a->shape) < key(b->shape); });
  check(cudaEventSynchronize(uploaded_), "the last launch of a population");
  for (size_t i = 0; i < waiting_.size(); ++i) {
    host_args_[i] = waiting_[i]->args;
    check(cudaEventRecord(ready_[i], waiting_[i]->stream), "a member of a population");
    check(cudaStreamWaitEvent(stream, ready_[i], 0), "a member of a population");
  }
  check(cudaMemcpyAsync(args_.data(), host_args_, waiting_.size() * sizeof(MemberArgs),
                        cudaMemcpyHostToDevice, stream),
        "the arguments of a population");
  check(cudaEventRecord(uploaded_, stream), "the arguments of a population");
  const auto* members = reinterpret_cast<const MemberArgs*>(args_.data());
  for (size_t begin = 0; begin < waiting_.size();) {
    const PopulationShape& shape = waiting_[begin]->shape;
    size_t end = begin;
    while (end < waiting_.size() && key(waiting_[end]->shape) == key(shape)) ++end;
    // A few members get more blocks each, as long as all of them run at once.
    const auto count = int(end - begin);
    PopulationLayout layout = population_layout(shape, /*fewest_blocks=*/false);
    if (count * layout.blocks > runtime_.sms()) layout = population_layout(shape, true);
    check(train_population(shape, layout, members + begin, count, {}, stream),
          "training a population");
    begin = end;
  }
  check(cudaEventRecord(done_, stream), "a launch of a population");
  for (const Request* request : waiting_) {
    check(cudaStreamWaitEvent(request->stream, done_, 0), "a launch of a population");
  }
}

}  // namespace ridgeline::cuda
