#include <limits>

#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/importer.h"

// Quantised values stay floats that hold whole numbers: what is computed is what integers give, at
// the speed of floats.
namespace ridgeline::onnx {
namespace {

// The whole numbers of an element type of TensorProto.
struct Limits {
  double least, most;
};

template <typename T>
constexpr Limits limits_of() {
  return {double(std::numeric_limits<T>::min()), double(std::numeric_limits<T>::max())};
}

Limits quantised_limits(Importer& in) {
  constexpr int kUint8 = 2, kInt8 = 3, kUint16 = 4, kInt16 = 5;
  int64_t type = in.node().integer("output_dtype", 0);
  if (const ConstantPtr zero = in.known(2)) type = zero->type;
  switch (type) {
    case 0:
    case kUint8:
      return limits_of<uint8_t>();
    case kInt8:
      return limits_of<int8_t>();
    case kUint16:
      return limits_of<uint16_t>();
    case kInt16:
      return limits_of<int16_t>();
    default:
      in.refuse("quantises to a type that is not taken");
  }
}

// A scale or zero point as floats, for one number or for each element of an axis.
std::string along_axis(Importer& in, Composition& make, size_t input) {
  const ConstantPtr given = in.require_known(input);
  const View& view = in.look(0).view;
  std::vector<float> numbers;
  for (int64_t i = 0; i < given->numel(); ++i) numbers.push_back(float(given->number(i)));
  if (numbers.size() == 1) return make.number(numbers[0]);
  const auto axis = axis_of(in.node().integer("axis", 1), view.dims.size());
  if (!axis || given->dims.size() != 1 || given->dims[0] != view.dims[*axis]) {
    in.refuse("quantises in blocks");
  }
  std::vector<int64_t> dims(view.dims.size() - *axis, 1);
  dims[0] = given->dims[0];
  return make.constant(make_floats(std::move(dims), std::move(numbers)));
}

}  // namespace

// min(max(round(x / scale) + zero, least), most)
void import_quantize(Importer& in) {
  Composition make(in);
  const Limits limits = quantised_limits(in);
  const std::string whole =
      make.add("Round", {make.add("Div", {in.node().input(0), along_axis(in, make, 1)})});
  const std::string moved = in.has(2) ? make.add("Add", {whole, along_axis(in, make, 2)}) : whole;
  const std::string high = make.add("Min", {moved, make.number(limits.most)});
  // Max of a negative bound shifts by as much, which is exact for whole numbers.
  make.finish("Max", {high, make.number(limits.least)});
}

// (x - zero) * scale
void import_dequantize(Importer& in) {
  Composition make(in);
  const std::string& x = in.node().input(0);
  const std::string moved = in.has(2) ? make.add("Sub", {x, along_axis(in, make, 2)}) : x;
  make.finish("Mul", {moved, along_axis(in, make, 1)});
}

}  // namespace ridgeline::onnx
