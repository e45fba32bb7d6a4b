#pragma once

#include <string>
#include <vector>

namespace ridgeline::cuda::generate {

// Machine code of one source.
struct Compiled {
  std::vector<char> code;  // a cubin
  std::string log;         // of the compiler, where it said something
  double seconds = 0;      // 0: from the folder of kept ones
};

// NVIDIA's compiler of sources at run time, looked up when first wanted.
class Nvrtc {
 public:
  static const Nvrtc& get();

  const std::string& refusal() const { return refusal_; }  // why it cannot be used; "" when it can
  std::string version() const;                             // "13.0", or "absent"

  // Throws Error(device) with the compiler's words when the source does not compile.
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

// Takes the kernel from ~/.cache/ridgeline/kernels if this compiler has compiled this source before
// for this architecture; a file there that is damaged is not used.
Compiled compile_or_take(const std::string& source, const std::string& architecture);

}  // namespace ridgeline::cuda::generate
