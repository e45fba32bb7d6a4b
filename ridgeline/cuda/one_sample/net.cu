#include "ridgeline/cuda/device/bulk_copy.cuh"
#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/one_sample/net_args.h"
#include "ridgeline/cuda/plain/activation.cuh"

// A whole network for one sample on one cluster. Each block has its share of every layer's rows, in
// shared memory if they fit, and computes them from its own copy of the layer's whole input. It
// stores its results asynchronously into the copies of all blocks, which count the bytes on an
// mbarrier: a block waits only for the values it needs, and there is no cluster barrier between
// layers. The products of recurrent weights with the state are computed after the answer has been
// sent, and are ready when the next timestep comes.
//
// Buffers and barriers are doubled, for alternate requests: a block may still read h of one request
// when another already sends that of the next. It cannot be two ahead, because the host sends a new
// request only after every block has answered.
//
// One thread waits for a barrier that other blocks complete, and the rest of its block waits at
// __syncthreads: 500 threads that poll shared memory would slow down the few that compute, by
// microseconds.
namespace ridgeline::cuda::one_sample {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
__global__ void net_infer_cluster_kernel(NetArgs, MailArgs, Mode) {}
#else

namespace {

__device__ inline int lane() { return int(threadIdx.x % 32); }
__device__ inline int warp() { return int(threadIdx.x / 32); }

__device__ inline void store_async_4(uint32_t address, float value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
          address),
      "r"(__float_as_uint(value)), "r"(barrier)
      : "memory");
}
__device__ inline uint4 load_mail(const uint4* from) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ inline void store_mail(uint64_t* to, float value, uint32_t number) {
  const uint64_t both = uint64_t{number} << 32 | __float_as_uint(value);
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(to), "l"(both) : "memory");
}
__device__ inline uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float tanh_of(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

// w[lane / 8] . x for four rows of `in` floats, summed over the warp. w and x may be in shared or
// in global memory. Pairs of lanes first reduce half of the rows each, then groups of four one row
// each, so that six shuffles suffice for four sums.
__device__ inline float four_dots(const float* w, const float* x, int in) {
  float s[4] = {};
#pragma unroll 4
  for (int i = 4 * lane(); i < in; i += 128) {
    const float4 v = *reinterpret_cast<const float4*>(x + i);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float4 a = *reinterpret_cast<const float4*>(w + r * in + i);
      s[r] += a.x * v.x + a.y * v.y + a.z * v.z + a.w * v.w;
    }
  }
  const bool upper = lane() & 16, odd = lane() & 8;
  const float a = (upper ? s[2] : s[0]) + __shfl_xor_sync(~0u, upper ? s[0] : s[2], 16);
  const float b = (upper ? s[3] : s[1]) + __shfl_xor_sync(~0u, upper ? s[1] : s[3], 16);
  float sum = (odd ? b : a) + __shfl_xor_sync(~0u, odd ? a : b, 8);
#pragma unroll
  for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}
// The value of row `row`, in all lanes.
__device__ inline float of_row(float value, int row) { return __shfl_sync(~0u, value, 8 * row); }

// A block's place in the cluster, and the pointers to its shared memory.
struct Block {
  const LayerArgs* layers;  // in shared memory, because indexed reads of the arguments are slow
  Mbarrier* barriers;       // [2][kMostLayers + 1]
  int rank, blocks;
  const float *far, *near;  // its weights in global memory, and the first of them in shared memory
  float *inputs, *state, *answer;
  int input_floats;

  __device__ float* buffer(int parity) const { return inputs + parity * input_floats; }
  // Counts the bytes of a layer's input; the barrier after the last layer counts those of its
  // state.
  __device__ Mbarrier* barrier(int layer, int parity) const {
    return barriers + parity * (kMostLayers + 1) + layer;
  }
  // The number of this layer's groups that this block has.
  __device__ int groups(const LayerArgs& layer) const {
    const int each = outputs_per_group(layer.kind);
    return max(0, min(layer.groups, (layer.out + each - 1) / each - rank * layer.groups));
  }
  // The bytes that arrive of a layer's outputs: whole groups of four.
  __device__ static uint32_t sent_bytes(const LayerArgs& layer) {
    return outputs_per_group(layer.kind) == 4 ? (layer.out + 3) / 4 * 16 : layer.out * 4;
  }
  // Called by all threads: waits until a layer's input has arrived.
  __device__ void wait(int layer, int parity, uint32_t phase) const {
    if (blocks > 1 && threadIdx.x == 0) mbarrier_wait(barrier(layer, parity), phase);
    __syncthreads();
  }
};

// sums = w_hh h + b_hh for this warp's groups, from all of the layer's h.
__device__ void add_up_state(const Block& block, const LayerArgs& layer, const float* h) {
  const int width = (layer.out + 3) / 4 * 4;
  const float* w = (layer.w_hh_on_chip ? block.near : block.far) + layer.w_hh;
  const float* b = block.far + layer.b_hh;
  float* sums = block.state + layer.state;
  for (int g = warp(); g < block.groups(layer); g += kWarps) {
    const int at = 4 * g + lane() / 8;
    const float sum = four_dots(w + 4 * g * width, h, width) + b[at];
    if (lane() % 8 == 0) sums[at] = sum;
  }
  __syncwarp();
}

// Computes the gates of one unit and updates c. All lanes receive h.
__device__ inline float next_state(LayerKind kind, float from_x, float from_h, float h, float& c) {
  const int gate = lane() / 8;
  if (kind == LayerKind::gru) {
    const float part = sigmoid(from_x + from_h);  // r and z
    const float r = of_row(part, 0), z = of_row(part, 1);
    const float n = of_row(tanh_of(from_x + r * from_h), 2);
    return (1.0f - z) * n + z * h;
  }
  // tanh(x) = 2 sigmoid(2 x) - 1, so that one function serves i, f, o and g.
  const float twice = gate == 2 ? 2.0f : 1.0f;
  const float part = twice * sigmoid(twice * (from_x + from_h)) + (1.0f - twice);
  c = of_row(part, 1) * c + of_row(part, 0) * of_row(part, 2);
  return of_row(part, 3) * tanh_of(c);
}

// Computes this warp's groups of a layer and sends their outputs to all blocks that need them;
// those of the last layer go to the answer.
__device__ void run_layer(const Block& block, int index, int parity, bool last) {
  const LayerArgs layer = block.layers[index];
  const float* x = block.buffer(parity) + layer.x;
  const float* w = block.near + layer.w;
  const float* b = block.near + layer.b;
  const int each = outputs_per_group(layer.kind), row = lane() / 8;
  const bool cell = layer.kind != LayerKind::linear;
  const uint32_t to = smem_address(block.buffer(parity) + layer.y);
  const uint32_t barrier = smem_address(block.barrier(index + 1, parity));
  float* sums = block.state + layer.state;
  float *h = sums + 4 * layer.groups, *c = h + each * layer.groups;
  for (int g = warp(); g < block.groups(layer); g += kWarps) {
    float value = four_dots(w + 4 * g * layer.in, x, layer.in) + b[4 * g + row];
    if (each == 1) {
      float now = c[g];
      value = next_state(layer.kind, value, sums[4 * g + row], h[g], now);
      __syncwarp();
      if (lane() == 0) {
        h[g] = value;
        c[g] = now;
        if (last) block.answer[g] = value;
      }
    } else {
      if (cell) value += sums[4 * g + row];
      value = activation_value(layer.activation, value);
      if (lane() % 8 == 0) {
        if (cell) h[4 * g + row] = value;
        if (last) block.answer[4 * g + row] = value;
      }
    }
    if (last && !cell) continue;
    const int unit = each * (block.rank * layer.groups + g);
    if (block.blocks == 1) {
      float* y = block.buffer(parity) + layer.y + unit;
      if (lane() % (each == 1 ? 32 : 8) == 0) y[each == 1 ? 0 : row] = value;
    } else if (each == 1) {
      if (lane() < block.blocks) {
        store_async_4(cluster_address(to + 4 * unit, lane()), value,
                      cluster_address(barrier, lane()));
      }
    } else {
      const uint4 four = {__float_as_uint(of_row(value, 0)), __float_as_uint(of_row(value, 1)),
                          __float_as_uint(of_row(value, 2)), __float_as_uint(of_row(value, 3))};
      if (lane() < block.blocks) {
        store_async_16(cluster_address(to + 4 * unit, lane()), four,
                       cluster_address(barrier, lane()));
      }
    }
  }
}

// Waits for this block's chunks of the input and sends them to all blocks. Called by whole warps.
__device__ void take_input(const Block& block, const MailArgs& mail, Mode mode, uint32_t number,
                           int chunks, int parity) {
  const int each = (chunks + block.blocks - 1) / block.blocks;
  const int begin = block.rank * each;
  const int mine = min(each, chunks - begin);
  float* x = block.buffer(parity) + block.layers[0].x;
  // Written by the first block when it stops.
  const volatile uint32_t* told = reinterpret_cast<const volatile uint32_t*>(x) + 3;
  for (int first = 32 * warp(); first < mine; first += kThreads) {
    const int i = first + lane();
    const bool leader = block.rank == 0 && first == 0;
    const uint64_t began = leader && mail.idle_ns > 0 ? now_ns() : 0;
    uint4 v{};
    bool come = i >= mine;
    for (uint32_t polls = 1; !__all_sync(~0u, come); ++polls) {
      if (!come) {
        v = load_mail(mail.inputs + begin + i);
        come = mode == Mode::once || v.w == number;
      }
      if (leader) {
        const bool idle = polls % 64 == 0 && mail.idle_ns > 0 && now_ns() - began > mail.idle_ns;
        if (__any_sync(~0u, idle || (lane() == 0 && v.w == kStop))) {
          // Tells a host that sent a request meanwhile that the function has exited.
          if (lane() == 0) v.w = kStop;
          break;
        }
      } else if (mode == Mode::stay && *told == kStop) {
        break;
      }
    }
    if (i < mine && block.blocks == 1) {
      *reinterpret_cast<uint4*>(x + 4 * i) = v;
    } else if (i < mine) {
      const uint32_t to = smem_address(x + 4 * (begin + i));
      const uint32_t barrier = smem_address(block.barrier(0, parity));
      for (int d = 0; d < block.blocks; ++d) {
        store_async_16(cluster_address(to, d), v, cluster_address(barrier, d));
      }
    }
  }
}

}  // namespace

__global__ void __launch_bounds__(kThreads, 1)
    net_infer_cluster_kernel(const __grid_constant__ NetArgs net,
                             const __grid_constant__ MailArgs mail, Mode mode) {
  extern __shared__ __align__(128) float shared[];
  __shared__ LayerArgs layers[kMostLayers];
  __shared__ Mbarrier barriers[2 * (kMostLayers + 1)], weights_come;
  const int count = net.layers;
  Block block;
  block.layers = layers;
  block.barriers = barriers;
  block.rank = int(cluster_rank());
  block.blocks = net.blocks;
  block.far = net.weights + block.rank * net.weights_stride;
  block.near = shared;
  block.input_floats = net.inputs;
  block.inputs = shared + net.on_chip;
  block.state = block.inputs + 2 * net.inputs;
  block.answer = block.state + net.state_floats;

  if (threadIdx.x == 0) {
    for (int l = 0; l <= count; ++l) {
      mbarrier_init(barriers + l, 1);
      mbarrier_init(barriers + kMostLayers + 1 + l, 1);
    }
    mbarrier_init(&weights_come, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(&weights_come, uint32_t(net.on_chip) * 4);
    bulk_load(shared, block.far, uint32_t(net.on_chip) * 4, &weights_come);
  }
  const auto* from = reinterpret_cast<const int*>(net.layer);
  for (int i = int(threadIdx.x); i < count * int(sizeof(LayerArgs) / 4); i += kThreads) {
    reinterpret_cast<int*>(layers)[i] = from[i];
  }
  for (int i = int(threadIdx.x); i < 2 * net.inputs; i += kThreads) block.inputs[i] = 0;
  float* kept = net.state + int64_t(block.rank) * net.state_floats;
  for (int i = int(threadIdx.x); i < net.state_floats; i += kThreads) block.state[i] = kept[i];
  for (int i = int(threadIdx.x); i < net.slots; i += kThreads) block.answer[i] = 0;
  fence_async_proxy();
  __syncthreads();
  cluster_sync();

  const bool cell_last = layers[count - 1].kind != LayerKind::linear;
  if (mode != Mode::once) {
    if (threadIdx.x == 0) mbarrier_wait(&weights_come, 0);
    __syncthreads();
    // Loads the state of all blocks from where they keep it.
    for (int l = 0; l < count; ++l) {
      const LayerArgs& layer = layers[l];
      if (layer.kind == LayerKind::linear) continue;
      const int units = outputs_per_group(layer.kind) * layer.groups;
      const float* h = net.state + layer.state + 4 * layer.groups;
      for (int i = int(threadIdx.x); i < layer.out; i += kThreads) {
        block.inputs[layer.y + i] = h[int64_t(i / units) * net.state_floats + i % units];
      }
      __syncthreads();
      add_up_state(block, layer, block.inputs + layer.y);
    }
    fence_async_proxy();
    __syncthreads();
    cluster_sync();
  }
  uint32_t number = mail.first;
  // The first request has parity 0, and the phases of each barrier alternate.
  for (uint32_t round = 0; mode != Mode::refresh; ++round, number = next_number(number)) {
    const int parity = int(round % 2);
    const uint32_t phase = round / 2 % 2;
    if (net.blocks > 1 && threadIdx.x == 0) {
      mbarrier_arrive_expect(block.barrier(0, parity), uint32_t(16 * net.chunks));
      for (int l = 0; l + (cell_last ? 0 : 1) < count; ++l) {
        mbarrier_arrive_expect(block.barrier(l + 1, parity), Block::sent_bytes(layers[l]));
      }
    }
    take_input(block, mail, mode, number, net.chunks, parity);
    block.wait(0, parity, phase);
    const uint32_t asked = __float_as_uint(block.buffer(parity)[layers[0].x + 3]);
    if (asked == kStop) break;
    if (mode == Mode::once) {
      if (threadIdx.x == 0) mbarrier_wait(&weights_come, 0);
      __syncthreads();
    }
    for (int l = 0; l < count; ++l) {
      if (l > 0) block.wait(l, parity, phase);
      run_layer(block, l, parity, l + 1 == count);
    }
    __syncthreads();
    for (int i = int(threadIdx.x); i < net.slots; i += kThreads) {
      store_mail(mail.outputs + block.rank * net.slots + i, block.answer[i], asked);
    }
    if (cell_last) block.wait(count, parity, phase);
    for (int l = 0; l < count; ++l) {
      if (layers[l].kind == LayerKind::linear) continue;
      add_up_state(block, layers[l], block.buffer(parity) + layers[l].y);
    }
    if (mode == Mode::once) break;
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < net.state_floats; i += kThreads) kept[i] = block.state[i];
  cluster_sync();  // no block exits while others may still store to its shared memory
  if (mode == Mode::stay && block.rank == 0 && threadIdx.x == 0) {
    *mail.left = mail.launch;
    __threadfence_system();
  }
}
#endif

namespace {

cudaLaunchConfig_t config_of(const NetArgs& args, cudaStream_t stream,
                             cudaLaunchAttribute* cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim = {unsigned(args.blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(args.blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = args.shared_bytes();
  config.stream = stream;
  config.attrs = cluster;
  config.numAttrs = 1;
  return config;
}

}  // namespace

cudaError_t allow_net(const NetArgs& args) {
  const auto* function = reinterpret_cast<const void*>(net_infer_cluster_kernel);
  cudaError_t error =
      cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error == cudaSuccess) {
    // Requests all of it, because several networks share the function.
    int device = 0, most = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaFuncAttributes own{};
    error = cudaFuncGetAttributes(&own, function);
    most -= int(own.sharedSizeBytes);
    if (error != cudaSuccess) return error;
    if (args.shared_bytes() > size_t(most)) return cudaErrorInvalidConfiguration;
    error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  }
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cluster;
  const cudaLaunchConfig_t config = config_of(args, nullptr, &cluster);
  int clusters = 0;
  error = cudaOccupancyMaxActiveClusters(&clusters, function, &config);
  return error != cudaSuccess ? error : clusters > 0 ? cudaSuccess : cudaErrorInvalidConfiguration;
}

cudaError_t launch_net(const NetArgs& args, const MailArgs& mail, Mode mode, cudaStream_t stream) {
  cudaLaunchAttribute cluster;
  const cudaLaunchConfig_t config = config_of(args, stream, &cluster);
  return cudaLaunchKernelEx(&config, net_infer_cluster_kernel, args, mail, mode);
}

}  // namespace ridgeline::cuda::one_sample
