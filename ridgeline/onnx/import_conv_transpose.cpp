#include <algorithm>

#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

// One axis of a transposed convolution. Output position q * stride + p is the result of an ordinary
// convolution over the input at position q in its phase p, whose kernel has every stride-th weight.
struct TransposeAxis {
  int64_t extent, kernel, stride, dilation;
  int64_t begin = 0, end = 0;  // of all positions, those that are kept
  int64_t taps = 0;            // of the kernel of a phase

  int64_t all() const { return (extent - 1) * stride + dilation * (kernel - 1) + 1; }
  // The weight that tap t of phase p uses; -1: none.
  int64_t weight(int64_t phase, int64_t t) const {
    const int64_t place = phase + (taps - 1 - t) * stride;
    return place % dilation == 0 && place / dilation < kernel ? place / dilation : -1;
  }
};

std::vector<TransposeAxis> read_axes(Importer& in, const View& view, const Constant& weight) {
  const Node& node = in.node();
  const size_t count = view.dims.size() - 2;
  const std::vector<int64_t> ones(count, 1), zeros(count, 0);
  const auto strides = node.integers("strides", ones), dilations = node.integers("dilations", ones);
  const auto more = node.integers("output_padding", zeros);
  const auto shape = node.integers("output_shape");
  const auto pads = node.integers("pads", std::vector<int64_t>(2 * count, 0));
  if (strides.size() != count || dilations.size() != count || more.size() != count ||
      pads.size() != 2 * count || (!shape.empty() && shape.size() != count)) {
    in.refuse("its attributes do not fit the dimensions of its input");
  }
  const std::string automatic = node.text("auto_pad", "NOTSET");
  const bool same = automatic.starts_with("SAME");
  std::vector<TransposeAxis> axes;
  for (size_t i = 0; i < count; ++i) {
    TransposeAxis axis{view.dims[2 + i], weight.dims[2 + i], strides[i], dilations[i]};
    if (axis.kernel < 1 || axis.stride < 1 || axis.dilation < 1 || more[i] < 0) {
      in.refuse("its window has a size, stride or dilation that is none");
    }
    constexpr int64_t kMost = 1 << 20;
    const auto [least, most] = std::minmax({axis.stride, axis.dilation, more[i], pads[i],
                                            pads[count + i], shape.empty() ? 0 : shape[i]});
    if (most > kMost || least < -kMost) {
      in.refuse(fmt::format("its window has a stride, dilation, size or padding above {}", kMost));
    }
    int64_t outputs = axis.all() + more[i] - pads[i] - pads[count + i];
    axis.begin = pads[i];
    if (automatic == "VALID") outputs = axis.all() + more[i], axis.begin = 0;
    if (same || !shape.empty()) {
      outputs = shape.empty() ? axis.extent * axis.stride : shape[i];
      const int64_t padding = std::max<int64_t>(0, axis.all() + more[i] - outputs);
      axis.begin = automatic == "SAME_UPPER" ? padding / 2 : padding - padding / 2;
    }
    axis.end = axis.begin + outputs;
    if (axis.begin < 0 || outputs < 1) in.refuse("its padding leaves nothing, or is none");
    const int64_t reach = std::max(axis.all(), axis.end) - (axis.extent - 1) * axis.stride;
    axis.taps = (reach + axis.stride - 1) / axis.stride;
    axes.push_back(axis);
  }
  return axes;
}

// [out * phases, in / groups, taps] from [in, out / groups, kernel]
std::vector<float> phase_weights(const Constant& weight, const TransposeAxis& h,
                                 const TransposeAxis& w, int64_t groups) {
  const int64_t in = weight.dims[0] / groups, out = weight.dims[1];
  std::vector<float> made;
  for (int64_t o = 0; o < out * groups; ++o) {
    for (int64_t phase = 0; phase < h.stride * w.stride; ++phase) {
      for (int64_t i = 0; i < in; ++i) {
        const int64_t from = (o / out * in + i) * out + o % out;
        for (int64_t tap = 0; tap < h.taps * w.taps; ++tap) {
          const int64_t y = h.weight(phase / w.stride, tap / w.taps);
          const int64_t x = w.weight(phase % w.stride, tap % w.taps);
          const bool used = y >= 0 && x >= 0;
          made.push_back(used ? weight.floats[size_t((from * h.kernel + y) * w.kernel + x)] : 0.0f);
        }
      }
    }
  }
  return made;
}

}  // namespace

// A convolution computes all phases as channels, and a transpose interleaves them (sub-pixel
// convolution).
void import_conv_transpose(Importer& in) {
  const ConstantPtr weight = in.require_known(1);
  const View view = in.take_plain(0).view;
  const size_t rank = view.dims.size();
  const int64_t groups = in.node().integer("group", 1);
  if (rank != 3 && rank != 4) in.refuse("only one or two dimensions are computed here");
  if (weight->integer || weight->dims.size() != rank || weight->dims[0] != view.dims[1] ||
      groups < 1 || weight->dims[0] % groups != 0) {
    in.refuse("its weight does not fit its input");
  }
  const std::vector<TransposeAxis> axes = read_axes(in, view, *weight);
  const TransposeAxis one{1, 1, 1, 1, 0, 1, 1};
  const TransposeAxis &h = rank == 4 ? axes[0] : one, &w = axes.back();
  const int64_t out = weight->dims[1] * groups, phases = h.stride * w.stride;
  std::vector<int64_t> kernel, padding;
  for (const TransposeAxis& axis : axes) {
    kernel.push_back(axis.taps);
    padding.push_back(axis.taps - 1);
  }
  constexpr double kMostWeights = 1 << 24;
  if (double(weight->dims[0]) * double(weight->dims[1]) * double(phases) * double(h.taps) *
          double(w.taps) >
      kMostWeights) {
    in.refuse("its phases have more weights together than are taken here");
  }
  Draft draft;
  draft.type = rank == 4 ? "conv2d" : "conv1d";
  draft.set("out", out * phases);
  draft.set_pair("kernel", kernel);
  draft.set_pair("padding", padding);
  draft.set("groups", groups);
  draft.set("bias", in.has(2));
  draft.weights.push_back({"weight", phase_weights(*weight, h, w, groups)});
  if (in.has(2)) {
    const ConstantPtr bias = in.require_known(2);
    if (bias->numel() != out || bias->integer) in.refuse("its bias does not fit");
    std::vector<float> repeated;
    for (const float each : bias->floats) repeated.insert(repeated.end(), size_t(phases), each);
    draft.weights.push_back({"bias", std::move(repeated)});
  }
  in.shape_input(Shape(view.sample()));
  in.add(std::move(draft));
  View made = batch_first_view(in.stored());
  if (phases > 1) {
    const int64_t rows = h.extent + h.taps - 1, columns = w.extent + w.taps - 1;
    const std::vector<int64_t> perm{0, 1, 4, 2, 5, 3};
    made = transposed(batch_first_view(Shape{out, h.stride, w.stride, rows, columns}), perm);
    made = in.straighten(made);
    std::vector<int64_t> whole{kBatch, out, rows * h.stride, columns * w.stride};
    if (rank == 3) whole.erase(whole.begin() + 2);
    made = *reshaped(made, whole, 0);
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].begin == 0 && axes[i].end == made.dims[2 + i]) continue;
    add_slice(in, made, 1 + i, axes[i].begin, axes[i].end);
  }
  in.give(made);
}

}  // namespace ridgeline::onnx
