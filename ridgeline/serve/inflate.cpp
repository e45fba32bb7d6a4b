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
    // Grows with what has come, so that a small body takes little memory whatever it says.
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

}  // namespace ridgeline::serve
