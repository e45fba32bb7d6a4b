#include "ridgeline/data/source/zip_stream.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/source/array_file.h"

namespace ridgeline::data {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;  // zlib counts in 32 bits

// The bytes of an entry, counted and checksummed.
class EntryStream : public ByteStream {
 public:
  EntryStream(const InputFile& file, const ZipEntry& entry)
      : file_(file), entry_(entry), name_(file.name() + ": " + printable(entry.name)) {}

  const std::string& name() const override { return name_; }

  size_t read(std::span<std::byte> out) override {
    size_t done = 0;
    while (done < out.size()) {
      const size_t got = some(out.subspan(done, std::min(out.size() - done, kMostAtOnce)));
      if (got == 0) break;
      const auto part = out.subspan(done, got);
      crc_ = crc32(crc_, reinterpret_cast<const Bytef*>(part.data()), uInt(got));
      unpacked_ += int64_t(got);
      if (unpacked_ > entry_.unpacked) refuse("holds more than its directory says");
      done += got;
    }
    if (done < out.size()) check_end();
    return done;
  }

 protected:
  // Reads some bytes; none at the end.
  virtual size_t some(std::span<std::byte> out) = 0;

  [[noreturn]] void refuse(std::string_view why) const {
    throw_error(ErrorKind::data, "{}: damaged zip archive: {}; get it again", name_, why);
  }
  // Reads compressed bytes, in order.
  size_t take(std::span<std::byte> out) {
    const auto count = std::min<int64_t>(int64_t(out.size()), entry_.packed - taken_);
    read_at(file_, entry_.begin + taken_, out.first(size_t(count)));
    taken_ += count;
    return size_t(count);
  }

 private:
  void check_end() const {
    if (unpacked_ != entry_.unpacked) refuse("ends before the size that its directory says");
    if (crc_ != entry_.crc) refuse("CRC mismatch");
  }

  const InputFile& file_;
  ZipEntry entry_;
  std::string name_;
  int64_t taken_ = 0, unpacked_ = 0;
  uLong crc_ = crc32(0, nullptr, 0);
};

class StoredStream final : public EntryStream {
 public:
  using EntryStream::EntryStream;

 protected:
  size_t some(std::span<std::byte> out) override { return take(out); }
};

class DeflatedStream final : public EntryStream {
 public:
  DeflatedStream(const InputFile& file, const ZipEntry& entry) : EntryStream(file, entry) {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) {
      throw_error(ErrorKind::device, "out of memory: zlib cannot start");
    }
  }
  ~DeflatedStream() override { inflateEnd(&stream_); }
  DeflatedStream(const DeflatedStream&) = delete;
  DeflatedStream& operator=(const DeflatedStream&) = delete;

 protected:
  size_t some(std::span<std::byte> out) override {
    if (ended_) return 0;
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = uInt(out.size());
    while (stream_.avail_out == out.size() && !ended_) {
      if (stream_.avail_in == 0) {
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = uInt(take(input_));
        if (stream_.avail_in == 0) refuse("the packed bytes end early");
      }
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_MEM_ERROR) {
        throw_error(ErrorKind::device, "out of memory: zlib cannot unpack");
      }
      if (result != Z_OK && result != Z_STREAM_END) {
        refuse(stream_.msg != nullptr ? stream_.msg : "unknown fault");
      }
      ended_ = result == Z_STREAM_END;
    }
    return out.size() - stream_.avail_out;
  }

 private:
  z_stream stream_{};
  std::array<std::byte, 64 * 1024> input_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_zip_entry(const InputFile& file, const ZipEntry& entry) {
  if (entry.deflated) return std::make_unique<DeflatedStream>(file, entry);
  return std::make_unique<StoredStream>(file, entry);
}

}  // namespace ridgeline::data
