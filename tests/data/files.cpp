#include "tests/data/files.h"

#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>

#include "ridgeline/data/sha256.h"

namespace ridgeline::data::testing {
namespace fs = std::filesystem;

TempFolder::TempFolder() {
  std::string pattern = (fs::temp_directory_path() / "ridgeline-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

ScopedEnv::ScopedEnv(const char* name, const std::optional<std::string>& value) : name_(name) {
  if (const char* before = std::getenv(name)) before_ = before;
  set(value);
}

ScopedEnv::~ScopedEnv() { set(before_); }

void ScopedEnv::set(const std::optional<std::string>& value) {
  value ? ::setenv(name_, value->c_str(), 1) : ::unsetenv(name_);
}

fs::path write_file(const fs::path& path, std::string_view bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), std::streamsize(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
  return path;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string sha256_of(std::string_view bytes) { return sha256(std::as_bytes(std::span(bytes))); }

std::string deflated(std::string_view bytes, int level, int window_bits) {
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = uInt(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = uInt(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("deflate");
  return out;
}
std::string gzip(std::string_view bytes) { return deflated(bytes, 6, 16 + MAX_WBITS); }

std::string big_endian(uint32_t word) {
  return {char(word >> 24), char(word >> 16), char(word >> 8), char(word)};
}

std::string idx_header(uint8_t type, const std::vector<uint32_t>& dims) {
  std::string bytes{'\0', '\0', char(type), char(dims.size())};
  for (const uint32_t extent : dims) bytes += big_endian(extent);
  return bytes;
}

void write_image_folder(const fs::path& folder, int train, int test, int classes) {
  const auto write_part = [&](const std::string& part, int count) {
    std::string images = idx_header(8, {uint32_t(count), 3, 2});
    std::string labels = idx_header(8, {uint32_t(count)});
    for (int i = 0; i < count; ++i) {
      for (int pixel = 0; pixel < 6; ++pixel) images += char(7 * i + pixel);
      labels += char(i % classes);
    }
    write_file(folder / (part + "-images-idx3-ubyte.gz"), gzip(images));
    write_file(folder / (part + "-labels-idx1-ubyte"), labels);
  };
  write_part("train", train);
  write_part("t10k", test);
}

std::string expect_error(ErrorKind kind, const std::vector<std::string>& parts,
                         const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), kind) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' not in: " << message;
    }
    return message;
  }
  ADD_FAILURE() << "no error";
  return "";
}

fs::path real_data() {
  const char* folder = std::getenv("RIDGELINE_DATA");
  return folder == nullptr ? "" : folder;
}

}  // namespace ridgeline::data::testing
