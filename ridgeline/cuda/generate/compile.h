#pragma once

#include <string>
#include <vector>

namespace ridgeline::cuda::generate {

// The machine code of one source.
struct Compiled {
  std::vector<char> code;  // a cubin
  std::string log;         // the compiler's messages, if any
  double seconds = 0;      // compile time; 0 if it came from the cache
};

// NVIDIA's run-time compiler (NVRTC), which is looked up when it is first needed.
class Nvrtc {
 public:
  static const Nvrtc& get();

  const std::string& refusal() const { return refusal_; }  // why it cannot be used; "" if it can
  std::string version() const;                             // "13.0", or "absent"

  // Throws Error(device) with the compiler's message if the source does not compile.
  // `architecture`: "sm_90a".
  Compiled compile(const std::string& source, const std::string& architecture,
                   const std::vector<std::string>& flags = {}) const;

 private:
  Nvrtc();
  struct Api;
  Api* api_ = nullptr;
  std::string refusal_;
  int major_ = 0, minor_ = 0;
};

// Takes the machine code from ~/.cache/ridgeline/kernels if this compiler has compiled this source
// for this architecture before. A damaged file there is not used.
Compiled compile_or_take(const std::string& source, const std::string& architecture);

}  // namespace ridgeline::cuda::generate
