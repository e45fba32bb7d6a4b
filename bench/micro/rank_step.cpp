// Times training steps of 784-512-10, batch 3000, by processes that are bound to one core each: one
// of them alone with the whole batch; all at once with shares of it and without communication (what
// the cores allow); and all together through shared memory (cpu.mlp_train_all_reduce.shared without
// MPI). The three alternate, because the speed of a virtual machine's cores changes from second to
// second.
// usage: micro_rank_step CORES [seconds]     CORES: 0,1,2,3
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/cpu/simd/shared_step.h"

namespace {

using namespace ridgeline;
namespace simd = cpu::simd;

constexpr int64_t kIn = 784, kHidden = 512, kOut = 10, kBatch = 3000, kSamples = 60'000;
constexpr size_t kSegment = size_t{16} << 20, kMostRanks = 64;
constexpr int kSteps = 50, kStepsAlone = 5;
constexpr simd::Sgd<float> kSgd{0.01f};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The state that the processes share beside their segments.
struct Board {
  std::atomic<int> arrived;
  double seconds[kMostRanks], waited[kMostRanks];
  bool again;
};

class Rank {
 public:
  Rank(int rank, int ranks, std::byte* memory)
      : rank_(rank),
        ranks_(ranks),
        board_(*reinterpret_cast<Board*>(memory)),
        set_(size_t(kSamples * kIn) + 64),
        share_(kBatch / ranks),
        whole_(layers(), kBatch, 1),
        part_(layers(), share_, 1),
        shared_(layers(), 1) {
    for (uint8_t& byte : set_) byte = uint8_t(next());
    for (int64_t r = 0; r < kSamples; ++r) {
      labels_.push_back(int32_t(next() % kOut));
      order_.push_back(int32_t(next() % kSamples));
    }
    std::vector<std::byte*> segments;
    for (int r = 0; r < ranks; ++r) segments.push_back(memory + 4096 + size_t(r) * kSegment);
    bind(whole_, whole_scratch_);
    bind(part_, part_scratch_);
    shared_scratch_ = Buffer(shared_.workspace_bytes());
    shared_.bind(segments, rank, shared_scratch_.data());
  }

  void measure(double seconds) {
    const double end = now() + seconds;
    step_together(2);
    for (bool first = true; again(first || now() < end); first = false) {
      double alone = 0;
      for (int r = 0; r < ranks_; ++r) {
        timed([&] { rank_ == r ? step_by(whole_, kBatch, kStepsAlone) : void(); });
        alone += board_.seconds[r] / kStepsAlone / ranks_;
      }
      timed([&] { step_by(part_, share_, kSteps); });
      double rate = 0;
      for (int r = 0; r < ranks_; ++r) rate += kSteps / board_.seconds[r] / ranks_;
      timed([&] { step_together(kSteps); });
      const double together = *std::max_element(board_.seconds, board_.seconds + ranks_) / kSteps;
      const double waited = *std::max_element(board_.waited, board_.waited + ranks_) / kSteps;
      if (rank_ != 0) continue;
      std::printf("alone %6.2f ms; apart %6.2f, %.2fx; together %6.2f, %.2fx, waited %.1f %%\n",
                  alone * 1e3, 1e3 / rate, alone * rate, together * 1e3, alone / together,
                  100 * waited / together);
      std::fflush(stdout);
    }
  }

 private:
  uint32_t next() { return (random_ = random_ * 1664525u + 1013904223u) >> 8; }
  std::vector<simd::MlpLayer<float>> layers() {
    const auto make = [&](int64_t count) {
      weights_.emplace_back(size_t(count) + 16);
      for (float& w : weights_.back()) w = (float(next()) / (1 << 23) - 1) / 28;
      return weights_.back().data();
    };
    return {{kIn, kHidden, ActivationKind::sigmoid, make(kIn * kHidden), make(kHidden)},
            {kHidden, kOut, ActivationKind::none, make(kHidden * kOut), make(kOut)}};
  }
  static void bind(simd::MlpStep<float>& step, Buffer& scratch) {
    scratch = Buffer(step.workspace_bytes());
    step.bind(scratch.data());
  }
  simd::MlpBatch<float> batch(int step, int64_t first) const {
    return {set_.data(), labels_.data(), order_.data() + step % 20 * kBatch + first, 1.f / 255, 0};
  }

  void meet() {
    const int goal = ++meetings_ * ranks_;
    ++board_.arrived;
    while (board_.arrived < goal) ::usleep(50);
  }
  bool again(bool mine) {
    if (rank_ == 0) board_.again = mine;
    meet();
    const bool answer = board_.again;
    meet();
    return answer;
  }
  template <typename F>
  void timed(F work) {
    meet();
    const double begin = now();
    waited_ = 0;
    work();
    board_.seconds[rank_] = now() - begin;
    board_.waited[rank_] = waited_;
    meet();
  }
  void step_by(simd::MlpStep<float>& step, int64_t n, int steps) {
    for (int i = 0; i < steps; ++i) {
      step.run(pool_, batch(i, n == kBatch ? 0 : rank_ * share_), n, 1.0 / kBatch, {.sgd = kSgd});
    }
  }
  void step_together(int steps) {
    for (int i = 0; i < steps; ++i) {
      shared_.run(pool_, batch(i, rank_ * share_), share_, 1.0 / kBatch, kSgd,
                  [&](const std::function<bool()>& done) {
                    const double begin = now();
                    while (!done()) continue;
                    waited_ += now() - begin;
                  });
    }
  }

  int rank_, ranks_, meetings_ = 0;
  Board& board_;
  uint32_t random_ = 12345;
  double waited_ = 0;
  std::vector<uint8_t> set_;
  std::vector<int32_t> labels_, order_;
  std::vector<std::vector<float>> weights_;
  int64_t share_;
  ThreadPool pool_{1};
  simd::MlpStep<float> whole_, part_;
  simd::SharedMlpStep<float> shared_;
  Buffer whole_scratch_, part_scratch_, shared_scratch_;
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> cores;
  std::stringstream list(argc > 1 ? argv[1] : "");
  for (std::string core; std::getline(list, core, ',');) cores.push_back(std::atoi(core.c_str()));
  const int ranks = int(cores.size());
  if (ranks < 1 || size_t(ranks) > kMostRanks) {
    std::fprintf(stderr, "usage: micro_rank_step CORES [seconds]     CORES: 0,1,2,3\n");
    return 2;
  }
  const size_t bytes = 4096 + size_t(ranks) * kSegment;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("micro_rank_step");
    return 1;
  }
  int rank = 0;
  for (int r = 1; r < ranks && rank == 0; ++r) {
    if (::fork() == 0) rank = r;
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(size_t(cores[size_t(rank)]), &own);
  if (::sched_setaffinity(0, sizeof(own), &own) != 0 && rank == 0) {
    std::perror("micro_rank_step: cannot bind to the core");
  }
  Rank(rank, ranks, static_cast<std::byte*>(memory)).measure(argc > 2 ? std::atof(argv[2]) : 10);
  while (rank == 0 && ::wait(nullptr) > 0) continue;
  return 0;
}
