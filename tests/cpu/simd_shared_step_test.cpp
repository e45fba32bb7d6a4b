#include <gtest/gtest.h>
#include <sys/time.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/cpu/simd/shared_step.h"
#include "ridgeline/cpu/simd/update.h"

namespace ridgeline::cpu::simd {
namespace {

struct Net {
  std::vector<int64_t> sizes;
  SimdActivation act;
  std::vector<int64_t> shares;  // samples of each rank
};

// The same weights for every rank, and a set of samples.
template <typename T>
struct Replica {
  explicit Replica(const Net& net) {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> value(-1, 1);
    for (size_t l = 0; l + 1 < net.sizes.size(); ++l) {
      const int64_t in = net.sizes[l], out = net.sizes[l + 1];
      const bool last = l + 2 == net.sizes.size();
      T* p[4];
      for (const int k : {0, 1, 2, 3}) {  // w, b and their momenta
        const int64_t count = k % 2 == 0 ? in * out : out;
        tensors.emplace_back(size_t(count) + 16);
        p[k] = tensors.back().data();
        for (int64_t i = 0; i < count; ++i) p[k][i] = T(value(random) / std::sqrt(double(in)));
      }
      layers.push_back({in, out, last ? SimdActivation() : net.act, p[0], p[1], p[2], p[3]});
    }
  }
  std::vector<std::vector<T>> tensors;
  std::vector<MlpLayer<T>> layers;
};

struct Samples {
  Samples(const Net& net, size_t rank, int step) {
    std::mt19937 random(uint32_t(100 * rank + size_t(step)));
    const int64_t n = net.shares[rank];
    set.resize(size_t(n * net.sizes[0]) + 64);
    for (uint8_t& byte : set) byte = uint8_t(random());
    for (int64_t r = 0; r < n; ++r) {
      labels.push_back(int32_t(random() % uint32_t(net.sizes.back())));
      order.push_back(int32_t(random() % uint32_t(n)));
    }
  }
  template <typename T>
  MlpBatch<T> batch() const {
    return {set.data(), labels.data(), order.data(), T(1.0 / 255), T(-0.25)};
  }
  std::vector<uint8_t> set;
  std::vector<int32_t> labels, order;
};

template <typename T>
constexpr Sgd<T> kSgd{T(0.1), T(0.9), T(0.01), true};

// Gradients share by share, by one thread each, added up in the order of the ranks.
template <typename T>
void plain_step(const Net& net, Replica<T>& replica, int step, std::vector<MlpScore>& scores) {
  std::vector<std::vector<T>> sums;
  double total = 0;
  for (const int64_t n : net.shares) total += double(n);
  for (size_t r = 0; r < net.shares.size(); ++r) {
    std::vector<std::vector<T>> grads;
    std::vector<MlpLayer<T>> layers = replica.layers;
    for (MlpLayer<T>& layer : layers) {
      for (T** place : {&layer.mw, &layer.mb}) {
        grads.emplace_back(size_t(place == &layer.mw ? layer.in * layer.out : layer.out) + 16);
        *place = grads.back().data();
      }
      layer.use = GradientUse::stored;
    }
    MlpStep<T> alone(layers, net.shares[r], 1);
    const Buffer workspace(alone.workspace_bytes());
    alone.bind(workspace.data());
    ThreadPool pool(1);
    const Samples samples(net, r, step);
    scores.push_back(
        alone.run(pool, samples.batch<T>(), net.shares[r], 1 / total, MlpIteration<T>{}));
    if (r == 0) sums = grads;
    for (size_t k = 0; r > 0 && k < grads.size(); ++k) {
      for (size_t i = 0; i < grads[k].size(); ++i) sums[k][i] += grads[k][i];
    }
  }
  for (size_t l = 0; l < replica.layers.size(); ++l) {
    const MlpLayer<T>& layer = replica.layers[l];
    update_functions<T>().sgd({sums[2 * l].data(), 1, 0, layer.w, layer.mw, kSgd<T>},
                              {0, layer.in * layer.out});
    update_functions<T>().sgd({sums[2 * l + 1].data(), 1, 0, layer.b, layer.mb, kSgd<T>},
                              {0, layer.out});
  }
}

// Runs ranks as threads of this process, each with `threads` of its own; returns every rank's
// scores.
template <typename T>
std::vector<MlpScore> run_ranks(
    const Net& net, std::vector<Replica<T>>& replicas, int steps, int threads,
    void (*begin)() = [] {}) {
  const size_t ranks = net.shares.size();
  int64_t most = 0;
  double total = 0;
  for (const int64_t n : net.shares) most = std::max(most, n), total += double(n);
  const size_t bytes = SharedMlpStep<T>(replicas[0].layers, 1).segment_bytes(most);
  std::vector<Buffer> memory;
  std::vector<std::byte*> segments;
  for (size_t r = 0; r < ranks; ++r) {
    memory.emplace_back(bytes);
    segments.push_back(memory.back().data());
    std::memset(segments.back(), 0, bytes);
  }
  std::vector<MlpScore> scores(ranks * size_t(steps));
  std::vector<std::jthread> team;
  for (size_t r = 0; r < ranks; ++r) {
    team.emplace_back([&, r] {
      begin();
      ThreadPool pool(threads);
      SharedMlpStep<T> step(replicas[r].layers, threads);
      const Buffer workspace(step.workspace_bytes());
      std::memset(workspace.data(), 0xff, step.workspace_bytes());
      step.bind(segments, int(r), workspace.data());
      for (int i = 0; i < steps; ++i) {
        const Samples samples(net, r, i);
        scores[size_t(i) * ranks + r] = step.run(pool, samples.batch<T>(), net.shares[r], 1 / total,
                                                 kSgd<T>, [](const std::function<bool()>& done) {
                                                   while (!done()) std::this_thread::yield();
                                                 });
      }
    });
  }
  team.clear();
  return scores;
}

template <typename T>
class SimdSharedStep : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SimdSharedStep, Types);

// Shares are uneven, so that ranks with few samples help those with many. The result must not
// depend, to the bit, on which rank computed what.
TYPED_TEST(SimdSharedStep, IsTheSumOfTheSharesBitForBit) {
  using T = TypeParam;
  const Net nets[] = {
      {{50, 260, 10}, ActivationKind::sigmoid, {700, 1, 130, 64}},
      {{37, 29, 23, 5}, ActivationKind::relu, {129, 300}},
      {{20, 150, 17, 3}, ActivationKind::gelu, {65, 257, 128}},
      {{12, 4}, ActivationKind::none, {200}},
  };
  constexpr int kSteps = 6;
  for (const Net& net : nets) {
    Replica<T> want(net);
    std::vector<MlpScore> want_scores;
    for (int i = 0; i < kSteps; ++i) plain_step(net, want, i, want_scores);
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(::testing::Message()
                   << net.shares.size() << " ranks of " << threads << " threads");
      std::vector<Replica<T>> got;
      for (size_t r = 0; r < net.shares.size(); ++r) got.emplace_back(net);
      const auto scores = run_ranks(net, got, kSteps, threads);
      for (size_t i = 0; i < scores.size(); ++i) {
        EXPECT_EQ(scores[i].loss, want_scores[i].loss) << i;
        EXPECT_EQ(scores[i].correct, want_scores[i].correct) << i;
      }
      for (const Replica<T>& replica : got) {
        for (size_t k = 0; k < replica.tensors.size(); ++k) {
          ASSERT_EQ(replica.tensors[k], want.tensors[k]) << "tensor " << k;
        }
      }
    }
  }
}

// While an object of this class exists, threads that call let_in() are put to sleep at arbitrary
// instructions, many times per second.
class HeldUp {
 public:
  HeldUp() {
    mask(SIG_BLOCK);  // in this thread, and in those it creates unless they call let_in()
    std::signal(SIGALRM, [](int) {
      const timespec time{0, 50'000};
      nanosleep(&time, nullptr);
    });
    every(200);
  }
  ~HeldUp() {
    every(0);
    std::signal(SIGALRM, SIG_IGN);  // pending signals are dropped
    mask(SIG_UNBLOCK);
    std::signal(SIGALRM, SIG_DFL);
  }
  // For the calling thread, and threads that it creates from now on.
  static void let_in() { mask(SIG_UNBLOCK); }

 private:
  static void mask(int how) {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(how, &alarm, nullptr);
  }
  static void every(int us) {
    const itimerval interval{{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &interval, nullptr);
  }
};

// A preempted thread that has read a counter holds a stale value: others may have taken the task
// since, and the next one may not be ready.
TYPED_TEST(SimdSharedStep, ToleratesPreemptedThreads) {
  using T = TypeParam;
  const Net net{{1, 2}, ActivationKind::none, {1500, 1, 64}};
  constexpr int kSteps = 300;
  Replica<T> want(net);
  std::vector<MlpScore> want_scores;
  for (int i = 0; i < kSteps; ++i) plain_step(net, want, i, want_scores);
  std::vector<Replica<T>> got;
  for (size_t r = 0; r < net.shares.size(); ++r) got.emplace_back(net);
  const HeldUp held_up;
  const auto scores = run_ranks(net, got, kSteps, 3, HeldUp::let_in);
  for (size_t i = 0; i < scores.size(); ++i) ASSERT_EQ(scores[i].loss, want_scores[i].loss) << i;
  for (const Replica<T>& replica : got) ASSERT_EQ(replica.tensors, want.tensors);
}

// Threads of one process, which update the same weights.
TYPED_TEST(SimdSharedStep, ThreadsGiveTheSumOfTheSharesBitForBit) {
  using T = TypeParam;
  const Net net{{33, 140, 6}, ActivationKind::tanh, {190, 65, 2, 128}};
  constexpr int kSteps = 5;
  Replica<T> want(net), got(net);
  std::vector<MlpScore> want_scores;
  for (int i = 0; i < kSteps; ++i) plain_step(net, want, i, want_scores);
  const size_t ranks = net.shares.size();
  const size_t bytes = align_up(SharedMlpStep<T>(got.layers, 1).segment_bytes(190), 4096);
  const Buffer memory(bytes * ranks);
  std::vector<std::byte*> segments;
  for (size_t r = 0; r < ranks; ++r) segments.push_back(memory.data() + r * bytes);
  std::vector<SharedMlpStep<T>> members;
  std::vector<Buffer> workspaces;
  for (size_t r = 0; r < ranks; ++r) {
    SharedMlpStep<T>& member = members.emplace_back(got.layers, 1);
    workspaces.emplace_back(member.workspace_bytes());
    member.bind(segments, int(r), workspaces.back().data());
    member.be_threads();
  }
  double total = 0;
  for (const int64_t n : net.shares) total += double(n);
  for (int i = 0; i < kSteps; ++i) {
    std::memset(memory.data(), 0xff, bytes * ranks);  // leftovers of another step's scratch
    members[0].forget();
    std::vector<std::jthread> team;
    for (size_t r = 0; r < ranks; ++r) {
      team.emplace_back([&, r] {
        ThreadPool pool(1);
        const Samples samples(net, r, i);
        const MlpScore score =
            members[r].contribute(pool, samples.batch<T>(), net.shares[r], 1 / total,
                                  [](const std::function<bool()>& done) {
                                    while (!done()) std::this_thread::yield();
                                  });
        EXPECT_EQ(score.loss, want_scores[size_t(i) * ranks + r].loss);
        members[r].update_part(kSgd<T>);
      });
    }
    team.clear();
  }
  for (size_t k = 0; k < got.tensors.size(); ++k) {
    ASSERT_EQ(got.tensors[k], want.tensors[k]) << "tensor " << k;
  }
}

}  // namespace
}  // namespace ridgeline::cpu::simd
