#pragma once

// Stacks of recurrent layers for rnn_bench, checked layer by layer or timed as a whole.

#include <memory>

#include "bench/gpu/rnn_run.cuh"

namespace ridgeline::cuda::recurrent {

// from_x[row, of_gates] = y[row] . w_ih^T
template <typename T>
__global__ void input_product_kernel(const T* y, const T* w_ih, float* from_x, int rows, int hidden,
                                     int gates) {
  for (int64_t i = first_index(); i < int64_t(rows) * gates * hidden; i += index_stride()) {
    const T* a = y + i / (gates * hidden) * hidden;
    const T* b = w_ih + i % (gates * hidden) * hidden;
    double sum = 0;
    for (int k = 0; k < hidden; ++k) sum += double(float(a[k])) * double(float(b[k]));
    from_x[i] = float(sum);
  }
}

// Several stacked layers with equal weights, as a wavefront.
template <Cell kCell, typename T>
void run_stack(const Problem& p, int layers, bool checks, PersistentForm form) {
  using One = Run<kCell, T>;
  One run{p};
  run.start();
  std::printf("%-8s H=%-4d B=%-3d T=%-3d %d layers%s\n", One::name(), p.hidden, p.batch, p.steps,
              layers, form == PersistentForm::groups ? " wgmma" : "");
  const PersistentLayout layout =
      persistent_stack_layout(kCell, One::kPlanes, layers, p.hidden, p.batch, run.sms, form);
  if (!layout.refusal.empty()) return void(std::printf("  %s\n", layout.refusal.c_str()));
  Array<T> w_ih(run.w.size());
  w_ih.fill(21, 1.5f / std::sqrt(float(p.hidden)));
  Array<uint8_t> exchange(int64_t(layout.exchange_bytes(p.steps)));
  Array<uint8_t> streamed(int64_t(layout.l2_workspace_bytes));
  std::vector<std::unique_ptr<Array<T>>> ys, reserves;
  PersistentStack<T> stack{};
  for (int layer = 0; layer < layers; ++layer) {
    ys.push_back(std::make_unique<Array<T>>(run.y.size()));
    reserves.push_back(std::make_unique<Array<T>>(run.reserve.size()));
    PersistentForward<T>& args = stack.layers[layer] = run.forward_args();
    args.y = ys.back()->get();
    if (args.reserve != nullptr && checks) args.reserve = reserves.back()->get();
    if (!checks) args.reserve = nullptr;
    args.w_ih = w_ih.get();
    args.exchange = reinterpret_cast<uint4*>(exchange.get());
    args.l2_workspace = reinterpret_cast<uint4*>(streamed.get());
  }
  const auto launches = [&] {
    for (int first = 0; first < p.batch; first += layout.samples()) {
      for (int layer = 0; layer < layers; ++layer) {
        stack.layers[layer].first_sample = first;
        stack.layers[layer].samples = std::min(layout.samples(), p.batch - first);
      }
      if (const cudaError_t e = launch_persistent_stack<T>(stack, layout, run.stream)) return e;
    }
    return cudaSuccess;
  };
  if (!checks) {
    std::printf("  %-20s", "wavefront");
    return run.print(layout, time_us(run.stream, launches));
  }
  check(launches(), "stack");
  check(cudaStreamSynchronize(run.stream), "stack");
  for (int layer = 0; layer < layers; ++layer) {
    run.reference();
    std::printf("  layer %d y %.1e", layer, distance(*ys[size_t(layer)], run.want_y));
    if (One::kSaved > 0) {
      std::printf(" reserve %.1e", distance(*reserves[size_t(layer)], run.want_reserve));
    }
    std::printf("\n");
    input_product_kernel<<<2048, 128>>>(run.want_y.get(), w_ih.get(), run.from_x.get(),
                                        p.batch * p.steps, p.hidden, One::kGates);
  }
  std::fflush(stdout);
}

template <Cell kCell, typename T>
void run_stacks(const Problem& p, int layers, bool checks) {
  run_stack<kCell, T>(p, layers, checks, PersistentForm::wide);
  run_stack<kCell, T>(p, layers, checks, PersistentForm::groups);
}

}  // namespace ridgeline::cuda::recurrent
