#include "ridgeline/data/input_file.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ridgeline/core/error.h"

namespace ridgeline::data {
namespace {

constexpr size_t kGzipChunk = 64 * 1024;

bool has_gzip_magic(const InputFile& file) {
  std::array<std::byte, 2> magic{};
  return file.peek(magic) == 2 && magic[0] == std::byte{0x1f} && magic[1] == std::byte{0x8b};
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : name_(path.string()), file_(open_regular(path, ErrorKind::data)) {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) throw_errno(ErrorKind::data, path, "examine");
  size_ = status.st_size;
}

size_t InputFile::read(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(file_.get(), out.data() + done, out.size() - done, position_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_error(ErrorKind::io, "{}: read error: {}", name_, std::strerror(errno));
    if (got == 0) break;
    done += size_t(got);
    position_ += got;
  }
  if (done < out.size() && position_ < size_) {
    throw_error(ErrorKind::data,
                "{}: shrank while it was read: had {} bytes, ends after {}; is it being rewritten?",
                name_, size_, position_);
  }
  return done;
}

size_t InputFile::peek(std::span<std::byte> out, int64_t offset) const {
  const ssize_t got = ::pread(file_.get(), out.data(), out.size(), offset);
  if (got < 0) throw_error(ErrorKind::io, "{}: read error: {}", name_, std::strerror(errno));
  return size_t(got);
}

struct ByteSource::Inflater {
  z_stream stream{};
  std::array<std::byte, kGzipChunk> input;
  bool finished = false;  // at the end of a gzip member

  Inflater() {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) {
      throw_error(ErrorKind::device, "out of memory: zlib cannot start");
    }
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool refill(InputFile& file) {
    if (stream.avail_in > 0) return true;
    stream.next_in = reinterpret_cast<Bytef*>(input.data());
    stream.avail_in = uInt(file.read(input));
    return stream.avail_in > 0;
  }
};

ByteSource::ByteSource(InputFile& file) : file_(file) {
  if (has_gzip_magic(file)) inflater_ = std::make_unique<Inflater>();
}

ByteSource::~ByteSource() = default;

size_t ByteSource::read(std::span<std::byte> out) {
  if (!compressed()) return file_.read(out);
  size_t done = 0;
  while (done < out.size()) {
    const size_t got = inflate_some(out.subspan(done));
    if (got == 0) break;
    done += got;
  }
  return done;
}

std::unique_ptr<ByteStream> open_bytes(const std::filesystem::path& path) {
  class FileBytes final : public ByteStream {
   public:
    explicit FileBytes(const std::filesystem::path& path) : file_(path), source_(file_) {}
    size_t read(std::span<std::byte> out) override { return source_.read(out); }
    const std::string& name() const override { return file_.name(); }

   private:
    InputFile file_;
    ByteSource source_;
  };
  return std::make_unique<FileBytes>(path);
}

FilePart::FilePart(InputFile& file, int64_t begin, int64_t end) : file_(file), end_(end) {
  file.seek(begin);
}

size_t FilePart::read(std::span<std::byte> out) {
  const int64_t left = std::max<int64_t>(0, end_ - file_.position());
  return file_.read(out.first(std::min(out.size(), size_t(left))));
}

size_t MemoryStream::read(std::span<std::byte> out) {
  const size_t count = std::min(out.size(), bytes_.size());
  if (count > 0) std::memcpy(out.data(), bytes_.data(), count);
  bytes_ = bytes_.subspan(count);
  return count;
}

// Inflates some bytes, or none at the end of the last member. A gzip file has one or more members.
size_t ByteSource::inflate_some(std::span<std::byte> out) {
  z_stream& stream = inflater_->stream;
  const size_t wanted = std::min(out.size(), size_t{1} << 30);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = uInt(wanted);
  while (stream.avail_out == wanted) {
    if (!inflater_->refill(file_)) {
      if (inflater_->finished) return 0;
      throw_error(ErrorKind::data,
                  "{}: truncated gzip: the file ends inside the stream, after {} "
                  "unpacked bytes; get it again",
                  file_.name(), stream.total_out);
    }
    if (inflater_->finished) {
      if (*stream.next_in != 0x1f) {
        throw_error(ErrorKind::data, "{}: bytes after the end of the gzip stream; get it again",
                    file_.name());
      }
      inflateReset(&stream);
      inflater_->finished = false;
    }
    const int result = inflate(&stream, Z_NO_FLUSH);
    inflater_->finished = result == Z_STREAM_END;
    if (result == Z_MEM_ERROR) throw_error(ErrorKind::device, "out of memory: zlib cannot unpack");
    if (result != Z_OK && result != Z_STREAM_END) {
      // zlib calls a CRC mismatch an "incorrect data check".
      const std::string_view why = stream.msg != nullptr ? stream.msg : "unknown fault";
      throw_error(ErrorKind::data, "{}: damaged gzip: {} after {} unpacked bytes; get it again",
                  file_.name(), why == "incorrect data check" ? "CRC mismatch" : why,
                  stream.total_out);
    }
  }
  return wanted - stream.avail_out;
}

}  // namespace ridgeline::data
