#include "ridgeline/data/source/safetensors_source.h"

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "ridgeline/core/text_format.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/source/array_file.h"

namespace ridgeline::data {
namespace {

constexpr int64_t kLengthBytes = 8, kMostHeader = 100'000'000;
constexpr int kMostHeaderDepth = 4;

struct TypeName {
  std::string_view name;
  StoredType::Kind kind;
  int width;
};
constexpr std::array<TypeName, 13> kTypes{{{"F64", StoredType::Kind::real, 8},
                                           {"F32", StoredType::Kind::real, 4},
                                           {"F16", StoredType::Kind::real, 2},
                                           {"BF16", StoredType::Kind::brain_real, 2},
                                           {"I64", StoredType::Kind::signed_integer, 8},
                                           {"I32", StoredType::Kind::signed_integer, 4},
                                           {"I16", StoredType::Kind::signed_integer, 2},
                                           {"I8", StoredType::Kind::signed_integer, 1},
                                           {"U64", StoredType::Kind::unsigned_integer, 8},
                                           {"U32", StoredType::Kind::unsigned_integer, 4},
                                           {"U16", StoredType::Kind::unsigned_integer, 2},
                                           {"U8", StoredType::Kind::unsigned_integer, 1},
                                           {"BOOL", StoredType::Kind::boolean, 1}}};

struct Entry {
  std::string name;
  ArrayLayout layout;
  int64_t begin = 0, end = 0;  // in the file
};

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw_error(ErrorKind::data, "{}: damaged safetensors file: {}; get it again", file, what);
}

nlohmann::ordered_json parse_header(const std::string& text, const std::string& file) {
  std::set<std::string> keys;
  bool deep = false, twice = false;
  const auto note = [&](int depth, nlohmann::ordered_json::parse_event_t event,
                        nlohmann::ordered_json& value) {
    if (depth == 1 && event == nlohmann::ordered_json::parse_event_t::key) {
      twice = twice || !keys.insert(value.get<std::string>()).second;
    }
    deep = deep || depth >= kMostHeaderDepth;
    return depth < kMostHeaderDepth;
  };
  nlohmann::ordered_json header = nlohmann::ordered_json::parse(text, note, false);
  if (deep || twice || !header.is_object()) {
    refuse(file, twice ? "its header names a tensor twice" : "its header is no JSON object");
  }
  return header;
}

// Returns an integer of a list; throws if there is none.
int64_t whole_at(const nlohmann::ordered_json& list, size_t place, const std::string& name,
                 const std::string& file) {
  const bool good = list.is_array() && place < list.size() && list[place].is_number_unsigned() &&
                    list[place].get<uint64_t>() <= uint64_t{1} << 62;
  if (!good) refuse(file, fmt::format("the entry of {} is not as it should be", quote(name)));
  return int64_t(list[place].get<uint64_t>());
}

Entry read_entry(const std::string& name, const nlohmann::ordered_json& json, int64_t data,
                 const std::string& file) {
  Entry entry;
  entry.name = name;
  const auto fits = json.is_object() && json.contains("dtype") && json["dtype"].is_string() &&
                    json.contains("shape") && json["shape"].is_array() &&
                    json.contains("data_offsets");
  if (!fits) refuse(file, fmt::format("the entry of {} is not as it should be", quote(name)));
  const auto& text = json["dtype"].get_ref<const std::string&>();
  const auto type = std::ranges::find(kTypes, text, &TypeName::name);
  if (type == kTypes.end()) {
    throw_error(ErrorKind::data,
                "{}: tensor {} is of the type {}, which is not read here; save it "
                "as F32",
                file, quote(name), quote(text));
  }
  entry.layout.type = {type->kind, type->width, false};
  std::vector<int64_t> dims;
  for (size_t i = 0; i < json["shape"].size(); ++i) {
    dims.push_back(whole_at(json["shape"], i, name, file));
  }
  if (dims.empty() || dims.size() > size_t(Shape::kMaxRank)) {
    throw_error(ErrorKind::data,
                "{}: tensor {} has {} axes; the first is that of the samples, and "
                "there are at most {}",
                file, quote(name), dims.size(), Shape::kMaxRank);
  }
  entry.layout.shape = Shape(dims);
  entry.begin = data + whole_at(json["data_offsets"], 0, name, file);
  entry.end = data + whole_at(json["data_offsets"], 1, name, file);
  if (entry.end - entry.begin != entry.layout.bytes(file)) {
    refuse(file, fmt::format("{} has {} bytes, but its shape {} needs {}", quote(name),
                             entry.end - entry.begin, to_string(entry.layout.shape),
                             entry.layout.bytes(file)));
  }
  return entry;
}

}  // namespace

std::vector<Field> read_safetensors(const std::filesystem::path& path) {
  auto file = std::make_shared<InputFile>(path);
  std::array<std::byte, size_t(kLengthBytes)> first{};
  read_at(*file, 0, first);
  uint64_t length = 0;
  for (size_t i = 0; i < first.size(); ++i) length |= uint64_t(first[i]) << (8 * i);
  if (length < 2 || length > uint64_t(kMostHeader) ||
      int64_t(length) > file->size() - kLengthBytes) {
    refuse(file->name(), "its header is longer than it");
  }
  std::string text(size_t(length), '\0');
  read_at(*file, kLengthBytes, std::as_writable_bytes(std::span(text)));
  const nlohmann::ordered_json header = parse_header(text, file->name());
  const int64_t data = kLengthBytes + int64_t(length);
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name != "__metadata__") entries.push_back(read_entry(name, json, data, file->name()));
  }
  if (entries.empty()) throw_error(ErrorKind::data, "{}: holds no tensors", file->name());
  std::ranges::sort(entries, {}, &Entry::begin);
  int64_t end = data;
  for (const Entry& entry : entries) {
    if (entry.begin != end) refuse(file->name(), "its tensors overlap, or leave a hole");
    end = entry.end;
  }
  if (end != file->size()) {
    refuse(file->name(),
           fmt::format("it has {} bytes, but its tensors end at {}", file->size(), end));
  }
  std::ranges::sort(entries, {}, &Entry::name);
  std::vector<Field> fields;
  for (Entry& entry : entries) {
    fields.push_back(array_in_file(std::move(entry.name), file, entry.begin, entry.layout));
  }
  return fields;
}

}  // namespace ridgeline::data
