#include "ridgeline/cuda/generate/conv_plan.h"

#include <algorithm>
#include <limits>

#include "ridgeline/cuda/generate/schedule.h"

namespace ridgeline::cuda::generate {
namespace {

constexpr int kThreads = 32 * kWarps;

int divide_up(int64_t a, int64_t b) { return int((a + b - 1) / b); }

int64_t group_of(Math math) { return number_bytes(math) == 2 ? 8 : 4; }

// Values per pixel such that neighbouring pixels fall into different banks.
int64_t spread_ld(int64_t ld, Math math) {
  const int64_t bytes = number_bytes(math), part = 16 / bytes;
  if (bytes == 2) return ld / part % 2 == 0 ? ld + part : ld;
  return ld * bytes % 128 == 0 ? ld + part : ld;
}

bool wide_sums(Math math) { return math == Math::fp32 || math == Math::fp64; }

// Cycles of eight warps per chunk for 16 bytes a lane from shared memory and from L1, and for the
// products of a unit.
constexpr int64_t kMostSums = 24 * 1024;    // bytes of shared memory for the parts of a gradient
constexpr int64_t kMostStaged = 24 * 1024;  // bytes of weights in shared memory
constexpr double kSharedLoad = 32, kLoad = 64;
double unit_cycles(Math math) { return wide_sums(math) ? 700 : math == Math::tf32 ? 130 : 65; }

ConvPlan::Product product(int64_t pixels, int64_t columns, int64_t chunks, Math math) {
  ConvPlan::Product best;
  double least = std::numeric_limits<double>::infinity();
  const int units = divide_up(columns, 16);
  for (const int mt : {1, 2, 4}) {
    for (const int nt : {1, 2, 4}) {
      if (units % nt != 0 || mt * nt > (wide_sums(math) ? 4 : 8)) continue;
      const int tiles = divide_up(pixels, 16 * mt) * (units / nt);
      const double chunk = 2 * mt * kSharedLoad + 2 * nt * kLoad + mt * nt * unit_cycles(math);
      const double cycles =
          divide_up(tiles, kWarps) * (300 + double(chunks) * chunk + 300.0 * mt * nt);
      if (cycles >= least) continue;
      least = cycles;
      best = {mt, nt, int(std::min<int64_t>(chunks, mt * nt > 4 ? 2 : 3))};
    }
  }
  return best;
}

ConvPlan::Gradient gradient(const ConvPlan& plan, Math math) {
  ConvPlan::Gradient best;
  double least = std::numeric_limits<double>::infinity();
  const int units = divide_up(plan.out_channels(), 16), tiles = divide_up(plan.weights(), 8);
  const int chunks = divide_up(plan.out.pixels(), chunk_of(math));
  const double load = math == Math::bf16 || math == Math::fp16 ? kSharedLoad : 4 * kSharedLoad;
  for (const int mt : {1, 2, 4}) {
    if (mt > units) continue;
    for (const int nt : {1, 2, 3, 4, 6}) {
      if (mt * nt > (wide_sums(math) ? 6 : 16)) continue;
      for (const int split : {1, 2, 4, 8}) {
        if (split > 1 && kWarps * mt * nt * 128 * value_bytes(math) > kMostSums) continue;
        const int tasks = divide_up(units, mt) * divide_up(tiles, nt);
        const double chunk = (2 * mt + nt) * load + 0.5 * mt * nt * unit_cycles(math) + 100;
        const double cycles = divide_up(tasks, kWarps / split) *
                              (200 + divide_up(chunks, split) * chunk +
                               mt * nt * (split > 1 ? 100.0 + 60.0 * split : 50.0));
        if (cycles >= least) continue;
        least = cycles;
        best = {mt, nt, split};
      }
    }
  }
  return best;
}

}  // namespace

int64_t ConvPlan::forward_ld(Math math) const { return up(weights(), chunk_of(math)); }
int64_t ConvPlan::classes() const {
  const bool classed = window.h.kernel >= window.h.stride && window.w.kernel >= window.w.stride;
  return back && classed ? window.h.stride * window.w.stride : 1;
}
int64_t ConvPlan::backward_ld(int64_t k, Math math) const {
  const bool classed = classes() > 1;
  const int64_t h = classed ? window.h.stride : 1, w = classed ? window.w.stride : 1;
  const int64_t down = (window.h.kernel - k / w + h - 1) / h;
  const int64_t across = (window.w.kernel - k % w + w - 1) / w;
  return up(down * across * out_channels(), chunk_of(math));
}
int64_t ConvPlan::backward_values(Math math) const {
  int64_t values = 0;
  for (int64_t k = 0; k < classes(); ++k) values += up(in.c, 16) * backward_ld(k, math);
  return values;
}
int64_t ConvPlan::weight_bytes(Math math) const {
  const int64_t back_values = back ? backward_values(math) : 0;
  return (up(out.c, 16) * forward_ld(math) + back_values) * number_bytes(math);
}
int64_t ConvPlan::x_size() const {
  return (in.h + 2 * window.h.pad) * (in.w + 2 * window.w.pad) * x_ld;
}
int64_t ConvPlan::z_size() const {
  if (!back) return out.pixels() * z_ld;
  return (in.h + window.h.kernel - 1) * (in.w + window.w.kernel - 1) * z_ld;
}

int64_t place_bytes(const MlpStepOps::Convolution& layer) {
  if (layer.pool == nullptr) return 0;
  const Image out = layer.pool->shape.out();
  return out.pixels() * up(out.c, 8);
}

FlatImage flat_image(const NetStep& net) {
  const MlpStepOps::Convolution& last = net.convolutions.back();
  FlatImage flat;
  flat.image = last.pool != nullptr ? last.pool->shape.out() : last.conv->shape.out();
  // Neighbouring pixels, which threads read together, are in different banks.
  flat.ld = up(flat.image.c, group_of(net.math)) + 4;
  return flat;
}

std::vector<ConvPlan> conv_plans(const NetStep& net, int blocks, int64_t bytes) {
  std::vector<ConvPlan> plans;
  for (const MlpStepOps::Convolution& layer : net.convolutions) {
    const Conv2dShape& shape = layer.conv->shape;
    ConvPlan plan;
    plan.in = shape.in, plan.out = shape.out(), plan.window = shape.window;
    plan.back = !plans.empty(), plan.group = group_of(net.math);
    if (!plan.back) {
      plan.in = {shape.in.c * plan.taps(), plan.out.h, plan.out.w};
      plan.window = {};
    }
    plan.x_ld = plan.in_channels(), plan.z_ld = plan.out_channels();
    const int64_t chunk = chunk_of(net.math);
    plan.forward = product(plan.out.pixels(), plan.out_channels(),
                           plan.forward_ld(net.math) / chunk, net.math);
    plan.backward = product(divide_up(plan.in.pixels(), plan.classes()), plan.in_channels(),
                            plan.backward_ld(0, net.math) / chunk, net.math);
    plan.gradient = gradient(plan, net.math);
    plans.push_back(plan);
  }
  // The images of upper convolutions are read most often.
  const auto keep_if_it_fits = [&](auto& member, auto value) {
    const auto before = member;
    member = value;
    if (conv_shared_bytes(net, plans, blocks) > bytes) member = before;
  };
  for (size_t l = plans.size(); l-- > 0;) {
    keep_if_it_fits(plans[l].z_ld, spread_ld(plans[l].z_ld, net.math));
    keep_if_it_fits(plans[l].x_ld, spread_ld(plans[l].x_ld, net.math));
  }
  for (ConvPlan& plan : plans) {
    if (plan.weight_bytes(net.math) <= kMostStaged) keep_if_it_fits(plan.staged, true);
  }
  return plans;
}

std::string refuse_convolutions(const NetStep& net) {
  constexpr int64_t kMostChannels = 256;  // a thread each in sums over blocks
  if (net.norm != nullptr && !net.convolutions.empty()) {
    return "takes no clipping or scale of the loss with convolutions";
  }
  if (net.augment != nullptr &&
      (net.convolutions.empty() || net.augment->in != net.convolutions[0].conv->shape.in)) {
    return "augments only the images that a convolution reads";
  }
  for (const MlpStepOps::Convolution& layer : net.convolutions) {
    const Conv2dShape& shape = layer.conv->shape;
    const Window& window = shape.window;
    if (shape.k > kMostChannels) return "a convolution with more channels than it counts in";
    if (window.h.kernel > 5 || window.w.kernel > 5) return "a convolution of more than 5 x 5";
    if (window.h.pad >= window.h.kernel || window.w.pad >= window.w.kernel) {
      return "a convolution with more padding than taps";
    }
    if (layer.pool == nullptr) continue;
    const Window& pool = layer.pool->shape.window;
    if (pool.h.kernel * pool.w.kernel > 9) return "a pool over more than 3 x 3";
  }
  return {};
}

int64_t conv_shared_bytes(const NetStep& net, const std::vector<ConvPlan>& plans, int blocks) {
  if (plans.empty()) return 0;
  const int64_t samples = divide_up(net.batch(), blocks), number = number_bytes(net.math);
  const int64_t sample = net.inputs->y.shape.numel() / net.batch();
  int64_t bytes = up(samples * flat_image(net).size() * number, 128) + 128;
  bytes += up(samples * sample * int64_t(size_of(net.inputs->set.dtype)), 128);
  for (const MlpStepOps::Convolution& layer : net.convolutions) {
    bytes += up(samples * place_bytes(layer), 128);
  }
  for (const ConvPlan& plan : plans) {
    bytes += up(samples * plan.x_size() * number, 128) + up(samples * plan.z_size() * number, 128);
    if (plan.staged) bytes += plan.weight_bytes(net.math) + 256;
    bytes += up(plan.forward_ld(net.math) * number / 4, 128);  // offsets of parts of 16 bytes
    bytes += up(plan.backward_values(net.math) / up(plan.in.c, 16) * number / 4, 128);
    bytes += up(7 * plan.out_channels() * value_bytes(net.math), 128);
  }
  return bytes;
}

int64_t conv_scratch_bytes(const NetStep& net, const std::vector<ConvPlan>& plans) {
  int64_t values = plans.empty() ? 0 : kWarps * ConvPlan::kTask;  // for updates
  for (const ConvPlan& plan : plans) {
    const int64_t channels = plan.out_channels();
    const int64_t tiles = plan.gradient.mt * plan.gradient.nt;
    values = std::max({values, (2 * (kThreads / (channels / 4)) + 2) * channels,
                       plan.gradient.split > 1 ? kWarps * tiles * 128 : 0});
  }
  return values * value_bytes(net.math);
}

}  // namespace ridgeline::cuda::generate
