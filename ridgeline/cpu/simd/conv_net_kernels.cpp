#include "ridgeline/cpu/simd/conv_net_kernels.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "ridgeline/cpu/simd/conv_net_layers.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/nhwc_conv.h"
#include "ridgeline/cpu/simd/weight_memory.h"

// The convolutional part of a net as one kernel for inference: convolutions with their activations
// and residual sums, and pools, on images in channels-last layout, with weights packed when it is
// prepared. With many samples each thread takes one image after the other through all layers, so
// that activations stay in its cache and no thread waits for another. With few samples all threads
// share each layer.
namespace ridgeline::cpu::simd {
namespace {

// With less work than this in a call, waking a second thread costs more than it saves.
constexpr double kLeastFlops = 2e6;
// Images a thread must have before threads take images of their own.
constexpr int64_t kImagesPerThread = 4;

// The place of a value's images in the memory of a team of threads.
struct Place {
  Image image;
  int64_t down = 0, right = 0;  // of the border
  size_t first = 0, last = 0;   // the layers that write it (counted from 1) and read it last
  size_t offset = 0, floats = 0;

  NhwcImages at(float* base) const {
    const int64_t pixel = nhwc_pixel(image.c), row = (image.w + 2 * right) * pixel;
    return {base + offset + down * row + right * pixel, pixel, row, (image.h + 2 * down) * row};
  }
};

// The values of a stretch in memory: those that are needed at once lie apart.
class Places {
 public:
  Places(const std::vector<ConvNetLayer>& layers, int64_t images) {
    add(layers.front().x, layers.front().in(), 0);
    for (size_t i = 0; i < layers.size(); ++i) {
      const ConvNetLayer& layer = layers[i];
      Place& x = of(layer.x);
      x.last = i + 1;
      if (layer.conv != nullptr) {
        x.down = std::max(x.down, layer.conv->shape.window.h.pad);
        x.right = std::max(x.right, layer.conv->shape.window.w.pad);
      }
      if (layer.residual) of(layer.residual).last = i + 1;
      add(layer.y, layer.out(), i + 1);
    }
    place(images);
  }
  Place& of(const Value& value) { return places_[index_.at(value.id)]; }
  size_t floats() const { return floats_; }

 private:
  void add(const Value& value, const Image& image, size_t layer) {
    index_[value.id] = places_.size();
    places_.push_back({.image = image, .first = layer, .last = layer});
  }
  void place(int64_t images) {
    std::vector<Place*> placed;  // by offset
    for (Place& each : places_) {
      each.floats = align_up(size_t(each.at(nullptr).image * images) * sizeof(float) + kAlignment) /
                    sizeof(float);
      size_t offset = 0;
      for (const Place* other : placed) {
        if (other->last < each.first || each.last < other->first) continue;
        if (offset + each.floats <= other->offset) break;
        offset = std::max(offset, other->offset + other->floats);
      }
      each.offset = offset;
      floats_ = std::max(floats_, offset + each.floats);
      placed.insert(
          std::ranges::upper_bound(placed, offset, {}, [](const Place* p) { return p->offset; }),
          &each);
    }
  }

  std::vector<Place> places_;
  std::unordered_map<ValueId, size_t> index_;
  size_t floats_ = 0;
};

// How the images of a call are shared out.
struct Sharing {
  int64_t images = 1;  // that a team takes through the layers at a time
  int teams = 1, threads = 1;

  Sharing(const ConvNetLayers& net, int all) {
    double flops = 0;
    for (const ConvNetLayer& layer : net.layers) {
      if (layer.conv != nullptr) flops += layer.conv->flops();
    }
    const int64_t n = net.n();
    if (flops < kLeastFlops || all == 1 || n >= kImagesPerThread * all) {
      teams = flops < kLeastFlops ? 1 : all;
    } else {
      images = n;
      threads = all;
    }
  }
};

// Floats that a thread needs for itself.
size_t own_floats(const ConvNetLayers& net) {
  int64_t most = 0;
  for (const ConvNetLayer& layer : net.layers) {
    if (layer.winograd1d()) most = std::max(most, layer.winograd1d_shape(1).thread_elements());
  }
  return align_up(size_t(most) * sizeof(float)) / sizeof(float);
}

class ConvNetStep final : public Step {
 public:
  ConvNetStep(const ConvNetLayers& net, const Binding& binding)
      : pool_(&cpu_runtime(binding.runtime()).pool()),
        sharing_(net, pool_->size()),
        places_(net.layers, sharing_.images),
        n_(net.n()),
        input_(binding.read(net.layers.front().x).as<float>()),
        output_(binding.write(net.layers.back().y).as<float>()),
        own_floats_(own_floats(net)),
        own_(reinterpret_cast<float*>(binding.workspace())),
        scratch_(own_ + own_floats_ * size_t(pool_->size())) {
    for (const ConvNetLayer& layer : net.layers) {
      Bound& bound = layers_.emplace_back();
      bound.layer = layer;
      if (layer.conv == nullptr) continue;
      // Images with a border have gaps between them.
      if (layer.winograd1d() && !bordered(layer.x) && !bordered(layer.y)) {
        add_winograd1d(bound, binding);
        continue;
      }
      bound.conv = std::make_unique<NhwcConv>(layer.conv->shape, images_of(layer.x, 0));
      bound.weights = std::make_unique<WeightMemory>(bound.conv->weight_floats());
      bound.conv->pack(binding.read(layer.conv->w).as<float>(),
                       binding.read(layer.conv->b).as<float>(), bound.weights->data());
    }
  }

  void run() override {
    if (sharing_.teams == 1 && sharing_.threads == 1) {
      for (int64_t i = 0; i < n_; ++i) pass(i, 1, 0, 0);
      return;
    }
    if (sharing_.threads > 1) {
      pool_->run([&](int thread) { pass(0, n_, 0, thread); });
      return;
    }
    next_ = 0;
    pool_->run([&](int thread) {
      for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) {
        pass(i, 1, thread, 0);
      }
    });
  }

 private:
  struct Bound {
    ConvNetLayer layer;
    std::unique_ptr<NhwcConv> conv;
    std::unique_ptr<WeightMemory> weights;
    Winograd1dArgs winograd1d{};  // without x and y, if there is no conv
  };

  // Makes the transformed weights, with zeros for the channels that fill up a pixel.
  void add_winograd1d(Bound& bound, const Binding& binding) {
    const Conv2d& op = *bound.layer.conv;
    Winograd1dArgs& args = bound.winograd1d;
    args.shape = bound.layer.winograd1d_shape(1);
    args.bias = binding.read(op.b).as<float>();
    args.panels = {0, args.shape.out / kWinograd1dPanel};
    const int64_t taps = args.shape.kernel, from = op.shape.in.c * taps, to = args.shape.in * taps;
    std::vector<float> w(size_t(args.shape.out * to));
    const auto* given = binding.read(op.w).as<float>();
    for (int64_t o = 0; o < args.shape.out; ++o)
      std::copy_n(given + o * from, from, &w[size_t(o * to)]);
    bound.weights = std::make_unique<WeightMemory>(args.shape.weight_elements());
    args.u = bound.weights->data();
    args.w = w.data();
    winograd1d_functions().weights(args, args.panels);
    args.w = nullptr;
  }

  NhwcImages images_of(const Value& value, int team) {
    return places_.of(value).at(scratch_ + size_t(team) * places_.floats());
  }
  bool bordered(const Value& value) {
    return places_.of(value).down > 0 || places_.of(value).right > 0;
  }
  Range mine(int64_t count, int thread) const { return split(count, thread, sharing_.threads); }

  // `count` images from `first` on through all layers: a thread's part of a team's work.
  void pass(int64_t first, int64_t count, int team, int thread) {
    const auto wait = [&] {
      if (sharing_.threads > 1) pool_->barrier();
    };
    const ConvNetLayer& begin = layers_.front().layer;
    const NhwcImages x = images_of(begin.x, team);
    nhwc_load(input_ + first * begin.in().numel(), begin.in(), x, mine(count, thread));
    border(begin.x, x, count, thread);
    wait();
    for (const Bound& bound : layers_) {
      const bool last = &bound == &layers_.back();
      const Image out = bound.layer.out();
      NhwcImages y = images_of(bound.layer.y, team);
      const bool direct = last && out.pixels() == 1;  // the same numbers in either layout
      if (direct) y = {output_ + first * out.c, out.c, out.c, out.c};
      compute(bound, y, count, team, thread);
      if (!last) border(bound.layer.y, y, count, thread);
      if (last && direct) break;
      wait();
      if (last) nhwc_store(y, out, output_ + first * out.numel(), mine(count, thread));
    }
  }

  void border(const Value& value, const NhwcImages& images, int64_t count, int thread) {
    const Place& place = places_.of(value);
    nhwc_border(images, place.image, place.down, place.right, mine(count, thread));
  }

  void compute(const Bound& bound, const NhwcImages& y, int64_t count, int team, int thread) {
    const ConvNetLayer& layer = bound.layer;
    const NhwcImages x = images_of(layer.x, team);
    if (layer.conv == nullptr) {
      NhwcPool pool{layer.max != nullptr ? layer.max->shape : layer.average->shape, 0, layer.act};
      if (layer.average != nullptr) {
        const Window& window = layer.average->shape.window;
        pool.divisor = layer.average->count == PoolCount::image
                           ? -1
                           : double(window.h.kernel * window.w.kernel);
      }
      return pool.run(x, y, mine(count * layer.out().h, thread));
    }
    if (bound.conv == nullptr) {
      Winograd1dArgs args = bound.winograd1d;
      args.shape.n = count;
      args.x = x.data;
      args.y = y.data;
      const int64_t panels = args.panels.end;
      Range chunks{0, args.shape.chunks()};
      if (panels % sharing_.threads == 0) {
        args.panels = mine(panels, thread);
      } else {
        chunks = mine(chunks.end, thread);
      }
      return winograd1d_functions().convolve(args, own_ + own_floats_ * size_t(team + thread),
                                             chunks);
    }
    NhwcEpilogue epilogue{layer.act, layer.after, nullptr};
    NhwcImages residual;
    if (layer.residual) {
      residual = images_of(layer.residual, team);
      epilogue.residual = &residual;
    }
    const int64_t tiles = bound.conv->tiles(count), panels = bound.conv->panels();
    Range of_tiles{0, tiles}, of_panels{0, panels};
    (by_panels(*bound.conv, count) ? of_panels : of_tiles) =
        mine(by_panels(*bound.conv, count) ? panels : tiles, thread);
    bound.conv->run(x, y, epilogue, count, of_tiles, of_panels);
  }

  // Whether threads take parts of the output channels and not of the pixels: each then reads its
  // part of the weights, which are more than the images, and no thread gets much more than others.
  bool by_panels(const NhwcConv& conv, int64_t count) const {
    const int64_t threads = sharing_.threads, panels = conv.panels(), tiles = conv.tiles(count);
    const auto most = [&](int64_t parts) {
      return double((parts + threads - 1) / threads) / double(parts);
    };
    if (conv.weight_floats() > count * conv.shape().in.numel()) {
      return most(panels) < 1.1 * most(tiles);
    }
    return most(panels) < 0.9 * most(tiles);
  }

  ThreadPool* pool_;
  Sharing sharing_;
  Places places_;
  std::vector<Bound> layers_;
  int64_t n_;
  const float* input_;
  float* output_;
  size_t own_floats_;
  float *own_, *scratch_;  // of each thread, of each team
  std::atomic<int64_t> next_{0};
};

Cover covers_conv_net(const RemainingOps& rest) {
  const auto takes = [&](size_t at) {
    if (rest.looks != nullptr) ++*rest.looks;
    const Op& op = rest.program.ops[at];
    return std::holds_alternative<Conv2d>(op) || std::holds_alternative<MaxPool>(op) ||
           std::holds_alternative<AvgPool>(op);
  };
  if (!takes(rest.begin)) return Cover::no("begins with a convolution or a pool");
  // Planning does not walk a stretch again from each of its ops.
  const auto joins = [&](size_t at) {
    const Op& op = rest.program.ops[at];
    return takes(at) || std::holds_alternative<Add>(op) ||
           (at > 0 && std::holds_alternative<Activation>(op) && takes(at - 1));
  };
  if (rest.begin > 0 && joins(rest.begin - 1)) {
    return Cover::no("begins with the first of the ops that it takes");
  }
  const ConvNetLayers net(rest, SIZE_MAX);
  if (net.ops == 0) {
    return Cover::no(net.why.empty() ? "has no convolution before its one result" : net.why);
  }
  Cover cover = Cover::of(net.ops);
  cover.skips = net.inner;
  const int threads = cpu_runtime(rest.runtime).pool().size();
  const Sharing sharing(net, threads);
  const size_t images = size_t(sharing.teams) * Places(net.layers, sharing.images).floats();
  cover.workspace = (images + own_floats(net) * size_t(threads)) * sizeof(float);
  return cover;
}

}  // namespace

KernelTable conv_net_kernels() {
  Kernel kernel;
  kernel.name = "cpu.conv_net.nhwc";
  kernel.covers = covers_conv_net;
  kernel.prepare = [](const Span& span, const Binding& binding) -> std::unique_ptr<Step> {
    const RemainingOps rest{span.program, span.begin, binding.runtime()};
    return std::make_unique<ConvNetStep>(ConvNetLayers(rest, span.size()), binding);
  };
  return computing_in(kFloatOnly, {kernel});
}

}  // namespace ridgeline::cpu::simd
