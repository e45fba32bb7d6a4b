#include "ridgeline/cuda/generate/compile.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/shared_library.h"
#include "ridgeline/cuda/generate/device_sources.h"
#include "ridgeline/plan/cache.h"

namespace ridgeline::cuda::generate {

// Declared as in nvrtc.h, so that building does not need that header.
struct Nvrtc::Api {
  using Program = void*;
  int (*version)(int*, int*) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*cubin_size)(Program, size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  const char* (*error)(int) = nullptr;
};

const Nvrtc& Nvrtc::get() {
  static const Nvrtc only;
  return only;
}

Nvrtc::Nvrtc() {
  static Api api;
  static SharedLibrary library(
      "NVRTC (libnvrtc.so.13)",
      {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so.13",
       "/usr/local/cuda/lib64/libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"});
  library.find(api.version, "nvrtcVersion");
  library.find(api.create, "nvrtcCreateProgram");
  library.find(api.destroy, "nvrtcDestroyProgram");
  library.find(api.compile, "nvrtcCompileProgram");
  library.find(api.cubin_size, "nvrtcGetCUBINSize");
  library.find(api.cubin, "nvrtcGetCUBIN");
  library.find(api.log_size, "nvrtcGetProgramLogSize");
  library.find(api.log, "nvrtcGetProgramLog");
  library.find(api.error, "nvrtcGetErrorString");
  refusal_ = library.refusal();
  if (!refusal_.empty()) return;
  api_ = &api;
  api.version(&major_, &minor_);
  if (major_ < 12)
    refusal_ = fmt::format("NVRTC {} is too old; 12.0 or newer is wanted", version());
}

std::string Nvrtc::version() const {
  return major_ == 0 ? "absent" : fmt::format("{}.{}", major_, minor_);
}

Compiled Nvrtc::compile(const std::string& source, const std::string& architecture,
                        const std::vector<std::string>& flags) const {
  if (!refusal_.empty()) throw_error(ErrorKind::device, "{}", refusal_);
  const auto start = std::chrono::steady_clock::now();
  std::vector<const char*> names, texts;
  for (const DeviceHeader& header : device_headers()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  const auto check = [&](int result, const char* what) {
    if (result != 0) throw_error(ErrorKind::device, "NVRTC: {}: {}", what, api_->error(result));
  };
  Api::Program program = nullptr;
  check(api_->create(&program, source.c_str(), "generated.cu", int(names.size()), texts.data(),
                     names.data()),
        "the source");
  struct Destroy {
    const Api& api;
    Api::Program& program;
    ~Destroy() { api.destroy(&program); }
  } destroy{*api_, program};
  const std::string arch = "--gpu-architecture=" + architecture;
  std::vector<const char*> options = {arch.c_str(), "--std=c++17",
                                      "--device-as-default-execution-space", "--diag-suppress=177"};
  for (const std::string& flag : flags) options.push_back(flag.c_str());
  const int result = api_->compile(program, int(options.size()), options.data());
  Compiled compiled;
  size_t size = 0;
  check(api_->log_size(program, &size), "its log");
  if (size > 1) {
    compiled.log.resize(size);
    check(api_->log(program, compiled.log.data()), "its log");
    compiled.log.resize(size - 1);
  }
  if (result != 0) {
    throw_error(ErrorKind::device, "NVRTC: the generated kernel: {}\n{}", api_->error(result),
                compiled.log);
  }
  check(api_->cubin_size(program, &size), "its code");
  compiled.code.resize(size);
  check(api_->cubin(program, compiled.code.data()), "its code");
  compiled.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

namespace {

// FNV-1a, twice with different seeds: 128 bits, so that sources do not collide.
std::string hash_of(const std::string& text) {
  uint64_t a = 14695981039346656037ull, b = 0x9E3779B97F4A7C15ull;
  for (const char c : text) {
    a = (a ^ uint8_t(c)) * 1099511628211ull;
    b = (b ^ uint8_t(c)) * 1099511628211ull;
    b ^= b >> 29;
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

// The format of a cached file: the key it was made for, then the code, each preceded by its length
// and hash.
constexpr char kMagic[] = "ridgeline-kernel 1\n";

}  // namespace

Compiled compile_or_take(const std::string& source, const std::string& architecture) {
  const Nvrtc& nvrtc = Nvrtc::get();
  if (!nvrtc.refusal().empty()) throw_error(ErrorKind::device, "{}", nvrtc.refusal());
  std::string key = architecture + "\n" + nvrtc.version() + "\n" + source;
  for (const DeviceHeader& header : device_headers()) key += header.text;
  const std::string name = hash_of(key);
  const std::filesystem::path file = cache_folder() / "kernels" / (name + ".cubin");
  std::error_code error;
  if (std::filesystem::is_regular_file(file, error)) {
    try {
      const std::vector<std::byte> bytes = read_file(file, ErrorKind::io, size_t{64} << 20);
      const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const size_t head = sizeof(kMagic) - 1 + name.size() + 1 + 32 + 1;
      if (text.size() > head && text.starts_with(kMagic + name + "\n")) {
        const std::string code = text.substr(head);
        if (text.substr(head - 33, 32) == hash_of(code)) return {{code.begin(), code.end()}, {}, 0};
      }
    } catch (const Error&) {  // it is compiled again below
    }
  }
  Compiled compiled = nvrtc.compile(source, architecture);
  try {
    std::filesystem::create_directories(file.parent_path());
    const std::string code(compiled.code.begin(), compiled.code.end());
    const std::string text = kMagic + name + "\n" + hash_of(code) + "\n" + code;
    // Written under a name of this process's own, because two processes may compile the same source
    // at once.
    const auto own = file.parent_path() / fmt::format("{}.{}", name, getpid());
    write_file_atomic(own, std::as_bytes(std::span(text.data(), text.size())));
    chmod(own.c_str(), 0600);
    std::filesystem::rename(own, file);
  } catch (const std::exception&) {  // ignored: the cache only saves time
  }
  return compiled;
}

}  // namespace ridgeline::cuda::generate
