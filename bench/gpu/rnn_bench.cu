// The persistent recurrent passes by themselves: checked against a reference in double on the GPU,
// then timed in a graph. us a time step; the large products before and after are not in it.
//   rnn_bench [bf16|fp16|fp32] [check|time]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/gpu/rnn_check.cuh"

using namespace ridgeline::cuda;
using namespace ridgeline::cuda::recurrent;

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
__global__ void fill_kernel(T* to, int64_t count, uint32_t seed, float size) {
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    uint64_t x = (uint64_t(seed) << 40) + uint64_t(i) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 32;
    to[i] = T(size * (float(uint32_t(x)) * 0x1p-31f - 1.0f));
  }
}

template <typename T>
class Array {
 public:
  explicit Array(int64_t count) : count_(count) {
    check(cudaMalloc(&data_, size_t(count) * sizeof(T) + 256), "cudaMalloc");
    check(cudaMemset(data_, 0x3f, size_t(count) * sizeof(T)), "cudaMemset");
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* get() const { return data_; }
  int64_t size() const { return count_; }
  void fill(uint32_t seed, float size) { fill_kernel<T><<<512, 256>>>(data_, count_, seed, size); }
  void zero() { check(cudaMemset(data_, 0, size_t(count_) * sizeof(T)), "cudaMemset"); }
  std::vector<T> host() const {
    std::vector<T> all(static_cast<size_t>(count_));
    check(cudaMemcpy(all.data(), data_, all.size() * sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
    return all;
  }

 private:
  T* data_ = nullptr;
  int64_t count_;
};

// |a - b| / |b|; not a number when any of a is not.
template <typename T>
double distance(const Array<T>& a, const Array<T>& b) {
  const auto x = a.host(), y = b.host();
  double off = 0, size = 1e-300;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = double(float(x[i])) - double(float(y[i]));
    off += d * d;
    size += double(float(y[i])) * double(float(y[i]));
  }
  return std::sqrt(off / size);
}

// Microseconds of a call, the least of several replays of a graph.
template <typename F>
double time_us(cudaStream_t stream, F f) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  check(f(), "launch");
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e30f;
  for (int i = 0; i < 12; ++i) {
    cudaEventRecord(begin, stream);
    cudaGraphLaunch(exec, stream);
    cudaEventRecord(end, stream);
    check(cudaStreamSynchronize(stream), "run");
    float ms;
    cudaEventElapsedTime(&ms, begin, end);
    best = ms < best ? ms : best;
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 1e3 * best;
}

struct Problem {
  int hidden, batch, steps;
  bool reverse = false, lengths = false;
};

template <Cell kCell, typename T>
struct Run {
  static constexpr int kGates = cell_gates(kCell), kSaved = cell_saved(kCell);
  static constexpr int kVectors = cell_vectors(kCell);
  Problem p;
  int64_t state = int64_t(p.batch) * p.hidden, rows = int64_t(p.batch) * p.steps;
  Array<float> from_x{rows * kGates * p.hidden};
  Array<T> w{int64_t(kGates) * p.hidden * p.hidden}, b_ih{kGates * p.hidden},
      b_hh{kGates * p.hidden}, h0{state}, c0{state}, dy{rows * p.hidden}, dhT{state}, dcT{state};
  Array<T> y{rows * p.hidden}, reserve{rows * p.hidden * kSaved + 1}, hT{state}, cT{state};
  Array<T> want_y{rows * p.hidden}, want_reserve{rows * p.hidden * kSaved + 1};
  Array<T> gradients{rows * p.hidden * kVectors}, want_gradients{rows * p.hidden * kVectors};
  Array<T> dh0{state}, dc0{state}, want_dh0{state}, want_dc0{state};
  Array<double> h[2] = {Array<double>(state), Array<double>(state)};
  Array<double> c[2] = {Array<double>(state), Array<double>(state)};
  Array<int32_t> lengths{p.batch};
  int processors = 0;
  cudaStream_t stream = nullptr;
  static constexpr int kPlanes = sizeof(T) == 4 ? 3 : 1;

  Sequence sequence() const {
    return {p.batch, p.steps, p.hidden, 1, 0, p.reverse, p.lengths ? lengths.get() : nullptr};
  }
  PersistentForward<T> forward_args() const {
    PersistentForward<T> a{};
    a.cell = kCell;
    a.sequence = sequence();
    a.items = p.batch;
    a.from_x = from_x.get();
    a.w_hh = w.get();
    a.b_ih = {b_ih.get(), false};
    a.b_hh = {b_hh.get(), false};
    a.h0 = h0.get();
    a.c0 = kCell == Cell::lstm ? c0.get() : nullptr;
    a.y = y.get();
    a.reserve = reserve.get();
    a.hT = hT.get();
    a.cT = kCell == Cell::lstm ? cT.get() : nullptr;
    return a;
  }
  PersistentBackward<T> backward_args() const {
    PersistentBackward<T> a{};
    a.cell = kCell;
    a.sequence = sequence();
    a.items = p.batch;
    a.y = want_y.get();
    a.reserve = want_reserve.get();
    a.h0 = h0.get();
    a.c0 = kCell == Cell::lstm ? c0.get() : nullptr;
    a.dy = dy.get();
    a.w_hh = w.get();
    a.dhT = dhT.get();
    a.dcT = kCell == Cell::lstm ? dcT.get() : nullptr;
    a.gate_gradients = gradients.get();
    a.dh0 = dh0.get();
    a.dc0 = kCell == Cell::lstm ? dc0.get() : nullptr;
    return a;
  }

  void start() {
    int device;
    check(cudaGetDevice(&device), "device");
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    check(cudaStreamCreate(&stream), "stream");
    const float size = 1.5f / std::sqrt(float(p.hidden));
    from_x.fill(1, 1.0f);
    w.fill(2, size);
    b_ih.fill(3, 0.3f);
    b_hh.fill(4, 0.3f);
    h0.fill(5, 0.5f);
    c0.fill(6, 1.0f);
    dy.fill(7, 1.0f);
    dhT.fill(8, 1.0f);
    dcT.fill(9, 1.0f);
    std::vector<int32_t> all;
    for (int b = 0; b < p.batch; ++b) all.push_back(b % 5 == 0 ? p.steps : b * 7 % (p.steps + 1));
    check(cudaMemcpy(lengths.get(), all.data(), all.size() * 4, cudaMemcpyDefault), "lengths");
  }

  static void widen(const Array<T>& from, Array<double>& to) {
    const auto x = from.host();
    std::vector<double> wide(x.size());
    for (size_t i = 0; i < x.size(); ++i) wide[i] = double(float(x[i]));
    check(cudaMemcpy(to.get(), wide.data(), wide.size() * 8, cudaMemcpyDefault), "copy");
  }
  static void narrow(const Array<double>& from, Array<T>& to) {
    const auto x = from.host();
    std::vector<T> all(x.size());
    for (size_t i = 0; i < x.size(); ++i) all[i] = T(float(x[i]));
    check(cudaMemcpy(to.get(), all.data(), all.size() * sizeof(T), cudaMemcpyDefault), "copy");
  }

  void reference() {
    widen(h0, h[0]);
    widen(c0, c[0]);
    PersistentForward<T> a = forward_args();
    a.y = want_y.get();
    a.reserve = want_reserve.get();
    for (int step = 0; step < p.steps; ++step) {
      check_forward_kernel<kCell, T><<<blocks_for(state), 128>>>(
          a, step, h[step & 1].get(), c[step & 1].get(), h[~step & 1].get(), c[~step & 1].get());
    }
    PersistentBackward<T> g = backward_args();
    g.gate_gradients = want_gradients.get();
    widen(dhT, h[0]);
    widen(dcT, c[0]);
    for (int step = p.steps; step-- > 0;) {
      check_backward_kernel<kCell, T><<<blocks_for(state), 128>>>(g, step, h[0].get(), c[0].get());
      check_back_product_kernel<kCell, T><<<blocks_for(state), 128>>>(g, step, h[0].get());
    }
    narrow(h[0], want_dh0);
    narrow(c[0], want_dc0);
    check(cudaDeviceSynchronize(), "reference");
  }

  // Both ways of each pass.
  void run(bool checks) {
    start();
    if (checks) {
      reference();
    } else {
      want_y.fill(11, 1.0f);
      want_reserve.fill(12, 0.9f);
    }
    std::printf("%-8s H=%-4d B=%-3d T=%-3d %s%s\n", name(), p.hidden, p.batch, p.steps,
                p.reverse ? "reverse " : "", p.lengths ? "lengths " : "");
    run_forward(checks, PersistentForm::narrow);
    run_forward(checks, PersistentForm::wide);
    run_backward(checks, PersistentForm::narrow);
    run_backward(checks, PersistentForm::clusters);
    check(cudaStreamDestroy(stream), "stream");
    std::fflush(stdout);
  }

  // Launches for all items; then compares or times.
  template <typename Args, typename Launch, typename Check>
  void run_pass(const char* name, const PersistentLayout& layout, bool checks, Args args,
                Launch launch, Check compare) {
    std::printf("  %-20s", name);
    if (!layout.refusal.empty()) {
      std::printf(" refused: %s\n", layout.refusal.c_str());
      return;
    }
    Array<uint8_t> exchange(int64_t(layout.exchange_bytes(p.steps)));
    Array<uint8_t> streamed(int64_t(layout.streamed_bytes));
    args.exchange = reinterpret_cast<uint4*>(exchange.get());
    args.streamed = reinterpret_cast<uint4*>(streamed.get());
    const auto launches = [&] {
      for (int first = 0; first < p.batch; first += layout.items()) {
        args.first_item = first;
        args.items = std::min(layout.items(), p.batch - first);
        if (const cudaError_t e = launch(args, layout, stream)) return e;
      }
      return cudaSuccess;
    };
    if (!checks) return print(layout, time_us(stream, launches));
    check(launches(), name);
    check(cudaStreamSynchronize(stream), name);
    compare();
    std::printf("\n");
  }

  void run_forward(bool checks, PersistentForm form) {
    run_pass(form == PersistentForm::wide ? "forward wide" : "forward",
             persistent_forward_layout(kCell, kPlanes, p.hidden, p.batch, processors, form), checks,
             forward_args(), launch_persistent_forward<T>, [&] {
               std::printf(" y %.1e", distance(y, want_y));
               if (kSaved > 0) std::printf(" reserve %.1e", distance(reserve, want_reserve));
             });
  }

  void run_backward(bool checks, PersistentForm form) {
    PersistentBackward<T> args = backward_args();
    if (!checks) args.dh0 = args.dc0 = nullptr;
    run_pass(form == PersistentForm::clusters ? "backward clusters" : "backward",
             persistent_backward_layout(kCell, kPlanes, p.hidden, p.batch, processors, form),
             checks, args, launch_persistent_backward<T>, [&] {
               std::printf(" gates' gradients %.1e dh0 %.1e", distance(gradients, want_gradients),
                           distance(dh0, want_dh0));
               if (kCell == Cell::lstm) std::printf(" dc0 %.1e", distance(dc0, want_dc0));
             });
  }

  void print(const PersistentLayout& layout, double us) const {
    const PassShape& s = layout.shape;
    std::printf(
        " %6.3f us a step (%d x %d blocks, %d items each, pieces %d + %d + %d, %d buffers)\n",
        us / p.steps, s.tiles, s.groups, s.group_items, std::min(s.warp_pieces, layout.held_pieces),
        s.kept_pieces, s.streamed_pieces, s.buffers);
  }

  static const char* name() {
    return kCell == Cell::lstm ? "lstm" : kCell == Cell::gru ? "gru" : "rnn_tanh";
  }
};

template <typename T>
void check_all() {
  const Problem checked[] = {{1024, 16, 12},
                             {512, 16, 9, true, true},
                             {250, 5, 7, false, true},
                             {129, 33, 6, true, true},
                             {1024, 70, 5},
                             {8, 1, 3}};
  for (const Problem& p : checked) {
    Run<Cell::lstm, T>{p}.run(true);
    Run<Cell::gru, T>{p}.run(true);
    Run<Cell::rnn_tanh, T>{p}.run(true);
  }
  Run<Cell::rnn_tanh, T>{{1760, 16, 10, true, true}}.run(true);
  if (sizeof(T) == 4) return;
  Run<Cell::lstm, T>{{256, 300, 4, false, true}}.run(true);
  Run<Cell::lstm, T>{{1760, 20, 6}}.run(true);
  Run<Cell::lstm, T>{{2560, 5, 4}}.run(true);
  Run<Cell::gru, T>{{2560, 33, 5, true, true}}.run(true);
  Run<Cell::rnn_tanh, T>{{2560, 17, 5}}.run(true);
}

template <Cell kCell, typename T>
void time_one(int hidden, int batch) {
  Run<kCell, T>{{hidden, batch, 128}}.run(false);
}

template <typename T>
void time_large() {
  for (const int hidden : {512, 1024}) {
    for (const int batch : {128, 256}) time_one<Cell::lstm, T>(hidden, batch);
  }
  for (const int batch : {1, 16, 64, 256}) {
    time_one<Cell::lstm, T>(1760, batch);
    time_one<Cell::gru, T>(2560, batch);
    time_one<Cell::rnn_tanh, T>(1760, batch);
  }
  time_one<Cell::lstm, T>(2560, 16);
  time_one<Cell::rnn_tanh, T>(2560, 16);
}

template <typename T>
void time_all() {
  for (const int hidden : {256, 512, 1024}) {
    for (const int batch : {1, 16, 64}) {
      time_one<Cell::lstm, T>(hidden, batch);
    }
  }
  time_one<Cell::gru, T>(1024, 16);
  if constexpr (sizeof(T) == 2) time_large<T>();
}

template <typename T>
void run_all(bool checks, bool times) {
  if (checks) check_all<T>();
  if (times) time_all<T>();
}

}  // namespace

int main(int argc, char** argv) {
  const auto asked = [&](const char* what) {
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], what) == 0) return true;
    }
    return false;
  };
  const bool checks = !asked("time"), times = !asked("check");
  if (asked("fp16")) {
    run_all<__half>(checks, times);
  } else if (asked("fp32")) {
    run_all<float>(checks, times);
  } else {
    run_all<__nv_bfloat16>(checks, times);
  }
  return 0;
}
