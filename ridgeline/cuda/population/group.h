#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "ridgeline/core/launch_group.h"
#include "ridgeline/cuda/population/train.h"
#include "ridgeline/cuda/runtime.h"

namespace ridgeline::cuda {

// Runs whose training launches are combined into one: when all active runs have requested their
// launch, the last one launches for all.
class PopulationGroup final : public LaunchGroup {
 public:
  explicit PopulationGroup(int gpu);
  ~PopulationGroup() override;
  PopulationGroup(const PopulationGroup&) = delete;
  PopulationGroup& operator=(const PopulationGroup&) = delete;

  void* resident(const void* host, size_t bytes) override;
  size_t free_bytes() const override;
  std::string kernel() const override;

  static PopulationGroup* current() {
    return static_cast<PopulationGroup*>(LaunchGroup::current());
  }

  // Enqueues args.steps steps after the work of `stream`, and before its later work. Returns when
  // the combined launch has been made.
  void train(const PopulationShape& shape, const MemberArgs& args, cudaStream_t stream);

 private:
  void entered() override;
  void left() noexcept override;

  struct Request {
    PopulationShape shape;
    MemberArgs args;
    cudaStream_t stream;
    std::string failure;
    bool launched = false;
  };
  void launch_all() noexcept;  // requires the mutex
  void launch_waiting();
  void make_room(size_t members);

  CudaRuntime runtime_;
  std::mutex mutex_;
  std::condition_variable launched_;
  int inside_ = 0;
  std::vector<Request*> waiting_;
  std::vector<cudaEvent_t> ready_;  // recorded on the members' streams
  cudaEvent_t uploaded_ = nullptr, done_ = nullptr;
  MemberArgs* host_args_ = nullptr;  // pinned
  DeviceBuffer args_;
  size_t room_ = 0;
  std::mutex copying_;
  std::map<std::pair<const void*, size_t>, DeviceBuffer> copies_;
};

}  // namespace ridgeline::cuda
