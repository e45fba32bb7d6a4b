#include "ridgeline/data/source/bounded_bytes.h"

#include <algorithm>

#include "ridgeline/core/error.h"

namespace ridgeline::data {
namespace {

constexpr int64_t kAnyway = int64_t{64} << 20, kMostRatio = 200;

class BoundedBytes final : public ByteStream {
 public:
  explicit BoundedBytes(const std::filesystem::path& path)
      : file_(path), source_(file_), most_(std::max(kAnyway, file_.size() * kMostRatio)) {}

  size_t read(std::span<std::byte> out) override {
    const size_t got = source_.read(out);
    if (!source_.compressed()) return got;
    given_ += int64_t(got);
    if (given_ <= most_) return got;
    throw_error(
        ErrorKind::data,
        "{}: unpacks to more than {} times its {} bytes, as a gzip bomb does; if it is what "
        "it should be, unpack it (gunzip) and give the plain file",
        file_.name(), kMostRatio, file_.size());
  }
  const std::string& name() const override { return file_.name(); }

 private:
  InputFile file_;
  ByteSource source_;
  int64_t most_, given_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> open_bounded(const std::filesystem::path& path) {
  return std::make_unique<BoundedBytes>(path);
}

}  // namespace ridgeline::data
