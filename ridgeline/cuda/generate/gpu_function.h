#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "ridgeline/cuda/generate/source.h"

namespace ridgeline::cuda::generate {

// Machine code that is loaded into the current device's context and ready to launch.
class GpuFunction {
 public:
  // Throws Error(device).
  GpuFunction(const std::vector<char>& cubin, const Source& source);
  ~GpuFunction();
  GpuFunction(const GpuFunction&) = delete;
  GpuFunction& operator=(const GpuFunction&) = delete;

  int registers() const { return registers_; }
  int local_bytes() const { return local_bytes_; }  // spilled registers, per thread
  void launch(const Args& args, cudaStream_t stream) const;
  // Launches another function of the same code with blocks of 256 threads.
  void launch_other(const char* name, int blocks, const Args& args, cudaStream_t stream) const;

 private:
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  unsigned blocks_, cluster_, shared_bytes_;
  int registers_ = 0, local_bytes_ = 0;
};

}  // namespace ridgeline::cuda::generate
