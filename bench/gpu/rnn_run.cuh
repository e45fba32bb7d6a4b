#pragma once

// A layer's problem for rnn_bench: its arrays, the recurrence in double, and each form of the
// passes, checked against it or timed.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "bench/gpu/rnn_arrays.cuh"
#include "bench/gpu/rnn_check.cuh"
#include "ridgeline/cuda/recurrent/weight_streaming.h"

namespace ridgeline::cuda::recurrent {

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
  int sms = 0;
  cudaStream_t stream = nullptr;
  static constexpr int kPlanes = sizeof(T) == 4 ? 3 : 1;

  // States that other cells do not have.
  static T* of_lstm(const Array<T>& cells) { return kCell == Cell::lstm ? cells.get() : nullptr; }
  Sequence sequence() const {
    return {p.batch, p.steps, p.hidden, 1, 0, p.reverse, p.lengths ? lengths.get() : nullptr};
  }
  PersistentForward<T> forward_args() const {
    PersistentForward<T> a{};
    a.cell = kCell;
    a.sequence = sequence();
    a.samples = p.batch;
    a.from_x = from_x.get();
    a.w_hh = w.get();
    a.b_ih = {b_ih.get(), false};
    a.b_hh = {b_hh.get(), false};
    a.h0 = h0.get();
    a.c0 = of_lstm(c0);
    a.y = y.get();
    a.reserve = reserve.get();
    a.hT = hT.get();
    a.cT = of_lstm(cT);
    return a;
  }
  PersistentBackward<T> backward_args() const {
    PersistentBackward<T> a{};
    a.cell = kCell;
    a.sequence = sequence();
    a.samples = p.batch;
    a.y = want_y.get();
    a.reserve = want_reserve.get();
    a.h0 = h0.get();
    a.c0 = of_lstm(c0);
    a.dy = dy.get();
    a.w_hh = w.get();
    a.dhT = dhT.get();
    a.dcT = of_lstm(dcT);
    a.gate_gradients = gradients.get();
    a.dh0 = dh0.get();
    a.dc0 = of_lstm(dc0);
    return a;
  }

  void start() {
    int device;
    check(cudaGetDevice(&device), "device");
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
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

  // Both directions of each pass.
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
    run_forward(checks, PersistentForm::clusters);
    run_forward(checks, PersistentForm::groups);
    run_forward(checks, PersistentForm::large);
    if constexpr (kPlanes == 1) run_weight_streaming(checks);
    run_backward(checks, PersistentForm::narrow);
    run_backward(checks, PersistentForm::wide);
    run_backward(checks, PersistentForm::pairs);
    run_backward(checks, PersistentForm::clusters);
    run_backward(checks, PersistentForm::large);
    check(cudaStreamDestroy(stream), "stream");
    std::fflush(stdout);
  }

  // Launches for all samples; then compares or times.
  template <typename Layout, typename Args, typename Launch, typename Check>
  void run_pass(const char* name, const Layout& layout, bool checks, Args args, Launch launch,
                Check compare) {
    std::printf("  %-20s", name);
    if (!layout.refusal.empty()) {
      std::printf(" refused: %s\n", layout.refusal.c_str());
      return;
    }
    Array<uint8_t> exchange(int64_t(layout.exchange_bytes(p.steps)));
    Array<uint8_t> streamed(int64_t(layout.l2_workspace_bytes));
    args.exchange = reinterpret_cast<uint4*>(exchange.get());
    args.l2_workspace = reinterpret_cast<uint4*>(streamed.get());
    const auto launches = [&] {
      for (int first = 0; first < p.batch; first += layout.samples()) {
        args.first_sample = first;
        args.samples = std::min(layout.samples(), p.batch - first);
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
    run_pass(form == PersistentForm::wide       ? "forward wide"
             : form == PersistentForm::clusters ? "forward clusters"
             : form == PersistentForm::groups   ? "forward wgmma"
             : form == PersistentForm::large    ? "forward large"
                                                : "forward",
             persistent_forward_layout(kCell, kPlanes, p.hidden, p.batch, sms, form), checks,
             forward_args(), forward_launch(), [&] { compare_forward(); });
  }
  void run_weight_streaming(bool checks) {
    run_pass("forward weight_streaming",
             weight_streaming_forward_layout(kCell, kPlanes, p.hidden, p.batch, sms), checks,
             forward_args(), forward_launch(), [&] { compare_forward(); });
  }
  static auto forward_launch() {
    return [](const auto&... all) { return launch_persistent_forward<T>(all...); };
  }
  void compare_forward() const {
    std::printf(" y %.1e", distance(y, want_y));
    if (kSaved > 0) std::printf(" reserve %.1e", distance(reserve, want_reserve));
  }

  void run_backward(bool checks, PersistentForm form) {
    PersistentBackward<T> args = backward_args();
    if (!checks) args.dh0 = args.dc0 = nullptr;
    run_pass(form == PersistentForm::clusters ? "backward clusters"
             : form == PersistentForm::wide   ? "backward wide"
             : form == PersistentForm::pairs  ? "backward pairs"
             : form == PersistentForm::large  ? "backward large"
                                              : "backward",
             persistent_backward_layout(kCell, kPlanes, p.hidden, p.batch, sms, form), checks, args,
             launch_persistent_backward<T>, [&] {
               std::printf(" gates' gradients %.1e dh0 %.1e", distance(gradients, want_gradients),
                           distance(dh0, want_dh0));
               if (kCell == Cell::lstm) std::printf(" dc0 %.1e", distance(dc0, want_dc0));
             });
  }

  void print(const PersistentLayout& layout, double us) const {
    const PassShape& s = layout.shape;
    std::printf(
        " %6.3f us a step (%d x %d blocks, %d samples each, chunks %d + %d + %d, %d buffers%s)\n",
        us / p.steps, s.tiles, s.groups, s.group_samples,
        std::min(s.warp_chunks, layout.held_chunks), s.kept_chunks, s.streamed_chunks, s.buffers,
        s.sum_parts == 4 ? ", folded" : "");
  }

  void print(const WeightStreamingLayout& layout, double us) const {
    const StreamShape& s = layout.stream;
    std::printf(" %6.3f us a step (%d blocks, %d stages, %d of %d blocks of weights resident)\n",
                us / p.steps, layout.blocks(), s.stages, s.resident(), s.blocks_of_k);
  }

  static const char* name() {
    return kCell == Cell::lstm ? "lstm" : kCell == Cell::gru ? "gru" : "rnn_tanh";
  }
};

}  // namespace ridgeline::cuda::recurrent
