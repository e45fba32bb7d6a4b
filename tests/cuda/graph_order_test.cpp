// Steps of a graph that run concurrently: which wait for which, and that the results do not change.
#include "ridgeline/cuda/graph_order.h"

#include <cuda_runtime.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/kernels.h"
#include "ridgeline/dist/self.h"
#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/conv.h"
#include "ridgeline/nn/dropout.h"
#include "ridgeline/nn/linear.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/nn/pool.h"
#include "ridgeline/plan/planner.h"
#include "ridgeline/plan/segments.h"
#include "tests/cuda/device_self.h"
#include "tests/cuda/device_values.h"
#include "tests/cuda/gpu.h"

namespace ridgeline::test {
namespace {

class CudaGraphOrder : public GpuTest {};

// A captured graph of parts that each clear some memory.
class Captured {
 public:
  explicit Captured(cudaStream_t stream) : stream_(stream), order_(stream) {
    cuda::check(cudaMalloc(&memory_, kBytes), "memory");
    cuda::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "a capture");
  }
  ~Captured() {
    cudaGraphDestroy(graph_);
    cudaFree(memory_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  // Uses `count` bytes from `at` on.
  cuda::MemoryUse use(size_t at, size_t count, bool written) const {
    const auto* begin = static_cast<const std::byte*>(memory_) + at;
    return {begin, begin + count, written};
  }
  void part(const cuda::MemoryUses& uses) {
    order_.enter(uses);
    clear();
    order_.leave();
  }
  void clear() { cuda::check(cudaMemsetAsync(memory_, 0, kBytes, stream_), "clearing"); }

  // Pairs of nodes of which one waits for the other; nodes are numbered in their order.
  size_t edges() {
    cuda::check(cudaStreamEndCapture(stream_, &graph_), "a capture");
    size_t count = 0;
#if CUDART_VERSION >= 13000
    cuda::check(cudaGraphGetEdges(graph_, nullptr, nullptr, nullptr, &count), "edges");
#else
    cuda::check(cudaGraphGetEdges(graph_, nullptr, nullptr, &count), "edges");
#endif
    return count;
  }

 private:
  static constexpr size_t kBytes = 1024;
  cudaStream_t stream_;
  cuda::GraphOrder order_;
  void* memory_ = nullptr;
  cudaGraph_t graph_ = nullptr;
};

TEST_F(CudaGraphOrder, PartsWaitForThoseThatUseTheSameMemory) {
  Captured graph(gpu().stream());
  graph.part({graph.use(0, 100, true)});
  graph.part({graph.use(100, 100, true)});                           // beside the first
  graph.part({graph.use(0, 100, false), graph.use(300, 10, true)});  // after the first
  graph.part({graph.use(50, 10, false)});                            // after the first too
  graph.part({graph.use(0, 200, true)});  // after the second, third and fourth, so the first
  EXPECT_EQ(graph.edges(), 2u + 3u);
}

TEST_F(CudaGraphOrder, WorkOutsideOfPartsAndThatOnAllMemoryRunsAlone) {
  Captured graph(gpu().stream());
  graph.part({graph.use(0, 10, true)});
  graph.part({graph.use(20, 10, true)});
  graph.clear();                          // after both
  graph.part({graph.use(40, 10, true)});  // after that
  graph.part({graph.use(60, 10, true)});  // likewise
  graph.part(cuda::all_memory());         // after both
  EXPECT_EQ(graph.edges(), 2u + 2u + 2u);
}

// What a training step has beside its layers: each adds ops that read what others write.
struct Training {
  const char* name;
  Precision precision;
  double dropout = 0, clip_norm = 0;
  nn::LossScale::Kind scale = nn::LossScale::Kind::none;
  int ranks = 0;
};

// A small conv net's training, lowered as the engine does.
class ConvNet {
 public:
  explicit ConvNet(const Training& training)
      : model_({conv(8), relu(), halves(), conv(40), relu(), halves(),
                std::make_shared<nn::LinearLayer>(600, true), relu(),
                std::make_shared<nn::DropoutLayer>(training.dropout),
                std::make_shared<nn::LinearLayer>(kClasses, true)},
               {1, kSide, kSide}, DType::fp32) {
    model_.initialise(5);
    nn::LowerOptions options;
    options.precision = training.precision;
    options.clip_norm = training.clip_norm;
    options.loss_scale.kind = training.scale;
    options.loss_scale.growth = 6;  // grows, overflows and falls within the steps
    options.ranks = training.ranks;
    options.batch = kBatch;
    options.repeats = kSteps;
    options.set_samples = kSamples;
    options.order_samples = kSteps * kBatch;
    options.classes = kClasses;
    options.scale = 1.0 / 255;
    options.optimizer.kind = nn::OptimizerKind::adam;
    lowered_ = nn::lower(model_, options);
  }

  static constexpr int64_t kSteps = 40;  // more than one graph's worth
  const Program& program() const { return lowered_.program; }

  Arrays inputs() const {
    Arrays arrays(program());
    for (const ValueInfo& info : program().values) {
      if (info.role == Role::state || info.role == Role::input) {
        std::memset(arrays[info.value].data, 0, arrays[info.value].bytes());
      }
    }
    for (int64_t i = 0; i < kSamples * kSide * kSide; ++i) {
      arrays[lowered_.inputs].as<uint8_t>()[i] = uint8_t(i * 37 % 251);
    }
    for (int64_t i = 0; i < kSamples; ++i) {
      arrays[lowered_.targets].as<int32_t>()[i] = int32_t(i % kClasses);
    }
    const Tensor &order = arrays[lowered_.order], &rates = arrays[lowered_.lr];
    for (int64_t i = 0; i < order.numel(); ++i) order.as<int32_t>()[i] = int32_t(i * 7 % kSamples);
    for (int64_t i = 0; i < rates.numel(); ++i) rates.as<double>()[i] = 1e-3;
    for (size_t i = 0; i < lowered_.params.size(); ++i) {
      const Tensor& from = model_.params()[i].value.view();
      std::memcpy(arrays[lowered_.params[i]].data, from.data, from.bytes());
    }
    for (const auto& state : lowered_.states) {
      const Tensor& to = arrays[state.value];
      for (int64_t i = 0; i < to.numel(); ++i) set_element(to, i, state.start);
    }
    return arrays;
  }

 private:
  static constexpr int64_t kSide = 12, kClasses = 7, kSamples = 29, kBatch = 9;
  static nn::LayerPtr conv(int64_t out) {
    nn::ConvLayer::Settings settings;
    settings.out = out;
    settings.window = {Slide{5, 1, 2, 1}, Slide{5, 1, 2, 1}};
    return std::make_shared<nn::ConvLayer>(settings);
  }
  static nn::LayerPtr relu() { return std::make_shared<nn::ActivationLayer>(ActivationKind::relu); }
  static nn::LayerPtr halves() {
    const Slide two{2, 2, 0, 1};
    return std::make_shared<nn::PoolLayer>(nn::PoolKind::max, nn::Axes::two, Window{two, two},
                                           PoolCount::window);
  }

  nn::Model model_;
  nn::Lowered lowered_;
};

// Graphs of many steps give the same bits as the kernels run one by one.
void expect_kernels_one_by_one(const ConvNet& net, const Choices& choices, Runtime& gpu,
                               const std::string& name) {
  const Arrays inputs = net.inputs();
  const DeviceValues graphs(gpu, net.program(), inputs), single(gpu, net.program(), inputs);
  Plan whole(gpu, net.program(), choices, graphs.externals());
  Plan singly(gpu, net.program(), choices, single.externals());
  whole.run(ConvNet::kSteps);
  for (int64_t step = 0; step < ConvNet::kSteps; ++step) {
    for (size_t i = 0; i < choices.size(); ++i) singly.run_choice(i);
  }
  const Arrays a = graphs.read(), b = single.read();
  for (const ValueInfo& info : net.program().values) {
    if (info.role == Role::temp) continue;
    const Tensor &x = a[info.value], &y = b[info.value];
    EXPECT_EQ(std::memcmp(x.data, y.data, x.bytes()), 0) << info.name << " of " << name;
  }
}

TEST_F(CudaGraphOrder, AGraphOfTrainingStepsIsItsKernelsOneByOne) {
  const KernelTable table = cuda::kernels();
  dist::SelfCommunicator alone;
  gpu().set_ranks(&alone);
  gpu().connect_ranks();
  using Scale = nn::LossScale::Kind;
  const Training trainings[] = {{"fp32", Precision::fp32},
                                {"tf32", Precision::tf32},
                                {"bf16", Precision::bf16},
                                {"dropout", Precision::bf16, 0.3},
                                {"clipped", Precision::fp32, 0, 0.05},
                                {"scaled", Precision::fp16, 0, 0, Scale::dynamic},
                                {"ranks", Precision::fp32, 0, 0, Scale::none, 1},
                                {"all", Precision::fp16, 0.3, 0.05, Scale::dynamic, 1}};
  for (const Training& training : trainings) {
    const ConvNet net(training);
    PlanOptions options;
    options.tune = false;
    const Planned planned = plan_program(net.program(), table, gpu(), options);
    expect_kernels_one_by_one(net, planned.choices, gpu(), training.name);
  }
}

// Sums between graphs in all layers; and in every second layer, with sums inside graphs in the
// others, which disables graphs.
TEST_F(CudaGraphOrder, APlanCutAtItsSumsIsItsKernelsOneByOne) {
  const KernelTable table = cuda::kernels();
  const auto kernel = [&](const char* name) {
    return &*std::ranges::find(table, name, &Kernel::name);
  };
  DeviceSelf alone;
  gpu().set_ranks(&alone);
  gpu().connect_ranks();
  const ConvNet net({"ranks", Precision::fp32, 0, 0, nn::LossScale::Kind::none, 1});
  PlanOptions options;
  options.tune = false;
  options.except = {"cuda.all_reduce_start.nccl", "cuda.all_reduce_start.staged"};
  const Choices choices = plan_program(net.program(), table, gpu(), options).choices;
  size_t starts = 0;
  Choices mixed = choices;
  for (Choice& choice : mixed) {
    if (choice.kernel->name != "cuda.all_reduce_start.mpi") continue;
    if (++starts % 2 == 0) choice.kernel = kernel("cuda.all_reduce_start.staged");
  }
  ASSERT_EQ(starts, 4u);
  EXPECT_EQ(segments_of(net.program(), choices).size(), 2 * starts + 1);
  EXPECT_EQ(segments_of(net.program(), mixed).size(), 1u);
  expect_kernels_one_by_one(net, choices, gpu(), "sums between graphs");
  expect_kernels_one_by_one(net, mixed, gpu(), "sums of both kinds");
}

// Products start while the previous one ends, and read its results: a graph of a chain must give
// the bits of its kernels run one by one, whichever kernel computes them.
TEST_F(CudaGraphOrder, AChainOfProductsIsItsKernelsOneByOne) {
  constexpr int64_t kWidth = 1024;
  constexpr int kLayers = 8, kSteps = 4;
  for (const int64_t n : {16, 32, 64}) {
    Program program;
    program.precision = Precision::bf16;
    const auto add = [&](const std::string& name, int64_t rows, Role role) {
      return program.add_value(name, DType::bf16, {rows, kWidth}, role);
    };
    std::vector<Value> weights;
    const Value first = add("x", n, Role::input);
    Value x = first;
    for (int l = 0; l < kLayers; ++l) {
      weights.push_back(add(fmt::format("w{}", l), kWidth, Role::param));
      const Value y = add(fmt::format("y{}", l), n, l + 1 == kLayers ? Role::output : Role::temp);
      program.add(Linear{x, weights.back(), {}, y});
      x = y;
    }
    Arrays inputs(program);
    inputs.fill(program, first, normal(1), 1);
    for (const Value& w : weights) inputs.fill(program, w, normal(1.0 / 32), uint64_t(w.id));
    for (const Kernel& kernel : cuda::kernels()) {
      if (!kernel.name.starts_with("cuda.linear.tensor.")) continue;
      PlanOptions options;
      options.tune = false;
      const KernelTable table{kernel};
      const Planned planned = plan_program(program, table, gpu(), options);
      const DeviceValues graphs(gpu(), program, inputs), single(gpu(), program, inputs);
      Plan whole(gpu(), program, planned.choices, graphs.externals());
      Plan singly(gpu(), program, planned.choices, single.externals());
      whole.run(kSteps);
      for (size_t i = 0; i < planned.choices.size(); ++i) {
        singly.run_choice(i);
        gpu().synchronize();
      }
      const Arrays a = graphs.read(), b = single.read();
      EXPECT_EQ(std::memcmp(a[x].data, b[x].data, a[x].bytes()), 0) << kernel.name << ", n = " << n;
    }
  }
}

}  // namespace
}  // namespace ridgeline::test
