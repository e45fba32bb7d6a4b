// Checks and times the products of ridgeline/cuda/gemm beside cuBLAS and cuBLASLt.
//   gemm_bench check [small] [NAME]  every variant (whose name holds NAME) against double precision
//   gemm_bench time FILE [...]    times; one JSON line a shape to FILE, a table to the terminal
//     groups: thin (recurrent shapes, N <= 64), wide (N = 128, 256), square, few (a sample);
//     warm: one set of buffers, resident in L2, instead of rotated ones; fp16: instead of bf16;
//     small: M up to 2560; verbose: what each candidate took; all: every variant, not only the best
//     kTimed by estimate
#include <algorithm>
#include <cmath>
#include <set>

#include "gemm_checks.cuh"
#include "gemm_vendor.cuh"

namespace ridgeline::bench {

using namespace ridgeline::cuda;

struct Shape {
  const char* op;  // NN, TN, NT: A and B as torch.mm would take them, row-major
  int m, n, k;
};

Major a_major(const Shape& s) { return s.op[0] == 'N' ? Major::k : Major::mn; }
Major b_major(const Shape& s) { return s.op[1] == 'N' ? Major::mn : Major::k; }

struct Candidate {
  Candidate(std::string label, std::function<bool(int set, cudaStream_t)> launch)
      : name(std::move(label)), run(std::move(launch)) {}

  std::string name;
  std::function<bool(int set, cudaStream_t)> run;  // false: cannot
  cudaGraphExec_t graph = nullptr;
  std::vector<float> times;  // us a launch

  float median() const {
    std::vector<float> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 1e9f : sorted[sorted.size() / 2];
  }
};

class Timer {
 public:
  Timer() {
    BENCH_CUDA(cudaStreamCreate(&stream_));
    BENCH_CUDA(cudaEventCreate(&start_));
    BENCH_CUDA(cudaEventCreate(&stop_));
  }
  bool capture(Candidate& c, int launches, int sets) {
    cudaGraph_t graph;
    bool fine = true;
    BENCH_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches && fine; ++i) fine = c.run(i % sets, stream_);
    BENCH_CUDA(cudaStreamEndCapture(stream_, &graph));
    if (fine) BENCH_CUDA(cudaGraphInstantiate(&c.graph, graph, 0));
    BENCH_CUDA(cudaGraphDestroy(graph));
    return fine;
  }
  void time(Candidate& c, int launches, bool keep) {
    float ms = 0;
    BENCH_CUDA(cudaEventRecord(start_, stream_));
    BENCH_CUDA(cudaGraphLaunch(c.graph, stream_));
    BENCH_CUDA(cudaEventRecord(stop_, stream_));
    BENCH_CUDA(cudaEventSynchronize(stop_));
    BENCH_CUDA(cudaEventElapsedTime(&ms, start_, stop_));
    if (keep) c.times.push_back(ms * 1e3f / launches);
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t start_, stop_;
};

// The kinds of candidates. Overlapped: launched while the previous launch ends, and waiting for its
// results. Early: also overlapped, and A (the weights) is not a result of the previous launch.
enum Kind { kCublas, kLt, kOurs, kOverlapped, kEarly, kKinds };
constexpr const char* kKindNames[kKinds] = {"cublas", "lt", "ours", "overlapped", "early"};

struct Best {
  double us[kKinds];
  std::string name[kKinds];
};

// Buffers for `sets` problems of one shape.
template <typename T>
struct Buffers {
  Buffers(const Shape& shape, int sets)
      : s(shape),
        a(int64_t{sets} * s.m * s.k),
        b(int64_t{sets} * s.k * s.n),
        d(int64_t{sets} * s.m * s.n) {
    fill(a, 1);
    fill(b, 2);
  }
  GemmProblem problem(int set) const {
    const Major am = a_major(s), bm = b_major(s);
    return {s.m,
            s.n,
            s.k,
            a.get() + int64_t{set} * s.m * s.k,
            am == Major::k ? s.k : s.m,
            am,
            b.get() + int64_t{set} * s.k * s.n,
            bm == Major::k ? s.k : s.n,
            bm,
            d.get() + int64_t{set} * s.m * s.n,
            s.n};
  }
  Shape s;
  DeviceArray<T> a, b, d;
};

constexpr size_t kTimed = 12;

// Times each candidate three times, then the best two of each kind alternately. Leaves the kinds
// sorted.
void measure(std::vector<Candidate> (&kinds)[kKinds], Timer& timer, int launches, int sets) {
  std::vector<Candidate*> shortlist;
  for (auto& kind : kinds) {
    for (Candidate& c : kind) {
      if (!timer.capture(c, launches, sets)) continue;
      for (int i = 0; i < 3; ++i) timer.time(c, launches, i > 0);
    }
    std::erase_if(kind, [](const Candidate& c) { return c.times.empty(); });
    std::stable_sort(kind.begin(), kind.end(), [](const Candidate& x, const Candidate& y) {
      return std::min(x.times[0], x.times[1]) < std::min(y.times[0], y.times[1]);
    });
    for (size_t i = 0; i < std::min<size_t>(2, kind.size()); ++i) shortlist.push_back(&kind[i]);
  }
  for (Candidate* c : shortlist) c->times.clear();
  for (int round = 0; round < 9; ++round) {
    for (Candidate* c : shortlist) timer.time(*c, launches, true);
  }
}

template <typename T>
Best time_shape(const Shape& s, const std::set<std::string>& flags, Vendor& vendor, Timer& timer) {
  const bool warm = flags.count("warm") > 0, verbose = flags.count("verbose") > 0;
  const double bytes = 2.0 * (double(s.m) * s.k + double(s.k) * s.n + double(s.m) * s.n);
  const double floor_us = std::max({2.0, bytes / 4e6, 2.0 * s.m * double(s.n) * s.k / 7e8});
  const int launches = std::clamp(int(400 / floor_us), 6, 200);
  const int sets = warm ? 1 : std::clamp(int(200e6 / bytes) + 1, 1, launches);
  const Buffers<T> buffers(s, sets);

  std::vector<Candidate> kinds[kKinds];
  kinds[kCublas].push_back(Candidate("cublas", [&](int set, cudaStream_t stream) {
    vendor.run_cublas<T, T>(buffers.problem(set), stream);
    return true;
  }));
  LtPlan plan = vendor.plan_lt<T, T>(buffers.problem(0));
  for (int i = 0; i < plan.count; ++i) {
    kinds[kLt].push_back(Candidate("lt" + std::to_string(i), [&, i](int set, cudaStream_t stream) {
      return vendor.run_lt(plan, i, buffers.problem(set), stream) == CUBLAS_STATUS_SUCCESS;
    }));
  }
  std::vector<std::vector<PreparedGemm>> prepared[kKinds];
  for (const Kind kind : {kOurs, kOverlapped, kEarly}) {
    const GemmOptions options = kind == kOurs ? GemmOptions{} : overlapped(kind == kEarly);
    for (int set = 0; set < sets; ++set) {
      prepared[kind].push_back(
          prepare_gemm_variants<T, T, StoreSum>(buffers.problem(set), StoreSum{}, options));
    }
    const size_t count = prepared[kind][0].size();
    for (size_t v = 0; v < (flags.count("all") ? count : std::min(kTimed, count)); ++v) {
      const auto launch = [&, kind, v](int set, cudaStream_t stream) {
        prepared[kind][set][v].run(stream);
        return true;
      };
      kinds[kind].push_back(Candidate(prepared[kind][0][v].name, launch));
    }
  }
  measure(kinds, timer, launches, sets);

  Best best;
  for (int k = 0; k < kKinds; ++k) {
    std::vector<Candidate>& kind = kinds[k];
    const size_t first = kind.size() > 1 && kind[1].median() < kind[0].median() ? 1 : 0;
    best.us[k] = kind[first].median();
    best.name[k] = kind[first].name;
    for (Candidate& c : kind) {
      if (verbose) std::printf("    %s %s %.2f\n", kKindNames[k], c.name.c_str(), c.median());
      BENCH_CUDA(cudaGraphExecDestroy(c.graph));
    }
  }
  Vendor::destroy(plan);
  return best;
}

std::vector<Shape> shapes_of(const std::set<std::string>& groups) {
  std::vector<Shape> shapes;
  if (groups.count("few")) {
    return {{"NN", 512, 16, 512},   {"NT", 512, 512, 32},   {"NN", 512, 64, 512},
            {"NN", 1024, 32, 1024}, {"TN", 2560, 16, 2560}, {"NN", 2560, 64, 2560},
            {"NT", 2560, 2560, 32}};
  }
  for (const int m : {512, 1024, 1760, 2048, 2560, 4096, 8192}) {
    if (groups.count("small") && m > 2560) continue;
    for (const int n : {16, 32, 64, 128, 256}) {
      if (!groups.count(n <= 64 ? "thin" : "wide")) continue;
      shapes.push_back({"NN", m, n, m});
      shapes.push_back({"TN", m, n, m});
      shapes.push_back({"NT", m, m, n});
    }
    if (m >= 2048 && groups.count("square")) {
      for (const char* op : {"NN", "TN", "NT"}) shapes.push_back({op, m, m, m});
    }
  }
  return shapes;
}

template <typename T>
int time_all(const char* path, const std::set<std::string>& groups, const char* type) {
  std::FILE* file = std::fopen(path, "a");
  if (file == nullptr) {
    std::printf("cannot write %s\n", path);
    return 1;
  }
  Vendor vendor;
  Timer timer;
  const bool warm = groups.count("warm") > 0;
  double logs[kKinds] = {}, log_best = 0;
  int count = 0;
  for (const Shape& s : shapes_of(groups)) {
    const Best t = time_shape<T>(s, groups, vendor, timer);
    std::printf("%s %4d x %4d x %4d ", s.op, s.m, s.n, s.k);
    std::fprintf(file,
                 "{\"w\": \"gemm\", \"prec\": \"%s\", \"op\": \"%s\", \"m\": %d, \"n\": %d, "
                 "\"k\": %d, \"cache\": \"%s\"",
                 type, s.op, s.m, s.n, s.k, warm ? "warm" : "cold");
    for (int k = 0; k < kKinds; ++k) {
      std::printf(" %s %.2f", kKindNames[k], t.us[k]);
      if (k >= kOurs) std::printf(" (%.2fx %s)", t.us[kCublas] / t.us[k], t.name[k].c_str());
      std::fprintf(file, ", \"%s_us\": %.3f, \"%s\": \"%s\"", kKindNames[k], t.us[k], kKindNames[k],
                   t.name[k].c_str());
      logs[k] += std::log(t.us[kCublas] / t.us[k]);
    }
    std::printf("\n");
    std::fprintf(file, "}\n");
    std::fflush(file);
    log_best += std::log(t.us[kCublas] / *std::min_element(t.us, t.us + kKinds));
    ++count;
  }
  std::printf("geometric mean over cuBLAS, %d shapes, %s, %s:", count, type,
              warm ? "warm" : "cold");
  for (int k = 0; k < kKinds; ++k)
    std::printf(" %s %.3f", kKindNames[k], std::exp(logs[k] / count));
  std::printf(" best %.3f\n", std::exp(log_best / count));
  std::fclose(file);
  return 0;
}

}  // namespace ridgeline::bench

int main(int argc, char** argv) {
  using namespace ridgeline::bench;
  const std::string mode = argc > 1 ? argv[1] : "";
  std::set<std::string> flags;
  for (int i = 2; i < argc; ++i) flags.insert(argv[i]);
  try {
    if (mode == "check") {
      const bool small = flags.erase("small") > 0;
      return check(small, flags.empty() ? "" : *flags.begin());
    }
    if (mode == "time" && argc > 3) {
      return flags.count("fp16") ? time_all<__half>(argv[2], flags, "fp16")
                                 : time_all<__nv_bfloat16>(argv[2], flags, "bf16");
    }
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
  std::printf("gemm_bench check [small] [NAME] | time FILE thin|wide|square [warm] [fp16]\n");
  return 2;
}
