#pragma once

// Which elements of the operands of mma.m16n8k8 a lane holds. The functions also run on the host,
// so that a test can check them against a model of the instruction on machines without such a GPU.

#ifdef __CUDACC__
#define RIDGELINE_FRAGMENT_HD __host__ __device__
#else
#define RIDGELINE_FRAGMENT_HD
#endif

namespace ridgeline::cuda {

struct FragmentPlace {
  int row, column;
};

// d[16, 8] += a[16, 8] . b[8, 8]. Every register holds the element named here and, in its upper
// half (a, b) or the next register (d), the element in the next column (a, d) or row (b).
RIDGELINE_FRAGMENT_HD constexpr FragmentPlace fragment_a(int lane, int index) {
  return {lane / 4 + 8 * index, lane % 4 * 2};  // index 0 and 1
}
RIDGELINE_FRAGMENT_HD constexpr FragmentPlace fragment_b(int lane) {
  return {lane % 4 * 2, lane / 4};
}
RIDGELINE_FRAGMENT_HD constexpr FragmentPlace fragment_d(int lane, int index) {
  return {lane / 4 + 8 * index, lane % 4 * 2};  // index 0 and 1
}

}  // namespace ridgeline::cuda
