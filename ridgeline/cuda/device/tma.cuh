#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ridgeline/core/error.h"
#include "ridgeline/cuda/device/mbarrier.cuh"

// TMA (the Tensor Memory Accelerator): tensor maps made on the host, and 2-D tile copies in device
// code.
namespace ridgeline::cuda {

template <typename T>
constexpr CUtensorMapDataType tensor_map_type() {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if constexpr (std::is_same_v<T, __half>) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if constexpr (std::is_same_v<T, uint8_t>) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  if constexpr (std::is_same_v<T, float>) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

// Whether TMA accepts this matrix in memory; other matrices need a kernel with plain loads.
template <typename T>
bool tma_accepts(const void* data, int64_t pitch) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && pitch * int64_t{sizeof(T)} % 16 == 0 &&
         pitch * int64_t{sizeof(T)} < (int64_t{1} << 40);
}

inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder();

// A map of the row-major matrix data[rows, columns] with `pitch` elements from row to row, cut into
// boxes of box_rows x box_columns. A box's row is as long as the swizzle (32, 64 or 128 bytes).
// Elements outside the matrix read as zero and are not written.
template <typename T>
CUtensorMap make_tensor_map(const T* data, int64_t rows, int64_t columns, int64_t pitch,
                            int box_rows, int box_columns) {
  const int row_bytes = box_columns * int{sizeof(T)};
  const CUtensorMapSwizzle swizzle = row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                       : CU_TENSOR_MAP_SWIZZLE_32B;
  const cuuint64_t extent[2] = {cuuint64_t(columns), cuuint64_t(rows)};
  const cuuint64_t stride[1] = {cuuint64_t(pitch) * sizeof(T)};
  const cuuint32_t box[2] = {cuuint32_t(box_columns), cuuint32_t(box_rows)};
  const cuuint32_t step[2] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      tensor_map_encoder()(&map, tensor_map_type<T>(), 2, const_cast<T*>(data), extent, stride, box,
                           step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw_error(
        ErrorKind::device,
        "gemm: the driver refused a tensor map of {} x {}, pitch {}, box {} x {} (error {})", rows,
        columns, pitch, box_rows, box_columns, int(result));
  }
  return map;
}

// Looked up through the runtime, so that programs need not link the driver library.
inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    throw_error(ErrorKind::device,
                "the CUDA driver has no cuTensorMapEncodeTiled: update it to 525 or newer");
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

__device__ inline void tma_prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Copies the box whose first element is (row, column) to `destination`, and counts its bytes at
// `barrier`.
__device__ inline void tma_load(void* destination, const CUtensorMap* map, Mbarrier* barrier,
                                int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(smem_address(destination)),
      "l"(map), "r"(smem_address(barrier)), "r"(column), "r"(row)
      : "memory");
}

// Copies `bytes` (a multiple of 16) from this block's shared memory to `destination`, an address in
// the cluster's shared-memory window, and counts them at `barrier`, which is in the same block as
// the destination.
__device__ inline void bulk_copy_to_cluster(uint32_t destination, const void* source,
                                            uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
      " [%0], [%1], %2, [%3];" ::"r"(destination),
      "r"(smem_address(source)), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ inline void tma_store(const CUtensorMap* map, const void* source, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(smem_address(source)), "r"(column), "r"(row)
      : "memory");
}
__device__ inline void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's committed stores still read shared memory.
template <int kPending>
__device__ inline void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
// Waits until at most kPending of them are incomplete.
template <int kPending>
__device__ inline void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace ridgeline::cuda
