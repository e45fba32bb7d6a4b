#include "ridgeline/nn/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "ridgeline/core/file.h"
#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/nn/safetensors_checksums.h"
#include "ridgeline/nn/safetensors_header.h"

namespace ridgeline::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMostHeader = 100'000'000;  // the format's own limit

constexpr std::pair<std::string_view, DType> kStoredTypes[] = {
    {"F64", DType::fp64},  {"F32", DType::fp32},  {"BF16", DType::bf16}, {"F16", DType::fp16},
    {"I64", DType::int64}, {"I32", DType::int32}, {"U8", DType::uint8},
};

std::string_view type_name(DType dtype) {
  for (const auto& [name, type] : kStoredTypes) {
    if (type == dtype) return name;
  }
  return {};
}

std::optional<DType> parse_type(std::string_view text) {
  for (const auto& [name, type] : kStoredTypes) {
    if (text == name) return type;
  }
  return std::nullopt;
}

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

// Recognises PyTorch's own files: a zip archive with a pickle inside or, before version 1.6, a bare
// pickle.
bool is_pickle(std::span<const std::byte> bytes) {
  if (begins_with(bytes, "PK\x03\x04")) return true;
  const bool protocol = bytes.size() >= 2 && bytes[0] == std::byte{0x80} &&
                        bytes[1] >= std::byte{2} && bytes[1] <= std::byte{5};
  // A header of 640 bytes also begins with 0x80 0x02, but continues with its brace.
  return protocol && !(bytes.size() > kLengthBytes && bytes[kLengthBytes] == std::byte{'{'});
}

[[noreturn]] void refuse_pickle(const std::string& origin) {
  throw_error(
      ErrorKind::model,
      "{}: is a PyTorch pickle file, which can run code and is not read; convert it in Python: "
      "safetensors.torch.save_file(torch.load(\"model.pt\", weights_only=True), "
      "\"model.safetensors\")",
      origin);
}

std::string_view find_header(std::span<const std::byte> bytes, const std::string& origin) {
  if (is_pickle(bytes)) refuse_pickle(origin);
  if (bytes.size() < kLengthBytes) {
    throw_error(ErrorKind::model, "{}: has {}, too few for a safetensors file", origin,
                counted(int64_t(bytes.size()), "byte"));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMostHeader) {
    throw_error(ErrorKind::model,
                "{}: states a header of {} bytes, above the limit of {}; is it a safetensors file?",
                origin, length, kMostHeader);
  }
  if (length > bytes.size() - kLengthBytes) {
    throw_error(ErrorKind::model,
                "{}: states a header of {} bytes, but only {} follow; is it cut off?", origin,
                length, bytes.size() - kLengthBytes);
  }
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, size_t(length)};
}

Shape read_shape(const HeaderEntry& stated, const std::string& origin) {
  if (stated.shape.size() > size_t(Shape::kMaxRank)) {
    throw_error(ErrorKind::model, "{}: tensor {} has {} dimensions; at most {} are read", origin,
                quote(stated.name), stated.shape.size(), Shape::kMaxRank);
  }
  std::vector<int64_t> dims;
  uint64_t product = 1;
  for (const uint64_t extent : stated.shape) {
    // A zero would hide an overflow of other factors, and Shape multiplies in order: count it as
    // one here.
    const uint64_t factor = std::max<uint64_t>(extent, 1);
    if (__builtin_mul_overflow(product, factor, &product) ||
        product > uint64_t(std::numeric_limits<int64_t>::max()) / 8) {
      throw_error(ErrorKind::model, "{}: tensor {}: the product of its shape [{}] overflows",
                  origin, quote(stated.name), fmt::join(stated.shape, ", "));
    }
    dims.push_back(int64_t(extent));
  }
  return Shape(dims);
}

// Checks that a stated tensor's bytes lie in `data` and fit its shape.
TensorEntry check_entry(const HeaderEntry& stated, std::span<const std::byte> data,
                        const std::string& origin) {
  const std::optional<DType> dtype = parse_type(stated.dtype);
  if (!dtype) {
    throw_error(
        ErrorKind::model,
        "{}: tensor {} has the unknown type {}; F64, F32, BF16, F16, I64, I32 and U8 are read",
        origin, quote(stated.name), quote(stated.dtype));
  }
  const Shape shape = read_shape(stated, origin);
  if (stated.begin > stated.end || stated.end > data.size()) {
    throw_error(ErrorKind::model,
                "{}: tensor {} lies at bytes {} to {}, outside the {} bytes of data", origin,
                quote(stated.name), stated.begin, stated.end, data.size());
  }
  const uint64_t bytes = uint64_t(shape.numel()) * size_of(*dtype);
  if (stated.end - stated.begin != bytes) {
    throw_error(ErrorKind::model, "{}: tensor {} of {} {} needs {} bytes but has {}", origin,
                quote(stated.name), stated.dtype, to_string(shape), bytes,
                stated.end - stated.begin);
  }
  return {stated.name, *dtype, shape, data.subspan(stated.begin, bytes)};
}

// The format allows neither: overlaps could smuggle one tensor's bytes into another, and holes
// anything else.
void check_layout(std::vector<const HeaderEntry*> stated, size_t data_bytes,
                  const std::string& origin) {
  std::sort(stated.begin(), stated.end(), [](const HeaderEntry* a, const HeaderEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t at = 0;
  for (const HeaderEntry* tensor : stated) {
    if (tensor->begin != at) {
      throw_error(ErrorKind::model, "{}: tensor {} begins at byte {} of the data, but {}", origin,
                  quote(tensor->name), tensor->begin,
                  tensor->begin < at
                      ? fmt::format("overlaps the one that ends at {}", at)
                      : fmt::format("the one before ends at {}, which leaves a hole", at));
    }
    at = tensor->end;
  }
  if (at != data_bytes) {
    throw_error(ErrorKind::model,
                "{}: tensors fill {} of the {} bytes of data; the rest belongs to none", origin, at,
                data_bytes);
  }
}

}  // namespace

TensorEntry entry(std::string name, const Tensor& host) {
  return {std::move(name),
          host.dtype,
          host.shape,
          {static_cast<const std::byte*>(host.data), host.bytes()}};
}

TensorFile TensorFile::read(const std::filesystem::path& path) {
  return parse(read_file(path, ErrorKind::model), path.string());
}

TensorFile TensorFile::parse(std::vector<std::byte> bytes, const std::string& origin) {
  TensorFile file;
  file.origin_ = origin;
  file.bytes_ = std::move(bytes);
  const std::span<const std::byte> all(file.bytes_);
  const std::string_view json = find_header(all, origin);
  const std::span<const std::byte> head = all.first(kLengthBytes + json.size());
  const std::span<const std::byte> data = all.subspan(head.size());

  file.has_checksums_ = has_own_head(json);
  if (file.has_checksums_) check_header(head, origin);
  Header header = parse_header(json, origin);
  file.metadata_ = std::move(header.metadata);
  std::vector<const HeaderEntry*> stated;
  for (const HeaderEntry& tensor : header.tensors) {
    file.tensors_.push_back(check_entry(tensor, data, origin));
    stated.push_back(&tensor);
  }
  check_layout(std::move(stated), data.size(), origin);
  if (file.has_checksums_) check_tensor_bytes(file.tensors_, file.metadata_, origin);
  remove_checksums(file.metadata_);
  std::sort(file.tensors_.begin(), file.tensors_.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  return file;
}

const TensorEntry* TensorFile::find(const std::string& name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorEntry& tensor, const std::string& wanted) { return tensor.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

std::vector<std::byte> to_safetensors(std::span<const TensorEntry> tensors,
                                      const Metadata& metadata) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of(tensors[a].dtype) > size_of(tensors[b].dtype);
  });

  Metadata checked = metadata;
  add_checksums(checked, tensors);
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = checked;
  // Appends directly: header[name] would search all members first.
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  size_t data_bytes = 0;
  for (const size_t i : order) {
    const TensorEntry& tensor = tensors[i];
    const size_t end = data_bytes + tensor.data.size();
    const std::vector<int64_t> dims(tensor.shape.dims().begin(), tensor.shape.dims().end());
    members.emplace_back(tensor.name, nlohmann::ordered_json{{"dtype", type_name(tensor.dtype)},
                                                             {"shape", dims},
                                                             {"data_offsets", {data_bytes, end}}});
    data_bytes = end;
  }
  // Texts come from file names and configs and may not be UTF-8: replace invalid bytes.
  std::string json = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  json.replace(0, 1, kOwnHead);
  json.resize((json.size() + 7) / 8 * 8, ' ');

  std::vector<std::byte> bytes(kLengthBytes + json.size() + data_bytes);
  const uint64_t length = json.size();
  std::memcpy(bytes.data(), &length, kLengthBytes);
  std::memcpy(bytes.data() + kLengthBytes, json.data(), json.size());
  write_header_checksum(std::span(bytes).first(kLengthBytes + json.size()));
  std::byte* at = bytes.data() + kLengthBytes + json.size();
  for (const size_t i : order) {
    at = std::copy(tensors[i].data.begin(), tensors[i].data.end(), at);
  }
  return bytes;
}

}  // namespace ridgeline::nn
