// Preloaded (LD_PRELOAD) before an MPI that accepts only host memory, this library makes it report
// that it accepts GPU memory, and handle it in the one call that needs it: through the host, with
// driver calls as a CUDA-aware MPI makes them. For tests, because no available MPI is built with
// CUDA.
//   RIDGELINE_SHIM_RANKS=N  only the first N ranks report it
//   RIDGELINE_SHIM_COUNT=1  each rank prints at its end how many sums of GPU memory it has made
#include <dlfcn.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using DevicePointer = unsigned long long;
constexpr int kMemoryType = 2;       // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr unsigned int kDevice = 2;  // CU_MEMORYTYPE_DEVICE
constexpr const char* kDriver = "libcuda.so.1";

int sums = 0;

// The driver's function if this process has opened the driver; otherwise null.
template <typename F>
F* find(const char* name) {
  void* driver = dlopen(kDriver, RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  auto* function = reinterpret_cast<F*>(dlsym(driver, name));
  dlclose(driver);
  return function;
}

bool is_device(const void* memory) {
  auto* attribute = find<int(void*, int, DevicePointer)>("cuPointerGetAttribute");
  unsigned int type = 0;
  return attribute != nullptr && memory != MPI_IN_PLACE &&
         attribute(&type, kMemoryType, reinterpret_cast<DevicePointer>(memory)) == 0 &&
         type == kDevice;
}

bool to_host(void* host, const void* device, size_t bytes) {
  auto* copy = find<int(void*, DevicePointer, size_t)>("cuMemcpyDtoH_v2");
  return copy(host, reinterpret_cast<DevicePointer>(device), bytes) == 0;
}

bool to_device(void* device, const void* host, size_t bytes) {
  auto* copy = find<int(DevicePointer, const void*, size_t)>("cuMemcpyHtoD_v2");
  // the copy may return before it is complete
  auto* wait = find<int(void*)>("cuStreamSynchronize");
  return copy(reinterpret_cast<DevicePointer>(device), host, bytes) == 0 && wait(nullptr) == 0;
}

}  // namespace

extern "C" {

int MPIX_Query_cuda_support(void) {
  const char* few = std::getenv("RIDGELINE_SHIM_RANKS");
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return few == nullptr || rank < std::atoi(few) ? 1 : 0;
}

int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm ranks) {
  if (!is_device(to)) return PMPI_Allreduce(from, to, count, type, op, ranks);
  int width = 0;
  PMPI_Type_size(type, &width);
  const size_t bytes = size_t(count) * size_t(width);
  std::vector<char> host(bytes);
  if (!to_host(host.data(), from == MPI_IN_PLACE ? to : from, bytes)) return MPI_ERR_BUFFER;
  const int code = PMPI_Allreduce(MPI_IN_PLACE, host.data(), count, type, op, ranks);
  if (code != MPI_SUCCESS) return code;
  ++sums;
  return to_device(to, host.data(), bytes) ? MPI_SUCCESS : MPI_ERR_BUFFER;
}

int MPI_Finalize(void) {
  if (std::getenv("RIDGELINE_SHIM_COUNT") != nullptr) {
    std::fprintf(stderr, "shim: %d sums of GPU memory\n", sums);
  }
  return PMPI_Finalize();
}

}  // extern "C"
