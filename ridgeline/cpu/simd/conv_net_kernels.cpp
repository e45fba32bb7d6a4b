#include "ridgeline/cpu/simd/conv_net_kernels.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/nhwc_conv.h"
#include "ridgeline/cpu/simd/weight_memory.h"
#include "ridgeline/cpu/simd/winograd1d_conv.h"

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

// A convolution or a pool with what is fused into it.
struct Layer {
  const Conv2d* conv = nullptr;  // or
  const MaxPool* max = nullptr;  // or
  const AvgPool* average = nullptr;
  SimdActivation act{}, after{};
  Value x{}, residual{}, y{};

  Image in() const {
    return conv != nullptr ? conv->shape.in : max != nullptr ? max->shape.in : average->shape.in;
  }
  Image out() const {
    return conv != nullptr  ? conv->shape.out()
           : max != nullptr ? max->shape.out()
                            : average->shape.out();
  }
  // Whether winograd1d_conv.h computes it: a convolution of a signal over many channels.
  bool winograd1d() const {
    if (conv == nullptr || residual || after != SimdActivation::none) return false;
    if (act != SimdActivation::none && act != SimdActivation::relu) return false;
    const Conv2dShape& s = conv->shape;
    const Slide& right = s.window.w;
    constexpr int64_t kFewest = 32;  // with fewer the bound of a direct sum is too tight
    return s.in.h == 1 && s.window.h == Slide{} && s.groups == 1 && right.kernel >= 3 &&
           right.kernel <= 7 && right == Slide{right.kernel} && s.in.c >= kFewest &&
           s.k % kWinograd1dPanel == 0;
  }
  Winograd1dShape winograd1d_shape(int64_t images) const {
    const Conv2dShape& s = conv->shape;
    return {images, s.in.w, nhwc_pixel(s.in.c), s.k, s.window.w.kernel, act == SimdActivation::relu,
            false};
  }
};

bool increases(SimdActivation act) {
  return act == SimdActivation::tanh || act == SimdActivation::sigmoid ||
         act == SimdActivation::softplus;
}

// The layers of the longest stretch of ops whose values but the last stay inside.
class Stretch {
 public:
  Stretch(const Rest& rest, size_t most) : rest_(rest) {
    size_t layers = 0;
    for (size_t count = 0; rest.begin + count < rest.program.ops.size() && count < most; ++count) {
      if (rest.looks != nullptr) ++*rest.looks;
      at_ = rest.begin + count;
      why_ = std::visit([this](const auto& op) { return take(op); }, rest.program.ops[at_]);
      if (!why_.empty()) break;
      written_.push_back(layers_.back().y.id);
      if (before_ < int64_t(at_ + 1)) {  // nothing but the last result is read later
        ops_ = count + 1;
        layers = layers_.size();
        ended_ = layers_.back();
      }
    }
    layers_.resize(layers);
    if (layers > 0) layers_.back() = ended_;
    written_.resize(ops_);
    if (!written_.empty()) written_.pop_back();
    has_conv_ = std::ranges::any_of(layers_, [](const Layer& each) { return each.conv; });
  }

  size_t ops() const { return has_conv_ ? ops_ : 0; }
  const std::string& why() const { return why_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<ValueId>& inner() const { return written_; }
  int64_t n() const { return layers_.front().x.shape[0]; }

 private:
  static constexpr int64_t kForever = INT64_MAX;

  int64_t last_read(const Value& value) const {
    const bool inside = rest_.program.info(value.id).role == Role::temp;
    return inside ? rest_.program.last_read(value.id) : kForever;
  }
  bool known(const Value& value) const {
    return layers_.empty() || value.id == layers_.front().x.id ||
           std::ranges::any_of(layers_, [&](const Layer& each) { return each.y.id == value.id; });
  }
  bool fixed(const Value& value) const {
    const Role role = value ? rest_.program.info(value.id).role : Role::param;
    return role == Role::param || role == Role::copy;
  }
  // Whether only this op reads what the last layer gives.
  bool only_here(const Value& value) const {
    return !layers_.empty() && layers_.back().y.id == value.id && last_read(value) == int64_t(at_);
  }
  void push(Layer layer) {
    if (!layers_.empty()) before_ = std::max(before_, last_read(layers_.back().y));
    layers_.push_back(std::move(layer));
  }

  std::string take(const Conv2d& op) {
    const Conv2dShape& s = op.shape;
    for (const Value& each : {op.x, op.w, op.b, op.y}) {
      if (each && each.dtype != DType::fp32) return "takes fp32 only";
    }
    if (op.x.shape.numel() == 0 || op.y.shape.numel() == 0) return "empty";
    if (!fixed(op.w) || !fixed(op.b)) return "takes weights that do not change";
    if (s.groups != 1 && (s.groups != s.in.c || s.groups != s.k)) {
      return "takes one group, or one for each channel";
    }
    if (!known(op.x)) return "reads a value from before";
    push({.conv = &op, .x = op.x, .y = op.y});
    return {};
  }
  std::string take(const MaxPool& op) { return take_pool(op, {.max = &op, .x = op.x, .y = op.y}); }
  std::string take(const AvgPool& op) {
    return take_pool(op, {.average = &op, .x = op.x, .y = op.y});
  }
  template <typename Pool>
  std::string take_pool(const Pool& op, Layer layer) {
    if (op.x.dtype != DType::fp32 || op.x.shape.numel() == 0) return "takes fp32 only";
    if (!known(op.x)) return "reads a value from before";
    // The largest of increasing functions is the function of the largest, which is less work.
    if (layer.max != nullptr && only_here(op.x) && increases(layers_.back().act) &&
        !layers_.back().residual) {
      std::swap(layer.act, layers_.back().act);
    }
    push(std::move(layer));
    return {};
  }
  std::string take(const Activation& op) {
    if (!only_here(op.x) || op.y.dtype != DType::fp32) return "follows no layer alone";
    Layer& layer = layers_.back();
    const bool first = layer.act == SimdActivation::none && !layer.residual;
    if (!first && (layer.conv == nullptr || layer.after != SimdActivation::none)) {
      return "takes one activation";
    }
    (first ? layer.act : layer.after) = simd_activation(op);
    layer.y = op.y;
    return {};
  }
  std::string take(const Add& op) {
    if (op.xs.size() != 2 || op.scale != 1 || op.xs[0].id == op.xs[1].id) return "adds two values";
    const Value &last = only_here(op.xs[1]) ? op.xs[1] : op.xs[0],
                &other = only_here(op.xs[1]) ? op.xs[0] : op.xs[1];
    if (!only_here(last) || !known(other)) return "adds to what it has just computed";
    Layer& layer = layers_.back();
    if (layer.conv == nullptr || layer.residual || layer.after != SimdActivation::none ||
        image_of(other) != layer.out()) {
      return "adds once to a convolution of the same image";
    }
    layer.residual = other;
    layer.y = op.y;
    return {};
  }
  template <typename Other>
  std::string take(const Other&) {
    return "the next op is none that a convolutional net takes";
  }
  Image image_of(const Value& value) const {
    for (const Layer& each : layers_) {
      if (each.y.id == value.id) return each.out();
    }
    return layers_.front().in();
  }

  const Rest& rest_;
  size_t at_ = 0;
  std::vector<Layer> layers_;
  Layer ended_;
  std::vector<ValueId> written_;
  int64_t before_ = -1;  // the last op that reads a value from before the last layer
  size_t ops_ = 0;
  std::string why_;
  bool has_conv_ = false;
};

// Where the images of a value lie in the memory of a team of threads.
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
  Places(const std::vector<Layer>& layers, int64_t images) {
    add(layers.front().x, layers.front().in(), 0);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& layer = layers[i];
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

  Sharing(const Stretch& stretch, int all) {
    double flops = 0;
    for (const Layer& layer : stretch.layers()) {
      if (layer.conv != nullptr) flops += layer.conv->flops();
    }
    const int64_t n = stretch.n();
    if (flops < kLeastFlops || all == 1 || n >= kImagesPerThread * all) {
      teams = flops < kLeastFlops ? 1 : all;
    } else {
      images = n;
      threads = all;
    }
  }
};

// Floats that a thread needs for itself.
size_t own_floats(const Stretch& stretch) {
  int64_t most = 0;
  for (const Layer& layer : stretch.layers()) {
    if (layer.winograd1d()) most = std::max(most, layer.winograd1d_shape(1).thread_elements());
  }
  return align_up(size_t(most) * sizeof(float)) / sizeof(float);
}

class ConvNetStep final : public Step {
 public:
  ConvNetStep(const Stretch& stretch, const Binding& binding)
      : pool_(&cpu_runtime(binding.runtime()).pool()),
        sharing_(stretch, pool_->size()),
        places_(stretch.layers(), sharing_.images),
        n_(stretch.n()),
        input_(binding.read(stretch.layers().front().x).as<float>()),
        output_(binding.write(stretch.layers().back().y).as<float>()),
        own_floats_(own_floats(stretch)),
        own_(reinterpret_cast<float*>(binding.workspace())),
        scratch_(own_ + own_floats_ * size_t(pool_->size())) {
    for (const Layer& layer : stretch.layers()) {
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
    Layer layer;
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
    const Layer& begin = layers_.front().layer;
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
    const Layer& layer = bound.layer;
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

Cover covers_conv_net(const Rest& rest) {
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
  const Stretch stretch(rest, SIZE_MAX);
  if (stretch.ops() == 0) {
    return Cover::no(stretch.why().empty() ? "has no convolution before its one result"
                                           : stretch.why());
  }
  Cover cover = Cover::of(stretch.ops());
  cover.skips = stretch.inner();
  const int threads = cpu_runtime(rest.runtime).pool().size();
  const Sharing sharing(stretch, threads);
  const size_t images = size_t(sharing.teams) * Places(stretch.layers(), sharing.images).floats();
  cover.workspace = (images + own_floats(stretch) * size_t(threads)) * sizeof(float);
  return cover;
}

}  // namespace

KernelTable conv_net_kernels() {
  Kernel kernel;
  kernel.name = "cpu.conv_net.nhwc";
  kernel.covers = covers_conv_net;
  kernel.prepare = [](const Span& span, const Binding& binding) -> std::unique_ptr<Step> {
    const Rest rest{span.program, span.begin, binding.runtime()};
    return std::make_unique<ConvNetStep>(Stretch(rest, span.size()), binding);
  };
  return computing_in(kFloatOnly, {kernel});
}

}  // namespace ridgeline::cpu::simd
