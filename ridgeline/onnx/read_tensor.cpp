#include "ridgeline/onnx/read_tensor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/core/half.h"
#include "ridgeline/core/host_memory.h"
#include "ridgeline/core/shape.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::onnx {
namespace {

namespace fs = std::filesystem;
using TensorProto = ::onnx::TensorProto;

size_t element_size(int type) {
  switch (type) {
    case TensorProto::DOUBLE:
    case TensorProto::INT64:
    case TensorProto::UINT64:
      return 8;
    case TensorProto::FLOAT:
    case TensorProto::INT32:
    case TensorProto::UINT32:
      return 4;
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
    case TensorProto::INT16:
    case TensorProto::UINT16:
      return 2;
    default:
      return 1;
  }
}

template <typename From, typename To>
void unpack(std::string_view bytes, std::vector<To>& to) {
  for (size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    to[i] = To(value);
  }
}

void unpack_raw(int type, std::string_view bytes, Constant& to) {
  switch (type) {
    case TensorProto::FLOAT:
      std::memcpy(to.floats.data(), bytes.data(), bytes.size());
      return;
    case TensorProto::DOUBLE:
      return unpack<double>(bytes, to.floats);
    case TensorProto::FLOAT16:
      return unpack<Fp16>(bytes, to.floats);
    case TensorProto::BFLOAT16:
      return unpack<Bf16>(bytes, to.floats);
    case TensorProto::INT64:
    case TensorProto::UINT64:
      return unpack<int64_t>(bytes, to.ints);
    case TensorProto::INT32:
      return unpack<int32_t>(bytes, to.ints);
    case TensorProto::UINT32:
      return unpack<uint32_t>(bytes, to.ints);
    case TensorProto::INT16:
      return unpack<int16_t>(bytes, to.ints);
    case TensorProto::UINT16:
      return unpack<uint16_t>(bytes, to.ints);
    case TensorProto::INT8:
      return unpack<int8_t>(bytes, to.ints);
    default:
      return unpack<uint8_t>(bytes, to.ints);
  }
}

// Returns how many elements the typed fields hold; 16-bit floats are in int32_data as their bits.
int typed_count(const TensorProto& tensor) {
  switch (tensor.data_type()) {
    case TensorProto::FLOAT:
      return tensor.float_data_size();
    case TensorProto::DOUBLE:
      return tensor.double_data_size();
    case TensorProto::INT64:
      return tensor.int64_data_size();
    case TensorProto::UINT32:
    case TensorProto::UINT64:
      return tensor.uint64_data_size();
    default:
      return tensor.int32_data_size();
  }
}

void unpack_typed(const TensorProto& tensor, Constant& to) {
  const auto bits = [&](int i) { return uint16_t(tensor.int32_data(i)); };
  for (int i = 0; i < typed_count(tensor); ++i) {
    const auto at = size_t(i);
    switch (tensor.data_type()) {
      case TensorProto::FLOAT:
        to.floats[at] = tensor.float_data(i);
        break;
      case TensorProto::DOUBLE:
        to.floats[at] = float(tensor.double_data(i));
        break;
      case TensorProto::FLOAT16: {
        Fp16 half;
        half.bits = bits(i);
        to.floats[at] = float(half);
        break;
      }
      case TensorProto::BFLOAT16: {
        Bf16 half;
        half.bits = bits(i);
        to.floats[at] = float(half);
        break;
      }
      case TensorProto::INT64:
        to.ints[at] = tensor.int64_data(i);
        break;
      case TensorProto::UINT32:
      case TensorProto::UINT64:
        to.ints[at] = int64_t(tensor.uint64_data(i));
        break;
      default:
        to.ints[at] = tensor.int32_data(i);
        break;
    }
  }
}

int64_t read_count(const std::string& text, const std::string& what) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0) return value;
  throw_error(ErrorKind::model, "{}: {} is no place in a file", what, quote(text));
}

// Returns a file beside the model, or below its folder: a name that leads elsewhere is refused.
fs::path beside(const fs::path& model, const std::string& location, const std::string& what) {
  std::error_code error;
  const fs::path folder =
      fs::canonical(model.parent_path().empty() ? "." : model.parent_path(), error);
  const fs::path found = fs::weakly_canonical(folder / location, error);
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), found.begin(), found.end());
  if (location.empty() || fs::path(location).is_absolute() || end != folder.end()) {
    throw_error(ErrorKind::model,
                "{}: its data lie in {}, outside the folder of the model, which is refused; put "
                "the file beside the model",
                what, quote(location));
  }
  return found;
}

}  // namespace

bool holds_floats(int type) {
  return type == TensorProto::FLOAT || type == TensorProto::DOUBLE ||
         type == TensorProto::FLOAT16 || type == TensorProto::BFLOAT16;
}

bool is_taken(int type) {
  return type >= TensorProto::FLOAT && type <= TensorProto::BFLOAT16 &&
         type != TensorProto::STRING && type != TensorProto::COMPLEX64 &&
         type != TensorProto::COMPLEX128;
}

std::string element_name(int type) {
  const bool known = ::onnx::TensorProto_DataType_IsValid(type);
  return known ? ::onnx::TensorProto_DataType_Name(::onnx::TensorProto_DataType(type))
               : fmt::format("type {}", type);
}

std::string TensorReader::external(const TensorProto& tensor, size_t bytes,
                                   const std::string& what) const {
  std::string location;
  int64_t offset = 0, length = int64_t(bytes);
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = read_count(entry.value(), what);
    if (entry.key() == "length") length = read_count(entry.value(), what);
  }
  const fs::path file = beside(model_, location, what);
  const Descriptor opened = open_regular(file, ErrorKind::model);
  struct stat about {};
  if (::fstat(opened.get(), &about) != 0) throw_errno(ErrorKind::model, file, "look at it");
  if (length != int64_t(bytes) || offset > int64_t(about.st_size) ||
      length > int64_t(about.st_size) - offset) {
    throw_error(ErrorKind::model,
                "{}: wants {} bytes from byte {} of {}, which has {}: the files do not belong "
                "together",
                what, bytes, offset, file.string(), int64_t(about.st_size));
  }
  std::string data(bytes, '\0');
  for (size_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pread(opened.get(), data.data() + done, bytes - done, off_t(offset) + off_t(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw_errno(ErrorKind::model, file, "read it");
    done += size_t(got);
  }
  return data;
}

ConstantPtr TensorReader::read(const TensorProto& tensor, const std::string& what) const {
  const std::string place = fmt::format("{}: {}", model_.string(), what);
  if (!is_taken(tensor.data_type())) {
    throw_error(ErrorKind::model, "{}: holds {}, which is not taken", place,
                element_name(tensor.data_type()));
  }
  auto made = std::make_shared<Constant>();
  made->integer = !holds_floats(tensor.data_type());
  made->type = int(tensor.data_type());
  int64_t count = 1, all = 1;  // elements; and where empty dimensions count as one
  for (const int64_t extent : tensor.dims()) {
    if (extent < 0) throw_error(ErrorKind::model, "{}: has an extent of {}", place, extent);
    made->dims.push_back(extent);
    count = checked_mul(count, extent, place.c_str());
    all = checked_mul(all, std::max<int64_t>(1, extent), place.c_str());
  }
  constexpr int64_t kMostEmpty = 1 << 20;  // rows of nothing, which are walked through all the same
  if (count == 0 && all > kMostEmpty) {
    throw_error(ErrorKind::model, "{}: is {}, which is empty and has more rows than are taken",
                place, dims_text(made->dims));
  }
  const size_t bytes =
      size_t(checked_mul(count, int64_t(element_size(tensor.data_type())), place.c_str()));
  const bool elsewhere = tensor.data_location() == TensorProto::EXTERNAL;
  // Sizes are compared before memory is allocated for them.
  if (!elsewhere && tensor.has_raw_data() && tensor.raw_data().size() != bytes) {
    throw_error(ErrorKind::model, "{}: is {} of {} and has {} bytes; {} were expected", place,
                dims_text(made->dims), element_name(tensor.data_type()), tensor.raw_data().size(),
                bytes);
  }
  if (!elsewhere && !tensor.has_raw_data() && typed_count(tensor) != count) {
    throw_error(ErrorKind::model, "{}: is {} and has {} values", place, dims_text(made->dims),
                typed_count(tensor));
  }
  const std::string other = elsewhere ? external(tensor, bytes, place) : std::string();
  made->integer ? made->ints.resize(size_t(count)) : made->floats.resize(size_t(count));
  if (count == 0) return made;
  if (elsewhere || tensor.has_raw_data()) {
    unpack_raw(tensor.data_type(), elsewhere ? other : tensor.raw_data(), *made);
  } else {
    unpack_typed(tensor, *made);
  }
  return made;
}

}  // namespace ridgeline::onnx
