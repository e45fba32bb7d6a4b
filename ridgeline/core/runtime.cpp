#include "ridgeline/core/runtime.h"

#include <chrono>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/error.h"

namespace ridgeline {
namespace {

// An uploader for devices that compute in host memory, or that copy without a stream of their own.
class PlainUploader final : public Uploader {
 public:
  PlainUploader(Runtime& runtime, size_t bytes) : runtime_(runtime), block_(bytes) {}
  std::span<std::byte> block() override { return {block_.data(), block_.size()}; }
  void send() override {}
  void place(void* device) override { runtime_.upload(device, block_.data(), block_.size()); }

 private:
  Runtime& runtime_;
  Buffer block_;
};

}  // namespace

void Runtime::copy(void* to, const void* from, size_t bytes) { upload(to, from, bytes); }

std::unique_ptr<Uploader> Runtime::make_uploader(size_t bytes) {
  return std::make_unique<PlainUploader>(*this, bytes);
}

double Runtime::host_copy_rate(bool) {
  throw_error(ErrorKind::device, "{} has no memory but the host's", to_string(device()));
}

std::vector<double> Runtime::time_each(size_t count, const std::function<void(size_t)>& call) {
  using Clock = std::chrono::steady_clock;
  synchronize();
  std::vector<double> seconds(count);
  auto begin = Clock::now();
  for (size_t i = 0; i < count; ++i) {
    call(i);
    const auto end = Clock::now();
    seconds[i] = std::chrono::duration<double>(end - begin).count();
    begin = end;
  }
  return seconds;
}

}  // namespace ridgeline
