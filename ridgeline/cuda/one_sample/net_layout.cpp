#include "ridgeline/cuda/one_sample/net_layout.h"

#include <algorithm>

#include "ridgeline/cuda/kernel.h"

namespace ridgeline::cuda::one_sample {
namespace {

// If a block would read more than this per request, more blocks are used. More blocks take longer
// to exchange layers: on an H200, networks of 0.5 MB were fastest on 4 to 8 blocks, and of 1.2 MB
// on 16.
constexpr double kBytesPerBlock = 75e3;
constexpr double kMostBytes = 16e6;  // beyond this, the whole GPU is faster

int round_up(int64_t n, int64_t to) { return int((n + to - 1) / to * to); }

LayerKind kind_of(const ChainLayer& layer) {
  if (!layer.cell) return LayerKind::linear;
  switch (*layer.cell) {
    case CellKind::rnn_relu:
      return LayerKind::rnn_relu;
    case CellKind::rnn_tanh:
      return LayerKind::rnn_tanh;
    case CellKind::gru:
      return LayerKind::gru;
    case CellKind::lstm:
      break;
  }
  return LayerKind::lstm;
}

int64_t gates_of(const ChainLayer& layer) { return layer.cell ? gates(*layer.cell) : 1; }

// The bytes that are read while a caller waits; recurrent weights are not among them.
double hot_bytes(const LayerChain& chain) {
  double bytes = 0;
  for (const ChainLayer& layer : chain.layers) {
    bytes += double(sizeof(float)) * double(gates_of(layer) * layer.out) * double(layer.in + 1);
  }
  return bytes;
}

double all_bytes(const LayerChain& chain) {
  double bytes = hot_bytes(chain);
  for (const ChainLayer& layer : chain.layers) {
    if (!layer.cell) continue;
    bytes += double(sizeof(float)) * double(gates_of(layer) * layer.out) * double(layer.out + 1);
  }
  return bytes;
}

std::string misfit(const LayerChain& chain) {
  if (chain.layers.size() > size_t(kMostLayers)) return "takes up to 24 layers";
  for (const ChainLayer& layer : chain.layers) {
    if (layer.activation && !has_activation_fn(*layer.activation)) return kNoActivationFn;
    if (layer.in < 1 || layer.out < 1) return "empty";
  }
  return all_bytes(chain) > kMostBytes ? "takes weights of up to 16 MB" : "";
}

// Copies the weights of one block, matrix after matrix.
class Packer {
 public:
  Packer(std::vector<float>& to, int64_t at) : to_(to), begin_(at), at_(at) {}

  int64_t position() const { return at_ - begin_; }
  void row(const float* from, int64_t count, int64_t width, bool chunked) {
    for (int64_t i = 0; from != nullptr && i < count; ++i) {
      const int64_t place = chunked ? i / kFloatsPerChunk * 4 + i % kFloatsPerChunk : i;
      to_[size_t(at_ + place)] = from[i];
    }
    at_ += width;
  }
  void number(float value) { to_[size_t(at_++)] = value; }

 private:
  std::vector<float>& to_;
  int64_t begin_, at_;
};

// The row of a layer's matrix that is row `r` of group `group`; -1: padding.
int64_t row_of(const ChainLayer& layer, int64_t group, int64_t r) {
  const int64_t gates = gates_of(layer);
  const int64_t row = gates > 1 ? r * layer.out + group : 4 * group + r;
  const bool there = gates > 1 ? group < layer.out && r < gates : row < layer.out;
  return there ? row : -1;
}

struct Matrix {
  const float *w, *b;
  int64_t in, width;     // floats of a row, without and with padding
  bool chunked = false;  // like the inputs: three floats, and a slot for the request's number
};

// Packs the rows of one block's groups, and their biases.
void pack(Packer& packer, const ChainLayer& layer, int groups, int block, const Matrix& matrix,
          int& w_at, int& b_at) {
  const auto each = [&](const auto& f) {
    for (int64_t group = int64_t{block} * groups; group < int64_t{block + 1} * groups; ++group) {
      for (int64_t r = 0; r < 4; ++r) f(row_of(layer, group, r));
    }
  };
  w_at = int(packer.position());
  each([&](int64_t row) {
    packer.row(row < 0 ? nullptr : matrix.w + row * matrix.in, matrix.in, matrix.width,
               matrix.chunked);
  });
  b_at = int(packer.position());
  each([&](int64_t row) { packer.number(row < 0 || matrix.b == nullptr ? 0.0f : matrix.b[row]); });
}

void pack_block(NetLayout& layout, const LayerChain& chain, int block) {
  Packer packer(layout.weights, block * layout.args.weights_stride);
  for (size_t l = 0; l < chain.layers.size(); ++l) {
    const ChainLayer& layer = chain.layers[l];
    LayerArgs& args = layout.args.layer[l];
    pack(packer, layer, args.groups, block, {layer.w, layer.b, layer.in, args.in, l == 0}, args.w,
         args.b);
  }
  for (size_t l = 0; l < chain.layers.size(); ++l) {
    const ChainLayer& layer = chain.layers[l];
    LayerArgs& args = layout.args.layer[l];
    if (!layer.cell) continue;
    pack(packer, layer, args.groups, block,
         {layer.w_hh, layer.b_hh, layer.out, round_up(layer.out, 4)}, args.w_hh, args.b_hh);
  }
}

void place_layers(NetArgs& args, const LayerChain& chain) {
  args.layers = int(chain.layers.size());
  args.chunks =
      std::max(round_up(chain.layers.front().in, kFloatsPerChunk) / kFloatsPerChunk, args.blocks);
  int x = 0, state = 0;
  int64_t floats = 0;
  for (int l = 0; l < args.layers; ++l) {
    const ChainLayer& layer = chain.layers[size_t(l)];
    LayerArgs& to = args.layer[l];
    to.kind = kind_of(layer);
    to.activation = layer.activation ? activation_of(*layer.activation) : ActivationFn::none;
    if (to.kind == LayerKind::rnn_relu) to.activation = ActivationFn::relu;
    if (to.kind == LayerKind::rnn_tanh) to.activation = ActivationFn::tanh;
    to.in = l == 0 ? 4 * args.chunks : round_up(layer.in, 4);
    to.out = int(layer.out);
    const int each = outputs_per_group(to.kind);
    to.groups = (round_up(layer.out, each) / each + args.blocks - 1) / args.blocks;
    to.x = x;
    to.state = state;
    x += to.in;
    to.y = x;
    floats += int64_t{4} * to.groups * (to.in + 1);
    if (!layer.cell) continue;
    state += to.groups * (4 + 2 * each);
    floats += int64_t{4} * to.groups * (round_up(layer.out, 4) + 1);
  }
  const LayerArgs& last = args.layer[args.layers - 1];
  if (last.kind != LayerKind::linear) x += round_up(last.out, 4);
  args.inputs = round_up(x, 4);
  args.state_floats = round_up(state, 4);
  args.slots = last.groups * outputs_per_group(last.kind);
  args.weights_stride = floats;
}

// The weights that are read while a caller waits must fit in shared memory; recurrent weights are
// added layer by layer while there is room.
bool place_on_chip(NetArgs& args, const NetLimits& limits) {
  const int64_t room =
      (int64_t(limits.shared_bytes) - int64_t(args.shared_bytes())) / int64_t(sizeof(float));
  const LayerArgs& last = args.layer[args.layers - 1];
  args.on_chip = last.b + 4 * last.groups;
  if (args.on_chip > room) return false;
  for (int l = 0; limits.stays && l < args.layers; ++l) {
    LayerArgs& layer = args.layer[l];
    if (layer.kind == LayerKind::linear) continue;
    layer.w_hh_on_chip = layer.b_hh <= room;
    if (layer.w_hh_on_chip) args.on_chip = layer.b_hh;
  }
  return true;
}

}  // namespace

std::optional<NetLayout> lay_out_net(const LayerChain& chain, const NetLimits& limits,
                                     std::string& why_not) {
  why_not = misfit(chain);
  if (!why_not.empty()) return std::nullopt;
  NetLayout layout;
  NetArgs& args = layout.args;
  args.blocks = limits.blocks;
  if (args.blocks == 0) {
    args.blocks = 1;
    while (args.blocks < kMostBlocks && hot_bytes(chain) > kBytesPerBlock * args.blocks) {
      args.blocks *= 2;
    }
  }
  place_layers(args, chain);
  layout.weights.resize(size_t(args.blocks * args.weights_stride));
  for (int block = 0; block < args.blocks; ++block) pack_block(layout, chain, block);
  if (!place_on_chip(args, limits)) {
    why_not = "the weights do not fit on the chip";
    return std::nullopt;
  }
  return layout;
}

}  // namespace ridgeline::cuda::one_sample
