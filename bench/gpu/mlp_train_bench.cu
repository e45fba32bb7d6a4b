// The whole-step training kernels, checked and timed.
//   mlp_train_bench check [KERNEL] [SEED]   step by step against double precision with the kernels'
//                                           roundings, each value within a bound derived for it
//   mlp_train_bench bench [KERNEL] [h ...]  us a step of 784-h-h-h-10, batch 32
//   mlp_train_bench mnist FOLDER            trains on the 10,000 images of IDX files there
//   mlp_train_bench sanitize [KERNEL]       small and short checks, to run under compute-sanitizer

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/gpu/mlp_train_checks.h"

namespace {

using namespace ridgeline::cuda;

void bench_one(const MlpTrainShape& shape, const MlpTrainLayout& layout, int steps) {
  if (!layout.refusal.empty()) {
    std::printf("%-13s %-38s refused: %s\n", name(layout.how), describe(shape).c_str(),
                layout.refusal.c_str());
    return;
  }
  const int launches = 9;
  const Data d = make_data(shape.sizes[0], shape.sizes[shape.layers], 10000,
                           steps * shape.batch * launches, 5);
  Net net(shape, make_weights(shape, 6), d, std::vector<double>(steps, 0.01), 0);
  OnDevice<char> workspace(layout.workspace_bytes);
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  // The time of a launch of one step is subtracted; the cost of loading and storing weights is
  // shown separately.
  const auto time_of = [&](int count) {
    std::vector<float> ms;
    net.args.steps = count;
    for (int i = 0; i < launches; ++i) {
      net.first.set({int64_t(i) * steps * shape.batch});
      CHECK_CUDA(cudaEventRecord(begin));
      launch(net, layout, workspace);
      CHECK_CUDA(cudaEventRecord(end));
      CHECK_CUDA(cudaEventSynchronize(end));
      float m;
      CHECK_CUDA(cudaEventElapsedTime(&m, begin, end));
      ms.push_back(m);
    }
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2] * 1e3;
  };
  time_of(1);
  const double whole = time_of(steps), one = time_of(1);
  const auto loss = [&] {
    net.args.steps = steps;
    launch(net, layout, workspace);
    CHECK_CUDA(cudaDeviceSynchronize());
    return net.loss.get();
  }();
  std::printf(
      "%-13s %-38s %3d blocks %3zu KB: %8.2f us a step over %d steps (%.2f beyond the first, "
      "launch of one %.1f) loss %.4f\n",
      name(layout.how), describe(shape).c_str(), layout.blocks, layout.shared_bytes >> 10,
      whole / steps, steps, (whole - one) / (steps - 1), one, loss.back());
  std::fflush(stdout);
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
}

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::printf("%s: cannot open\n", path.c_str());
    std::exit(1);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

// Five epochs at a rate of 0.05 over the test images; prints loss and correct predictions of the
// first and last epoch.
void train_mnist(const std::string& folder) {
  const auto images = read_file(folder + "/t10k-images-idx3-ubyte");
  const auto labels = read_file(folder + "/t10k-labels-idx1-ubyte");
  Data d{784, 10, 10000, {images.begin() + 16, images.end()}, {}, {}};
  for (int i = 0; i < d.samples; ++i) d.labels.push_back(labels[8 + i]);
  std::mt19937 rng(3);
  const int epochs = 5, batch = 32, an_epoch = d.samples / batch;
  for (int e = 0; e < epochs; ++e) {
    std::vector<int32_t> order(d.samples);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    d.order.insert(d.order.end(), order.begin(), order.begin() + an_epoch * batch);
  }
  for (int h : {128, 512}) {
    for (bool masters : {false, true}) {
      for (const auto layout_of : kLayouts) {
        const auto shape = shape_of({784, h, h, h, 10}, batch, ActivationFn::relu, masters);
        const auto layout = layout_of(shape, 0);
        if (!layout.refusal.empty()) continue;
        Net net(shape, make_weights(shape, 4), d, std::vector<double>(an_epoch, 0.05), 0);
        OnDevice<char> workspace(layout.workspace_bytes);
        std::printf("mnist %-13s %-32s", name(layout.how), describe(shape).c_str());
        for (int e = 0; e < epochs; ++e) {
          net.first.set({int64_t(e) * an_epoch * batch});
          launch(net, layout, workspace);
          CHECK_CUDA(cudaDeviceSynchronize());
          double loss = 0, correct = 0;
          for (float v : net.loss.get()) loss += v;
          for (int v : net.correct.get()) correct += v;
          std::printf("  %.4f %.2f%%", loss / an_epoch, 100 * correct / (an_epoch * batch));
        }
        std::printf("\n");
      }
    }
  }
}

void bench_widths(const std::string& only, std::vector<unsigned> widths) {
  if (widths.empty()) widths = {128, 256, 512, 1024, 2048, 4096, 8192};
  for (bool masters : {false, true}) {
    for (const unsigned width : widths) {
      const int h = int(width);
      const auto shape = shape_of({784, h, h, h, 10}, 32, ActivationFn::relu, masters);
      for (const auto layout_of : kLayouts) {
        const auto layout = layout_of(shape, 0);
        if (std::string(name(layout.how)).find(only) == std::string::npos) continue;
        bench_one(shape, layout, h <= 2048 ? 300 : 30);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "mnist" && argc > 2) return train_mnist(argv[2]), 0;
  std::vector<unsigned> numbers;  // a seed, or widths
  std::string only;
  for (int i = 2; i < argc; ++i) {
    if (const unsigned long number = std::strtoul(argv[i], nullptr, 10); number > 0) {
      numbers.push_back(unsigned(number));
    } else {
      only = argv[i];
    }
  }
  if (what == "check" || what == "sanitize") {
    return run_checks(what == "sanitize", only, numbers.empty() ? 0 : numbers[0]);
  }
  if (what == "bench") return bench_widths(only, numbers), 0;
  std::printf("mlp_train_bench check|bench|mnist|sanitize, as its first lines say\n");
  return 2;
}
