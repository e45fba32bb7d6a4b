#include "ridgeline/data/record_buffer.h"

#include <algorithm>
#include <cstring>

#include "ridgeline/core/error.h"
#include "ridgeline/core/utf8.h"

namespace ridgeline::data {

RecordBuffer::RecordBuffer(ByteStream& source, size_t chunk, bool begins_file)
    : source_(source),
      chunk_(chunk),
      next_(std::min(chunk, kFirstRead)),
      mark_may_come_(begins_file) {}

bool RecordBuffer::more(int64_t line) {
  if (size() >= kMostRecord) {
    throw_error(ErrorKind::data,
                "{}: line {}: no end of the record within {} MiB; is a quote left "
                "open?",
                name(), line, kMostRecord >> 20);
  }
  if (size() > 0) std::memmove(bytes_.data(), data(), size());  // else data() may be null
  end_ = size();
  begin_ = 0;
  // Doubles the size, so that a long record is not searched again for every chunk.
  constexpr size_t kMark = 3;
  const size_t ask = std::max({next_, end_, mark_may_come_ ? kMark : 1});
  next_ = std::min(chunk_, 2 * next_);
  bytes_.resize(end_ + ask);
  const size_t got = source_.read(std::as_writable_bytes(std::span(bytes_).subspan(end_, ask)));
  end_ += got;
  if (mark_may_come_ && end_ >= kMark && std::memcmp(bytes_.data(), "\xef\xbb\xbf", kMark) == 0) {
    begin_ = kMark;
  }
  mark_may_come_ = false;
  return got > 0;
}

void check_text(std::string_view record, const std::string& file, int64_t line) {
  const auto line_of = [&](size_t at) {
    return line + std::count(record.begin(), record.begin() + ptrdiff_t(at), '\n');
  };
  if (const size_t at = record.find('\0'); at != std::string_view::npos) {
    throw_error(ErrorKind::data, "{}: line {}: a NUL byte; this is no text file", file,
                line_of(at));
  }
  if (const size_t at = find_invalid_utf8(record); at != std::string_view::npos) {
    throw_error(ErrorKind::data,
                "{}: line {}: byte {:#04x} is not UTF-8; convert the file first "
                "(iconv -f latin1 -t utf-8)",
                file, line_of(at), uint8_t(record[at]));
  }
}

}  // namespace ridgeline::data
