#pragma once

// Times kernels in graphs, alternately; and those of a training step.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "bench/gpu/tile_layer.h"
#include "ridgeline/cuda/plain/gather.h"

namespace ridgeline::bench {

using namespace ridgeline::cuda;

struct Candidate {
  std::string name;
  std::function<cudaError_t(cudaStream_t)> run;
  cudaGraphExec_t graph = nullptr;
  std::vector<float> times{};  // us a launch
  float median() const {
    std::vector<float> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 1e9f : sorted[sorted.size() / 2];
  }
};

// Replays graphs of several launches each, alternately.
inline void time_all(std::vector<Candidate>& all, int launches) {
  cudaStream_t stream;
  cudaEvent_t start, stop;
  check_cuda(cudaStreamCreate(&stream), "stream");
  check_cuda(cudaEventCreate(&start), "event");
  check_cuda(cudaEventCreate(&stop), "event");
  for (Candidate& c : all) {
    cudaGraph_t graph;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < launches; ++i) check_cuda(c.run(stream), c.name.c_str());
    check_cuda(cudaStreamEndCapture(stream, &graph), "capture");
    check_cuda(cudaGraphInstantiate(&c.graph, graph, 0), "graph");
    cudaGraphDestroy(graph);
  }
  for (int round = -2; round < 15; ++round) {
    for (Candidate& c : all) {
      float ms = 0;
      cudaEventRecord(start, stream);
      check_cuda(cudaGraphLaunch(c.graph, stream), c.name.c_str());
      cudaEventRecord(stop, stream);
      check_cuda(cudaEventSynchronize(stop), c.name.c_str());
      cudaEventElapsedTime(&ms, start, stop);
      if (round >= 0) c.times.push_back(ms * 1e3f / float(launches));
    }
  }
  for (Candidate& c : all) cudaGraphExecDestroy(c.graph);
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& x, const Candidate& y) { return x.median() < y.median(); });
}

// 784-512-10 by gather, linear, head and gradient with the updates.
template <typename T>
class Step {
 public:
  static constexpr int kSamples = 3000, kIn = 784, kHidden = 512, kClasses = 10, kSet = 60000;

  Step(TileMath math, const Scratch& scratch) : math_(math), scratch_(scratch) {
    std::mt19937 engine(5);
    std::vector<uint8_t> images(size_t(kSet) * kIn);
    std::vector<int32_t> labels(kSet), order(kSet);
    for (uint8_t& byte : images) byte = uint8_t(engine());
    for (int32_t& label : labels) label = int32_t(engine() % kClasses);
    for (int32_t i = 0; i < kSet; ++i) order[size_t(i)] = i;
    std::shuffle(order.begin(), order.end(), engine);
    const auto copy = [](auto& to, const auto& from) {
      check_cuda(
          cudaMemcpy(to.get(), from.data(), from.size() * sizeof(from[0]), cudaMemcpyDefault),
          "copy");
    };
    copy(images_, images);
    copy(labels_, labels);
    copy(order_, order);
    copy(w1_, random<T>(kHidden * kIn, 1));
    copy(w2_, random<T>(kClasses * kHidden, 2));
    layout_ = head_layout(kSamples, kHidden, kClasses, sizeof(T));
    partial_ = std::make_unique<DeviceArray<T>>(layout_.parts * layout_.sums(kHidden, kClasses));
    forward_ = tile_choices(math, TileProduct::linear, kSamples, kHidden, kIn);
    backward_ = tile_choices(math, TileProduct::grad_w, kHidden, kIn, kSamples);
  }

  cudaError_t gather(cudaStream_t stream) const {
    GatherArgs args;
    args.set = images_.get();
    args.y = x_.get();
    args.labels = labels_.get();
    args.label = label_.get();
    args.order = order_.get();
    args.first = first_.get();
    args.tick = tick_.get();
    args.n = kSamples;
    args.sample_size = kIn;
    args.scale = 1.0 / 255;
    return launch_gather<T>(args, stream);
  }
  cudaError_t linear(const TileChoice& choice, cudaStream_t stream) const {
    return tile_kernels<T>(choice.math)
        .linear(choice,
                {x_.get(), w1_.get(), b1_.get(), nullptr, h_.get(), kSamples, kIn, kHidden,
                 ActivationFn::sigmoid},
                scratch_.memory(), stream);
  }
  cudaError_t head(cudaStream_t stream) const {
    HeadArgs<T> args{};
    args.h = h_.get();
    args.w = w2_.get();
    args.b = b2_.get();
    args.label = label_.get();
    args.dz = dz_.get();
    args.n = kSamples;
    args.hidden = kHidden;
    args.classes = kClasses;
    args.activation = ActivationFn::sigmoid;
    args.scale = 1.0 / kSamples;
    args.rows = layout_.rows;
    args.partial = partial_->get();
    args.loss = part_loss_.get();
    args.correct = part_correct_.get();
    return launch_head(args, layout_, stream);
  }
  cudaError_t grad_w(const TileChoice& choice, bool whole, cudaStream_t stream) const {
    TileGradWArgs<T> args{};
    args.product.x = x_.get();
    args.product.dy = dz_.get();
    args.product.w = w1_.get();
    args.product.n = kSamples;
    args.product.in = kIn;
    args.product.out = kHidden;
    args.product.sgd.lr = lr_.get();
    args.product.sgd.tick = tick_.get();
    if (whole) {
      HeadSums<T>& head = args.head;
      head.parts = layout_.parts;
      head.hidden = kHidden;
      head.classes = kClasses;
      head.partial = partial_->get();
      head.part_loss = part_loss_.get();
      head.part_correct = part_correct_.get();
      head.w = w2_.get();
      head.b = b2_.get();
      head.below = b1_.get();
      head.sgd = args.product.sgd;
      head.scale = 1.0 / kSamples;
      head.loss = loss_.get();
      head.correct = correct_.get();
      args.tick = fake_tick_.get();
      args.done = done_.get();
    }
    return tile_kernels<T>(choice.math).grad_w(choice, args, scratch_.memory(), stream);
  }

  void time() {
    std::vector<Candidate> parts;
    parts.push_back({"gather", [&](cudaStream_t s) { return gather(s); }});
    parts.push_back({"head", [&](cudaStream_t s) { return head(s); }});
    for (const TileChoice& c : forward_) {
      parts.push_back({"linear " + std::string(name(c.math)) + " " + c.name,
                       [&](cudaStream_t s) { return linear(c, s); }});
    }
    for (const TileChoice& c : backward_) {
      parts.push_back({"grad_w " + std::string(name(c.math)) + " " + c.name,
                       [&](cudaStream_t s) { return grad_w(c, false, s); }});
      parts.push_back(
          {"grad_w+sums " + c.name, [&](cudaStream_t s) { return grad_w(c, true, s); }});
    }
    for (const TileChoice& f : forward_) {
      for (const TileChoice& b : backward_) {
        parts.push_back({"STEP " + std::string(name(f.math)) + " " + f.name + ", " + b.name,
                         [&](cudaStream_t s) {
                           for (const cudaError_t error :
                                {gather(s), linear(f, s), head(s), grad_w(b, true, s)}) {
                             if (error != cudaSuccess) return error;
                           }
                           return cudaSuccess;
                         }});
      }
    }
    time_all(parts, 10);
    std::printf("%s, 784-512-10, batch 3000\n", name(math_));
    for (const Candidate& c : parts) std::printf("  %8.2f us  %s\n", c.median(), c.name.c_str());
  }

 private:
  TileMath math_;
  const Scratch& scratch_;
  HeadLayout layout_;
  std::vector<TileChoice> forward_, backward_;
  DeviceArray<uint8_t> images_{int64_t(kSet) * kIn};
  DeviceArray<int32_t> labels_{kSet}, order_{kSet}, label_{kSamples}, tick_{1}, fake_tick_{1},
      correct_{4}, part_correct_{kSamples};
  DeviceArray<int64_t> first_{1};
  DeviceArray<double> lr_{4}, loss_{4}, part_loss_{kSamples};
  DeviceArray<unsigned> done_{1};
  DeviceArray<T> x_{kSamples * kIn}, h_{kSamples * kHidden}, dz_{kSamples * kHidden},
      w1_{kHidden * kIn}, b1_{kHidden}, w2_{kClasses * kHidden}, b2_{kClasses};
  std::unique_ptr<DeviceArray<T>> partial_;
};

}  // namespace ridgeline::bench
