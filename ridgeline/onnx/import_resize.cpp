#include <algorithm>
#include <array>
#include <cmath>

#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

// By how much each dimension grows, and to what.
struct Growth {
  std::vector<double> scales;
  std::vector<int64_t> sizes;
};

Growth growth_of(Importer& in, const View& view) {
  const Node& node = in.node();
  const bool upsample = node.op == "Upsample" || in.opset() < 11;
  const size_t scales = upsample ? 1 : 2, rank = view.dims.size();
  Growth found;
  if (node.has("scales")) {
    found.scales = node.attributes.at("scales").floats;
  } else if (in.has(scales) && in.known(scales)->numel() > 0) {
    const ConstantPtr known = in.require_known(scales);
    for (int64_t i = 0; i < known->numel(); ++i) found.scales.push_back(known->number(i));
  } else if (!upsample && in.has(3)) {
    found.sizes = in.require_known(3)->ints;
    if (found.sizes.size() != rank) in.refuse("its sizes do not fit its input");
  }
  const bool sized = !found.sizes.empty();
  if (node.has("axes") || (!sized && found.scales.size() != rank)) {
    in.refuse("its scales do not fit its input");
  }
  for (size_t i = 0; i < rank; ++i) {
    const bool batch = i == view.batch_axis;
    if (batch && !sized && found.scales[i] != 1) in.refuse("resizes the batch");
    if (sized) {
      found.scales.push_back(batch ? 1.0 : double(found.sizes[i]) / double(view.dims[i]));
    } else {
      constexpr double kMost = 1 << 20;
      if (!(found.scales[i] > 0 && found.scales[i] <= kMost)) in.refuse("its scales are too large");
      found.sizes.push_back(batch ? 1 : int64_t(double(view.dims[i]) * found.scales[i]));
    }
    constexpr int64_t kMostSize = 1 << 20;
    if (!batch && (found.sizes[i] < 1 || found.sizes[i] > kMostSize)) {
      in.refuse(fmt::format("makes a dimension of {}", found.sizes[i]));
    }
  }
  return found;
}

// Returns the factors of the dimensions after the channels, if they are whole and nothing else
// grows; empty if not.
std::vector<int64_t> factors_of(const Growth& growth) {
  std::vector<int64_t> factors;
  for (const double each : growth.scales) {
    if (each < 1 || each != std::floor(each)) return {};
    factors.push_back(int64_t(each));
  }
  if (factors.size() < 3 || factors.size() > 4 || factors[0] != 1 || factors[1] != 1) return {};
  return {factors.begin() + 2, factors.end()};
}

// Returns the place of element i of an axis in the elements that it is made of.
double place_of(int64_t i, int64_t extent, double scale, int64_t size, const std::string& rule) {
  if (rule == "half_pixel" || (rule == "pytorch_half_pixel" && size > 1)) {
    return (double(i) + 0.5) / scale - 0.5;
  }
  if (rule == "half_pixel_symmetric") {
    const double shrinks = double(size) / (scale * double(extent));
    return 0.5 * double(extent) * (1 - shrinks) + (double(i) + 0.5) / scale - 0.5;
  }
  if (rule == "pytorch_half_pixel") return 0;
  if (rule == "align_corners") {  // of the size before it is rounded
    const double whole = scale * double(extent);
    return size == 1 ? 0 : double(i) * double(extent - 1) / (whole - 1);
  }
  if (rule != "asymmetric") Importer::refuse(fmt::format("finds its elements by {}", rule));
  return double(i) / scale;
}

// Returns the places of an axis that the nearest elements come from.
std::vector<int64_t> nearest_places(int64_t extent, double scale, int64_t size,
                                    const std::string& place, const std::string& rounding) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < size; ++i) {
    double at = place_of(i, extent, scale, size, place);
    at = rounding == "floor"               ? std::floor(at)
         : rounding == "ceil"              ? std::ceil(at)
         : rounding == "round_prefer_ceil" ? std::floor(at + 0.5)
                                           : std::ceil(at - 0.5);
    places.push_back(std::clamp<int64_t>(int64_t(at), 0, extent - 1));
  }
  return places;
}

// The weights of neighbouring elements, the first of which is at floor(at) - 1.
std::array<double, 4> weights_of(double at, const std::string& mode, double a) {
  const double t = at - std::floor(at);
  if (mode == "linear") return {0, 1 - t, t, 0};
  // Keys' cubic convolution
  const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(1 + t), near(t), near(1 - t), far(2 - t)};
}

// Each axis that grows or shrinks is multiplied by the matrix of its weights.
void interpolate(Importer& in, const Growth& growth, const std::string& mode,
                 const std::string& place) {
  const Node& node = in.node();
  const View view = in.look(0).view;
  const double a = node.number("cubic_coeff_a", -0.75);
  const bool inside_only = node.integer("exclude_outside", 0) != 0;
  Composition make(in);
  std::string x = node.input(0);
  for (size_t axis = 0; axis < view.dims.size(); ++axis) {
    if (axis == view.batch_axis || growth.scales[axis] == 1) continue;
    const int64_t extent = view.dims[axis], size = growth.sizes[axis];
    constexpr int64_t kMost = 1 << 22;
    if (extent > kMost / size) in.refuse("interpolates too many numbers");
    std::vector<float> matrix(size_t(extent * size));
    for (int64_t to = 0; to < size; ++to) {
      const double at = place_of(to, extent, growth.scales[axis], size, place);
      std::array<double, 4> weights = weights_of(at, mode, a);
      const int64_t first = int64_t(std::floor(at)) - 1;
      double sum = 0;
      for (int64_t i = 0; i < 4; ++i) {
        const bool outside = first + i < 0 || first + i >= extent;
        if (outside && inside_only) weights[size_t(i)] = 0;
        sum += weights[size_t(i)];
      }
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t from = std::clamp<int64_t>(first + i, 0, extent - 1);
        const double weight = weights[size_t(i)] / (inside_only ? sum : 1);
        matrix[size_t(from * size + to)] += float(weight);
      }
    }
    x = multiply_along(make, x, axis, make_floats({extent, size}, std::move(matrix)));
  }
  make.finish("Identity", {x});
}

}  // namespace

void import_resize(Importer& in) {
  const Node& node = in.node();
  const View view = in.take_plain(0).view;
  const bool old = node.op == "Upsample" || in.opset() < 11;
  const std::string mode = node.text("mode", "nearest");
  const std::string place =
      node.text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  const std::string rounding = node.text("nearest_mode", old ? "floor" : "round_prefer_floor");
  const bool centred = place == "half_pixel" || place == "pytorch_half_pixel";
  const bool repeats = mode == "nearest" && ((place == "asymmetric" && rounding == "floor") ||
                                             (centred && rounding.starts_with("round")));
  if (mode != "nearest" && mode != "linear" && mode != "cubic") {
    in.refuse(fmt::format("interpolates by {}", mode));
  }
  if (node.integer("antialias", 0) != 0) in.refuse("smooths what it makes smaller");
  if (node.text("keep_aspect_ratio_policy", "stretch") != "stretch") {
    in.refuse("chooses its sizes by the aspect ratio");
  }
  const Growth growth = growth_of(in, view);
  const std::vector<int64_t> factors = factors_of(growth);
  if (mode == "nearest" && (factors.empty() || !repeats)) {
    View made = view;
    for (size_t i = 0; i < made.dims.size(); ++i) {
      if (i == made.batch_axis || growth.scales[i] == 1) continue;
      add_pick(in, made, i < made.batch_axis ? i : i - 1,
               nearest_places(made.dims[i], growth.scales[i], growth.sizes[i], place, rounding));
    }
    return in.give(made);
  }
  if (mode == "cubic" || (mode == "linear" && (factors.empty() || !centred))) {
    return interpolate(in, growth, mode, place);
  }
  in.shape_input(Shape(view.sample()));
  Draft draft;
  draft.type = "upsample";
  draft.set("factor",
            fmt::format("[{}, {}]", factors.size() == 2 ? factors[0] : 1, factors.back()));
  draft.set("mode", mode == "nearest" ? "\"nearest\"" : "\"bilinear\"");
  in.add(std::move(draft));
  in.give(batch_first_view(in.stored()));
}

}  // namespace ridgeline::onnx
