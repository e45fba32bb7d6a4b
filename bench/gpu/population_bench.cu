// Many perceptrons with one hidden layer trained at once, a cluster of blocks each: checked against
// a host computation in double, and timed.
//
//   population_bench check [case]     every kind of numbers and optimizer, odd shapes
//   population_bench time [members..] us a step of all members together (16, 128, 1024)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/gpu/check_cuda.h"
#include "bench/gpu/population_net.h"

namespace {

using namespace ridgeline::cuda;
using namespace population_bench;

// Compares members with the host, and one member alone with itself among the others, bit for bit.
bool check(const Data& data, const PopulationShape& shape, bool fewest) {
  const PopulationLayout layout = population_layout(shape, fewest);
  if (!layout.refusal.empty()) {
    std::printf("%s: refused: %s\n", text_of(shape).c_str(), layout.refusal.c_str());
    return false;
  }
  constexpr int kMembers = 140, kSteps = 3;  // more members than SMs: some run after others
  Population all(data, shape, kMembers, kSteps, /*shared_order=*/false);
  all.run(layout, 0, kMembers);
  bool good = true;
  double worst_loss = 0, worst = 0;
  std::array<double, 4> each{};  // of w1, b1, w2, b2
  for (const int m : {7, kMembers - 1}) {
    Net net = make_net(shape, m);
    const auto losses = all.losses.get(size_t(m) * kSteps, kSteps);
    for (int s = 0; s < kSteps; ++s) {
      const double loss = host_step(net, data, shape, all.host_args[size_t(m)],
                                    Population::order_of(shape, m, kSteps).data() + s * shape.batch,
                                    Population::rate(shape, m), s);
      worst_loss = std::max(worst_loss, std::abs(loss - losses[size_t(s)]));
    }
    for (int which = 0; which < 4; ++which) {
      each[size_t(which)] = std::max(each[size_t(which)], all.difference(m, net, which));
      worst = std::max(worst, each[size_t(which)]);
    }
  }
  good = worst_loss < 2e-3 && worst < tolerance(shape);
  Population alone(data, shape, kMembers, kSteps, false);
  // The other layout gives the same bits, too.
  alone.run(population_layout(shape, !fewest), kMembers - 1, 1);
  const bool same = all.bytes_of(kMembers - 1) == alone.bytes_of(kMembers - 1);
  std::printf(
      "%s, %d units a block: loss off by %.2g, w1 %.2g b1 %.2g w2 %.2g b2 %.2g (bound %.2g)  %s, "
      "alone %s\n",
      text_of(shape).c_str(), layout.units, worst_loss, each[0], each[1], each[2], each[3],
      tolerance(shape), good ? "ok" : "WRONG", same ? "the same bits" : "OTHER BITS");
  return good && same;
}

void time_members(const Data& data, const PopulationShape& shape, int members, bool shared_order,
                  bool fewest) {
  constexpr int kSteps = 100;
  const PopulationLayout layout = population_layout(shape, fewest);
  if (!layout.refusal.empty()) return;
  Population population(data, shape, members, kSteps, shared_order);
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  float best = 1e30f;
  for (int i = 0; i < 4; ++i) {
    population.reset_ticks();
    CHECK_CUDA(cudaEventRecord(begin));
    CHECK_CUDA(train_population(shape, layout, population.args.data(), members, {}, nullptr));
    CHECK_CUDA(cudaEventRecord(end));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    best = std::min(best, ms);
  }
  const double us = 1e3 * double(best) / kSteps;
  const double flops = 4.0 * shape.batch * shape.inputs * shape.hidden +
                       6.0 * shape.batch * shape.hidden * shape.classes;
  std::printf(
      "%s, %d x %d units, %4d members, %s: %8.1f us a step of all, %6.3f a member, %.0f TFLOP/s\n",
      text_of(shape).c_str(), layout.blocks, layout.units, members,
      shared_order ? "one order " : "own orders", us, us / members, 1e-6 * flops * members / us);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "check";
  using N = PopulationNumbers;
  using R = PopulationRule;
  if (what == "check") {
    struct Case {
      PopulationShape shape;
      bool fewest;
    };
    std::vector<Case> cases;
    for (const N numbers : {N::fp16, N::bf16}) {
      for (const bool fewest : {true, false}) {
        cases.push_back({{784, 128, 10, 128, numbers, R::sgd}, fewest});
        cases.push_back({{784, 256, 10, 128, numbers, R::sgd}, fewest});
      }
    }
    for (const N numbers : {N::fp16_masters, N::bf16_masters, N::tf32}) {
      for (const R rule : {R::sgd, R::momentum, R::adam}) {
        cases.push_back({{784, 128, 10, 128, numbers, rule}, true});
      }
    }
    cases.push_back({{96, 40, 7, 100, N::fp16, R::sgd}, true});
    cases.push_back({{96, 100, 7, 33, N::tf32, R::sgd}, true});
    bool good = true;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (argc > 2 && std::atoi(argv[2]) != int(i)) continue;
      const PopulationShape& shape = cases[i].shape;
      good = check(Data(shape.inputs, shape.classes), shape, cases[i].fewest) && good;
      std::fflush(stdout);
    }
    return good ? 0 : 1;
  }
  std::vector<int> counts;
  for (int i = 2; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
  if (counts.empty()) counts = {16, 128, 1024};
  const Data data(784, 10);
  for (const int hidden : {128, 512}) {
    for (const int members : counts) {
      const int count = hidden == 512 ? std::max(16, members / 4) : members;
      for (const N numbers : {N::fp16, N::bf16, N::bf16_masters, N::tf32}) {
        for (const bool fewest : {true, false}) {
          if (!fewest && (numbers == N::bf16_masters || numbers == N::tf32)) continue;
          for (const bool shared : {true, false}) {
            time_members(data, {784, hidden, 10, 128, numbers, R::sgd}, count, shared, fewest);
          }
        }
      }
    }
  }
  for (const R rule : {R::momentum, R::adam}) {
    time_members(data, {784, 128, 10, 128, N::tf32, rule}, 128, false, true);
  }
  return 0;
}
