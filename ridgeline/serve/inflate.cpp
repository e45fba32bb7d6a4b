#include "ridgeline/serve/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <new>

#include "ridgeline/serve/http_error.h"

namespace ridgeline::serve {

std::string inflate_body(std::string_view packed, size_t most) {
  z_stream stream{};
  constexpr int kEitherHead = 15 + 32;  // gzip or zlib, by its head
  if (::inflateInit2(&stream, kEitherHead) != Z_OK) throw std::bad_alloc();
  struct End {
    z_stream& stream;
    ~End() { ::inflateEnd(&stream); }
  } end{stream};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = uInt(packed.size());  // bodies are limited to far less than 4 GB
  std::string plain;
  for (;;) {
    const size_t have = plain.size();
    // Grows with the data so far, so that a small body takes little memory whatever it claims.
    plain.resize(std::min(most + 1, std::max<size_t>(have * 2, 4096)));
    stream.next_out = reinterpret_cast<Bytef*>(plain.data() + have);
    stream.avail_out = uInt(plain.size() - have);
    const int result = ::inflate(&stream, Z_NO_FLUSH);
    plain.resize(plain.size() - stream.avail_out);
    if (plain.size() > most) {
      refuse(413, "the body holds more than {} bytes once it is unpacked", most);
    }
    if (result == Z_STREAM_END) break;
    if (result != Z_OK || (stream.avail_in == 0 && stream.avail_out > 0)) {
      refuse(400, "Content-Encoding: the body is damaged or cut short");
    }
  }
  if (stream.avail_in > 0)
    refuse(400, "Content-Encoding: {} bytes follow its end", stream.avail_in);
  return plain;
}

bool accepts_gzip(std::string_view accepted) {
  while (!accepted.empty()) {
    const size_t comma = std::min(accepted.find(','), accepted.size());
    std::string_view each = accepted.substr(0, comma);
    accepted.remove_prefix(std::min(comma + 1, accepted.size()));
    const size_t semicolon = std::min(each.find(';'), each.size());
    const std::string_view weight = each.substr(semicolon);
    each = each.substr(0, semicolon);
    while (!each.empty() && each.front() == ' ') each.remove_prefix(1);
    while (!each.empty() && each.back() == ' ') each.remove_suffix(1);
    // Anything but "q=0", "q=0.0", ...
    const size_t q = weight.find("q=");
    const bool refused = q != weight.npos && weight.find_first_not_of("0. ", q + 2) == weight.npos;
    if ((each == "gzip" || each == "*") && !refused) return true;
  }
  return false;
}

std::string deflate_body(std::string_view plain) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16, kMemory = 8;
  if (::deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw std::bad_alloc();
  }
  struct End {
    z_stream& stream;
    ~End() { ::deflateEnd(&stream); }
  } end{stream};
  std::string packed(::deflateBound(&stream, uLong(plain.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = uInt(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = uInt(packed.size());
  ::deflate(&stream, Z_FINISH);  // in one call, because the buffer has the size of deflateBound()
  packed.resize(packed.size() - stream.avail_out);
  return packed;
}

}  // namespace ridgeline::serve
