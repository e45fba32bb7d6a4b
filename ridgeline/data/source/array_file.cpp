#include "ridgeline/data/source/array_file.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ridgeline/data/mapped_file.h"

namespace ridgeline::data {
namespace {

constexpr size_t kWindow = size_t{1} << 20;  // bytes converted at a time: fits the L2 cache

// The bytes of an array: those of a file from some offset on, or of memory.
class StoredBytes {
 public:
  StoredBytes(std::shared_ptr<const InputFile> file, int64_t offset)
      : file_(std::move(file)), offset_(offset), name_(file_->name()) {}
  StoredBytes(std::vector<std::byte> memory, std::string name)
      : memory_(std::move(memory)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // The file, mapped on first use, from the beginning of the array; null if it cannot be mapped.
  const std::byte* map() const {
    std::call_once(*once_, [&] { mapped_ = file_ ? MappedFile::map(*file_) : nullptr; });
    return mapped_ ? mapped_->bytes().data() + offset_ : nullptr;
  }
  void check_map() const {
    if (mapped_) mapped_->check();
  }
  void read(int64_t at, std::span<std::byte> out) const {
    if (file_) return read_at(*file_, offset_ + at, out);
    if (!out.empty()) std::memcpy(out.data(), memory_.data() + at, out.size());
  }

 private:
  std::shared_ptr<const InputFile> file_;
  int64_t offset_ = 0;
  std::vector<std::byte> memory_;
  std::string name_;
  std::unique_ptr<std::once_flag> once_ = std::make_unique<std::once_flag>();
  mutable std::shared_ptr<const MappedFile> mapped_;
};

class ArrayValues final : public FieldValues {
 public:
  ArrayValues(StoredBytes stored, const ArrayLayout& layout)
      : stored_(std::move(stored)),
        layout_(layout),
        elements_(layout.shape.drop_front().numel()),
        width_(int64_t(size_of(layout.type.dtype()))) {}

  void read(int64_t begin, int64_t end, std::span<std::byte> out) const override {
    const bool columns = layout_.fortran && elements_ > 1;
    columns ? read_columns(begin, end, out) : read_rows(begin, end, out);
  }

  std::span<const std::byte> map() const override {
    const bool columns = layout_.fortran && elements_ > 1;
    if (columns || !layout_.type.direct()) return {};
    const std::byte* const bytes = stored_.map();
    if (bytes == nullptr) return {};
    return {bytes, size_t(layout_.shape[0] * elements_ * width_)};
  }
  void check_map() const override { stored_.check_map(); }

 private:
  void read_rows(int64_t begin, int64_t end, std::span<std::byte> out) const {
    const int64_t stored_width = layout_.type.width;
    const int64_t first = begin * elements_, count = (end - begin) * elements_;
    if (layout_.type.direct()) return stored_.read(first * stored_width, out);
    std::vector<std::byte> window(std::min(kWindow, size_t(count * stored_width)));
    const int64_t most = std::max<int64_t>(1, int64_t(kWindow) / stored_width);
    for (int64_t at = 0; at < count; at += most) {
      const int64_t part = std::min(most, count - at);
      const auto bytes = std::span(window).first(size_t(part * stored_width));
      stored_.read((first + at) * stored_width, bytes);
      convert(layout_.type, bytes.data(), out.data() + at * width_, size_t(part), stored_.name());
    }
  }

  // Fortran order: each element of a sample is contiguous over all samples.
  void read_columns(int64_t begin, int64_t end, std::span<std::byte> out) const {
    const int64_t stored_width = layout_.type.width, samples = layout_.shape[0];
    const int64_t most = std::max<int64_t>(1, int64_t(kWindow) / stored_width);
    std::vector<std::byte> window, column;
    for (int64_t from = begin; from < end; from += most) {
      const int64_t part = std::min(most, end - from);
      window.resize(size_t(part * stored_width));
      column.resize(size_t(part * width_));
      for (int64_t element = 0; element < elements_; ++element) {
        stored_.read((fortran_place(element) * samples + from) * stored_width, window);
        convert(layout_.type, window.data(), column.data(), size_t(part), stored_.name());
        std::byte* to = out.data() + ((from - begin) * elements_ + element) * width_;
        for (int64_t i = 0; i < part; ++i) {
          std::memcpy(to + i * elements_ * width_, column.data() + i * width_, size_t(width_));
        }
      }
    }
  }

  // Returns the position in Fortran order of the element with index `element` of a sample in C
  // order.
  int64_t fortran_place(int64_t element) const {
    int64_t place = 0, left = element;
    for (int axis = layout_.shape.rank() - 1; axis >= 1; --axis) {
      const int64_t extent = layout_.shape[axis];
      // The position is i1 + d1 * (i2 + d2 * (i3 + ...)), so an index counts once for every
      // combination of those before it.
      int64_t before = 1;
      for (int i = 1; i < axis; ++i) before *= layout_.shape[i];
      place += left % extent * before;
      left /= extent;
    }
    return place;
  }

  StoredBytes stored_;
  ArrayLayout layout_;
  int64_t elements_, width_;
};

Field array_field(std::string name, StoredBytes stored, const ArrayLayout& layout) {
  Field field;
  field.name = std::move(name);
  const bool boolean = layout.type.kind == StoredType::Kind::boolean;
  field.kind = boolean && layout.shape.rank() == 1 ? FieldKind::boolean : FieldKind::number;
  if (field.kind == FieldKind::boolean) field.categories = {"false", "true"};
  field.dtype = layout.type.dtype();
  field.shape = layout.shape.drop_front();
  field.samples = layout.shape[0];
  field.origin = stored.name();
  if (!layout.type.direct()) field.stored = layout.type.name();
  if (layout.fortran && layout.shape.rank() > 1) {
    field.stored += field.stored.empty() ? "Fortran order" : ", Fortran order";
  }
  field.values = std::make_shared<ArrayValues>(std::move(stored), layout);
  return field;
}

}  // namespace

int64_t ArrayLayout::bytes(const std::string& file) const {
  return checked_mul(shape.numel(), type.width, file.c_str());
}

void read_at(const InputFile& file, int64_t offset, std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const size_t got = file.peek(out.subspan(done), offset + int64_t(done));
    if (got == 0) {
      throw_error(ErrorKind::data,
                  "{}: shrank while it was read: had {} bytes, ends after {}; is it being "
                  "rewritten?",
                  file.name(), file.size(), offset + int64_t(done));
    }
    done += got;
  }
}

void check_packed_size(const std::string& file, int64_t packed, int64_t bytes) {
  if (bytes <= checked_mul(packed, kMostDeflateRatio, file.c_str())) return;
  throw_error(ErrorKind::data,
              "{}: truncated or damaged: states {} bytes, more than {} packed bytes can hold; get "
              "it again",
              file, bytes, packed);
}

Field array_in_file(std::string name, std::shared_ptr<const InputFile> file, int64_t offset,
                    const ArrayLayout& layout) {
  return array_field(std::move(name), StoredBytes(std::move(file), offset), layout);
}

Field array_in_stream(std::string name, ByteStream& in, const ArrayLayout& layout) {
  const size_t total = size_t(layout.bytes(in.name()));
  std::vector<std::byte> bytes;
  while (bytes.size() < total) {
    const size_t have = bytes.size();
    bytes.resize(have + std::min(total - have, std::max(have, size_t{1} << 20)));
    const size_t got = in.read(std::span(bytes).subspan(have));
    if (have + got < bytes.size()) {
      throw_error(ErrorKind::data,
                  "{}: truncated: {} of {} need {} bytes, but it holds {}; get it again", in.name(),
                  layout.type.name(), to_string(layout.shape), total, have + got);
    }
  }
  return load(array_field(std::move(name), StoredBytes(std::move(bytes), in.name()), layout));
}

}  // namespace ridgeline::data
