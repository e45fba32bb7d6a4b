#pragma once

#include "ridgeline/cuda/generate/compile.h"
#include "ridgeline/cuda/libraries/cublaslt.h"
#include "ridgeline/cuda/libraries/cudnn.h"
#include "ridgeline/cuda/libraries/nccl.h"
#include "ridgeline/cuda/runtime.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::test {

// Whether kernels that call this library cannot be expected to run here.
inline bool lacks(const cuda::CudaRuntime& gpu, Library library) {
  switch (library) {
    case Library::none:
      return false;
    case Library::cublaslt:
      return !gpu.cublaslt().refusal().empty();
    case Library::cudnn:
      return !gpu.cudnn().refusal().empty();
    case Library::nccl:
      return gpu.collectives() == nullptr || !gpu.collectives()->nccl_refusal().empty();
    case Library::mpi:
      return gpu.collectives() == nullptr;
    case Library::nvrtc:
      return !cuda::generate::Nvrtc::get().refusal().empty();
    case Library::onednn:
      break;
  }
  return true;
}

}  // namespace ridgeline::test
