// Collectives of one rank on one GPU, inside captured graphs: they must not change any bit.
#include <gtest/gtest.h>

#include <cstring>

#include "ridgeline/cuda/kernels.h"
#include "ridgeline/cuda/libraries/nccl.h"
#include "ridgeline/data/batches.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/engine/weights.h"
#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/linear.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/plan/planner.h"
#include "tests/cuda/device_self.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

class CudaCollectives : public test::GpuTest {};

// The weights after 20 steps in launches of up to 8, with the start kernels whose names begin with
// `start`.
std::string weights_after(Machine& machine, int ranks, const char* start, DType wire) {
  const Config config = testing::small_config(
      {"train.clip_norm=0", "train.optimizer={type=\"sgd\",lr=0.1,momentum=0.9}"});
  const auto set = testing::small_set();
  nn::Model model = config.build_model(set->train.sample_shape());
  model.initialise(3);
  nn::LowerOptions options =
      lower_options(config, scaling_for(config.data.scale, set->train), set->train.classes);
  options.batch = 16;
  options.repeats = 8;
  options.set_samples = options.order_samples = set->train.size();
  options.ranks = ranks;
  options.gradient_wire = wire;
  nn::Lowered lowered = nn::lower(model, options);
  ResidentSet resident(machine.runtime(), set->train);
  resident.set_order(data::epoch_order(set->train.size(), 1, 0, true));
  const Weights weights(machine.runtime(), model, lowered);
  Externals shared;
  resident.bind(lowered, shared);
  weights.bind(lowered, shared);
  Runner runner(machine, std::move(lowered), shared);
  bool found = ranks == 0;
  for (const std::string& kernel : runner.kernel_names()) found |= kernel.starts_with(start);
  EXPECT_TRUE(found) << start;
  const std::vector<double> rates(8, 0.1);
  for (int launch = 0; launch < 4; ++launch) runner.launch(launch % 2 * 16, 5, 5 * launch, rates);
  std::string bits;
  for (const Snapshot::Item& item : weights.download().items) {
    bits.append(item.value.view().as<char>(), item.value.view().bytes());
  }
  return bits;
}

// A runtime that looks like a GPU to kernels that are asked what they cover.
class AskedGpu final : public Runtime {
 public:
  Device device() const override { return {DeviceKind::cuda, 0}; }
  std::string fingerprint() const override { return "asked"; }
  void* allocate(size_t) override { return nullptr; }
  void release(void*) noexcept override {}
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  void synchronize() override {}
  double time(const std::function<void()>&, double) override { return 0; }
};

// Why the kernel that passes GPU memory to MPI refuses a sum of such values; "" if it takes it.
std::string mpi_refusal(Communicator* ranks, DType dtype, DType wire) {
  Program program;
  const Value grad = program.add_value("grad", dtype, {5}, Role::param);
  const Value sum = program.add_value("sum", dtype, {5}, Role::param);
  const Value token = program.add_value("token", DType::int64, {1}, Role::temp);
  program.add(AllReduceStart{{grad}, {sum}, token, 2, wire});
  AskedGpu gpu;
  gpu.set_ranks(ranks);
  for (const Kernel& kernel : cuda::kernels()) {
    if (kernel.name != "cuda.all_reduce_start.mpi") continue;
    EXPECT_TRUE(kernel.traits.between_graphs);
    const Cover cover = kernel.covers({program, 0, gpu});
    EXPECT_EQ(cover.ops, cover.reason.empty() ? 1u : 0u);
    return cover.reason;
  }
  return "there is no such kernel";
}

TEST(CudaMpiKernel, TakesWhatTheLibrarySaysItTakes) {
  dist::SelfCommunicator host_only;
  test::DeviceSelf aware, unaware("Some MPI 1.0 does not say that it takes memory of a GPU");
  for (const DType dtype : {DType::fp32, DType::fp64}) {
    EXPECT_EQ(mpi_refusal(&aware, dtype, DType::fp32), "");
    EXPECT_EQ(mpi_refusal(&unaware, dtype, DType::fp32), unaware.device_refusal());
    EXPECT_EQ(mpi_refusal(&host_only, dtype, DType::fp32),
              "these ranks take the host's memory only");
    EXPECT_EQ(mpi_refusal(nullptr, dtype, DType::fp32), "this process is alone");
  }
  EXPECT_EQ(mpi_refusal(&aware, DType::fp32, DType::bf16), "sends no bf16");
  EXPECT_EQ(mpi_refusal(&aware, DType::fp64, DType::bf16), "");  // sent unchanged
  EXPECT_EQ(mpi_refusal(&aware, DType::bf16, DType::fp32), "adds up fp32 and fp64 only");
}

TEST_F(CudaCollectives, CollectivesOfOneRankChangeNoBit) {
  test::DeviceSelf alone;
  RunConfig run;
  run.device = "cuda";
  run.tune = false;
  const auto without = [&](const std::vector<const char*>& kernels) {
    auto machine = std::make_unique<Machine>(run);
    machine->runtime().set_ranks(&alone);
    cuda::cuda_runtime(machine->runtime()).connect_ranks();
    machine->except([&](const Kernel& kernel) {
      for (const char* name : kernels) {
        if (kernel.name.starts_with(name)) return true;
      }
      return false;
    });
    return machine;
  };
  // Kernels that update directly would round differently, so they are excluded on both sides.
  const auto plain = without({"cuda.mlp_train", "cuda.mlp_step", "cuda.program", "cuda.head_sgd",
                              "cuda.linear_grad_w_sgd"});
  const std::string want = weights_after(*plain, 0, "", DType::fp32);
  // Between two graphs.
  const auto mpi =
      without({"cuda.mlp_train", "cuda.all_reduce_start.nccl", "cuda.all_reduce_start.staged"});
  EXPECT_EQ(weights_after(*mpi, 1, "cuda.all_reduce_start.mpi", DType::fp32), want);
  const auto staged =
      without({"cuda.mlp_train", "cuda.all_reduce_start.nccl", "cuda.all_reduce_start.mpi"});
  EXPECT_EQ(weights_after(*staged, 1, "cuda.all_reduce_start.staged", DType::fp32), want);
  const auto nccl =
      without({"cuda.mlp_train", "cuda.all_reduce_start.staged", "cuda.all_reduce_start.mpi"});
  const std::string& refusal = cuda::cuda_runtime(nccl->runtime()).collectives()->nccl_refusal();
  if (!refusal.empty()) GTEST_SKIP() << refusal;
  EXPECT_EQ(weights_after(*nccl, 1, "cuda.all_reduce_start.nccl", DType::fp32), want);
  // One rank's gradients are rounded like those of several, in both cases.
  const std::string narrow = weights_after(*staged, 1, "cuda.all_reduce_start.staged", DType::bf16);
  EXPECT_NE(narrow, want);
  EXPECT_EQ(weights_after(*nccl, 1, "cuda.all_reduce_start.nccl", DType::bf16), narrow);
}

}  // namespace
}  // namespace ridgeline::engine
