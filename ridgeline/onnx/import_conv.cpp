#include <algorithm>
#include <limits>

#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

// One axis of a window as ONNX describes it.
struct Axis {
  int64_t extent, kernel, stride, dilation, before, after;

  int64_t reach() const { return dilation * (kernel - 1) + 1; }
};

std::vector<Axis> read_window(Importer& in, const View& view, std::vector<int64_t> kernel) {
  const Node& node = in.node();
  const size_t axes = view.dims.size() - 2;
  kernel = node.integers("kernel_shape", kernel);
  const auto strides = node.integers("strides", std::vector<int64_t>(axes, 1));
  const auto dilations = node.integers("dilations", std::vector<int64_t>(axes, 1));
  auto pads = node.integers("pads", std::vector<int64_t>(2 * axes, 0));
  if (kernel.size() != axes || strides.size() != axes || dilations.size() != axes ||
      pads.size() != 2 * axes) {
    in.refuse("its attributes do not fit the dimensions of its input");
  }
  const std::string automatic = node.text("auto_pad", "NOTSET");
  std::vector<Axis> window;
  for (size_t i = 0; i < axes; ++i) {
    Axis axis{view.dims[2 + i], kernel[i], strides[i], dilations[i], pads[i], pads[axes + i]};
    if (axis.kernel < 1 || axis.stride < 1 || axis.dilation < 1 || axis.before < 0 ||
        axis.after < 0) {
      in.refuse("its window has a size, stride, dilation or padding that is none");
    }
    constexpr int64_t kMost = 1 << 20;
    if (std::max({axis.kernel, axis.stride, axis.dilation, axis.before, axis.after}) > kMost) {
      in.refuse(fmt::format("its window has a size, stride, dilation or padding above {}", kMost));
    }
    if (automatic == "VALID") axis.before = axis.after = 0;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const int64_t outputs = (axis.extent + axis.stride - 1) / axis.stride;
      const int64_t all =
          std::max<int64_t>(0, (outputs - 1) * axis.stride + axis.reach() - axis.extent);
      axis.before = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      axis.after = all - axis.before;
    }
    window.push_back(axis);
  }
  return window;
}

template <typename F>
std::vector<int64_t> each(const std::vector<Axis>& window, F of) {
  std::vector<int64_t> numbers;
  for (const Axis& axis : window) numbers.push_back(of(axis));
  return numbers;
}

// Pads the input of the window with a layer.
void pad_before(Importer& in, std::vector<Axis>& window, double value) {
  std::vector<std::pair<int64_t, int64_t>> pads{{0, 0}};  // channels
  for (Axis& axis : window) {
    pads.emplace_back(axis.before, axis.after);
    axis.extent += axis.before + axis.after;
    axis.before = axis.after = 0;
  }
  add_padding(in, pads, value);
}

// Our padding is the same on both sides. A kernel with zeros at one end ignores what a smaller
// padding would leave out, so any padding can become an even one.
void even_out(Importer& in, std::vector<Axis>& window, int64_t filters,
              std::vector<float>& weight) {
  const auto uneven = [](const Axis& axis) {
    const int64_t gap = std::abs(axis.before - axis.after);
    return gap % axis.dilation != 0 || gap / axis.dilation > axis.kernel;
  };
  if (std::ranges::any_of(window, uneven)) return pad_before(in, window, 0);
  for (size_t a = 0; a < window.size(); ++a) {
    Axis& axis = window[a];
    const int64_t gap = std::abs(axis.before - axis.after);
    if (gap == 0) continue;
    const int64_t more = gap / axis.dilation, first = axis.before < axis.after ? more : 0;
    int64_t outer = filters, inner = 1;
    for (size_t i = 0; i < a; ++i) outer *= window[i].kernel;
    for (size_t i = a + 1; i < window.size(); ++i) inner *= window[i].kernel;
    const int64_t old = axis.kernel, size = old + more;
    std::vector<float> wider(size_t(outer * size * inner), 0.0f);
    for (int64_t o = 0; o < outer; ++o) {
      std::copy_n(weight.begin() + o * old * inner, old * inner,
                  wider.begin() + (o * size + first) * inner);
    }
    weight = std::move(wider);
    axis.kernel = size;
    axis.before = axis.after = std::max(axis.before, axis.after);
  }
}

void set_window(Draft& draft, const std::vector<Axis>& window, bool dilated) {
  draft.set_pair("kernel", each(window, [](const Axis& a) { return a.kernel; }));
  draft.set_pair("stride", each(window, [](const Axis& a) { return a.stride; }));
  draft.set_pair("padding", each(window, [](const Axis& a) { return a.before; }));
  if (dilated) draft.set_pair("dilation", each(window, [](const Axis& a) { return a.dilation; }));
}

const View& take_image(Importer& in) {
  const View& view = in.take_plain(0).view;
  if (view.dims.size() != 3 && view.dims.size() != 4) {
    in.refuse("only windows over one or two dimensions are computed here");
  }
  return view;
}

View image_view(const Importer& in) { return batch_first_view(in.stored()); }

}  // namespace

void import_conv(Importer& in) {
  const ConstantPtr weight = in.require_known(1);
  const View view = take_image(in);
  if (weight->integer || weight->dims.size() != view.dims.size()) {
    in.refuse("its weight does not fit its input");
  }
  std::vector<Axis> window =
      read_window(in, view, std::vector<int64_t>(weight->dims.begin() + 2, weight->dims.end()));
  const int64_t groups = in.node().integer("group", 1), out = weight->dims[0];
  for (size_t i = 0; i < window.size(); ++i) {
    if (window[i].kernel != weight->dims[2 + i]) in.refuse("kernel_shape is not its weight's");
  }
  if (groups < 1 || groups > view.dims[1] || weight->dims[1] * groups != view.dims[1]) {
    in.refuse("its weight does not fit its input");
  }
  std::vector<float> values = weight->floats;
  in.shape_input(Shape(view.sample()));
  even_out(in, window, out * weight->dims[1], values);
  Draft draft;
  draft.type = window.size() == 2 ? "conv2d" : "conv1d";
  draft.set("out", out);
  set_window(draft, window, true);
  draft.set("groups", groups);
  draft.set("bias", false);
  draft.weights.push_back({"weight", std::move(values)});
  draft.bias_from_add = out;
  if (const ConstantPtr bias = in.known(2)) {
    if (bias->numel() != out || bias->integer || bias->uniform) in.refuse("its bias does not fit");
    draft.set("bias", true);
    draft.weights.push_back({"bias", bias->floats});
    draft.bias_from_add = 0;
  }
  in.add(std::move(draft));
  in.give(image_view(in));
}

namespace {

// Returns how many windows of an axis begin within the input or its front padding.
int64_t windows_of(const Axis& axis, bool round_up) {
  const int64_t span = axis.extent + axis.before + axis.after - axis.kernel;
  if (span < 0) Importer::refuse("its window is larger than its input");
  const int64_t more = round_up && span % axis.stride != 0 ? 1 : 0;
  const int64_t count = span / axis.stride + 1 + more;
  return more == 1 && (count - 1) * axis.stride >= axis.extent + axis.before ? count - 1 : count;
}

// Returns how many elements each window counts: those of the input and, if `padding`, of the
// padding in the file.
std::vector<int64_t> counts_of(const Axis& axis, int64_t windows, bool padding) {
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t begin = i * axis.stride - axis.before, end = begin + axis.kernel;
    const int64_t first = padding ? -axis.before : 0;
    const int64_t last = axis.extent + (padding ? axis.after : 0);
    counts.push_back(std::min(end, last) - std::max(begin, first));
  }
  return counts;
}

}  // namespace

// Padding that ours cannot express becomes a layer before the pool: by less than every number for a
// maximum, and by zeros for a mean, whose sums are then divided by the right counts.
void import_pool(Importer& in) {
  const Node& node = in.node();
  const View view = take_image(in);
  const bool max = node.op == "MaxPool", round_up = node.integer("ceil_mode", 0) != 0;
  const bool counts_padding = node.integer("count_include_pad", 0) != 0;
  if (in.gives(1)) in.refuse("its second output, the places of the maxima, is not computed here");
  const std::vector<Axis> given = read_window(in, view, {});
  std::vector<Axis> window = given;
  std::vector<int64_t> windows;
  bool ours = true;  // the pool can pad by itself
  for (Axis& axis : window) {
    if (axis.dilation != 1) in.refuse("a dilated pool is not computed here");
    windows.push_back(windows_of(axis, round_up));
    // Padding that no window reaches has no effect.
    const int64_t even = axis.extent + 2 * axis.before - axis.kernel;
    ours = ours && even >= 0 && even / axis.stride + 1 == windows.back() &&
           axis.before <= axis.kernel / 2 && (max || !counts_padding || axis.after >= axis.before);
    axis.after = std::max<int64_t>(
        0, (windows.back() - 1) * axis.stride + axis.kernel - axis.extent - axis.before);
  }
  in.shape_input(Shape(view.sample()));
  Draft draft;
  draft.type = fmt::format("{}pool{}d", max ? "max" : "avg", window.size());
  if (!ours) pad_before(in, window, max ? -double(std::numeric_limits<float>::max()) : 0.0);
  set_window(draft, window, false);
  if (!max) draft.set("count_include_pad", !ours || counts_padding);
  in.add(std::move(draft));
  const View made = image_view(in);
  if (!max && !ours) {
    std::vector<double> scale{1};  // of each pixel, then of each channel's
    double area = 1;
    for (size_t i = 0; i < given.size(); ++i) {
      std::vector<double> wider;
      for (const double each : scale) {
        for (const int64_t n : counts_of(given[i], windows[i], counts_padding)) {
          wider.push_back(each / double(n));
        }
      }
      scale = std::move(wider);
      area *= double(given[i].kernel);
    }
    const std::vector<double> pixels = std::move(scale);
    for (int64_t c = 0; c < view.dims[1]; ++c) {
      for (const double each : pixels) scale.push_back(each * area);
    }
    const std::vector<double> shift(scale.size(), 0.0);
    add_affine(in, made, Vary::each, std::move(scale), shift);
  }
  in.give(made);
}

void import_global_pool(Importer& in) {
  const View view = take_image(in);
  const Shape sample(view.sample());
  Draft draft;
  if (in.node().op == "GlobalAveragePool") {
    draft.type = "global_avgpool";
  } else {
    draft.type = fmt::format("maxpool{}d", view.dims.size() - 2);
    draft.set_pair("kernel", {view.dims.begin() + 2, view.dims.end()});
  }
  in.shape_input(sample);
  in.add(std::move(draft));
  View made = view;
  for (size_t i = 2; i < made.dims.size(); ++i) made.dims[i] = 1;
  in.give(made);
}

}  // namespace ridgeline::onnx
