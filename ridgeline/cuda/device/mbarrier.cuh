#pragma once

#include <cstdint>

// Shared-memory barriers (mbarrier) that TMA can complete, cluster barriers, and the fences and
// launch-dependency instructions that go with them. sm_90 and up.
namespace ridgeline::cuda {

using Mbarrier = uint64_t;  // must be in shared memory

__device__ inline uint32_t smem_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void mbarrier_init(Mbarrier* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)),
               "r"(arrivals));
}

// Makes initialised barriers visible to the other blocks of the cluster and to TMA; a block or
// cluster barrier must follow.
__device__ inline void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives once and makes the phase wait for `bytes` more bytes from TMA.
__device__ inline void mbarrier_arrive_expect(Mbarrier* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ inline void mbarrier_arrive(Mbarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(barrier)) : "memory");
}

// Whether the phase of this parity has ended, for the barrier at this shared-memory address.
__device__ inline bool mbarrier_try_wait_at(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Returns once the phase of this parity has ended. With RIDGELINE_BOUNDED_WAIT, a wait of several
// seconds traps, so that a wrong byte count is reported as an error and not as a hang.
__device__ inline void mbarrier_wait_at(uint32_t barrier, uint32_t parity) {
#ifdef RIDGELINE_BOUNDED_WAIT
  for (uint32_t spins = 0; !mbarrier_try_wait_at(barrier, parity); ++spins) {
    if (spins > (1u << 20)) __trap();
  }
#else
  while (!mbarrier_try_wait_at(barrier, parity)) {
  }
#endif
}
__device__ inline void mbarrier_wait(Mbarrier* barrier, uint32_t parity) {
  mbarrier_wait_at(smem_address(barrier), parity);
}

// Orders this thread's ordinary shared-memory writes before later reads by TMA or wgmma.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Waits at barrier `id` (1-15; 0 is __syncthreads) over `threads` threads of the block, which are
// whole warps.
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Arrives at that barrier without waiting.
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Every thread of every block of the cluster arrives once and waits once. The release/acquire pair
// also orders writes into other blocks' shared memory.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// The address, in the cluster's shared-memory window, of `local` (a shared-memory address) in block
// `rank`.
__device__ inline uint32_t cluster_address(uint32_t local, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  return remote;
}

__device__ inline void cluster_store(uint32_t address, float2 value) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(value.x),
               "f"(value.y)
               : "memory");
}

// Programmatic dependent launch. Without the launch attribute both return at once. Every GPU
// function launched with it waits before it touches global memory, so that later launches of the
// stream may rely on everything before them.
__device__ inline void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ inline void allow_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Moves registers between warpgroups (setmaxnreg); all four warps of a warpgroup execute it.
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace ridgeline::cuda
