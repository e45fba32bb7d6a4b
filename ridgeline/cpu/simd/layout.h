#pragma once

#include <cstddef>
#include <cstdint>

namespace ridgeline::cpu::simd {

// Two layouts of a batch matrix a[n, features].
//
// Batch-major: row r at a + r * ld, ld >= features. Programs use it (ld = features).
//
// Panels: blocks of kPanel rows, each stored transposed, [features][kPanel]; element (r, f) is at
// (r / kPanel * features + f) * kPanel + r % kPanel. Vectors then run along the batch, so the
// weights w[out, in] of a linear layer are read in place, one broadcast at a time, and nothing is
// packed. The columns past n in the last panel hold unspecified values: kernels may compute on
// them, and nothing else reads them.

// Rows of a panel: two cache lines, i.e. two AVX-512 or four AVX2 vectors.
template <typename T>
inline constexpr int64_t kPanel = 128 / int64_t{sizeof(T)};

// Rows of the smallest part of a panel that a thread takes: one cache line.
template <typename T>
inline constexpr int64_t kGroup = 64 / int64_t{sizeof(T)};

template <typename T>
constexpr int64_t groups_of(int64_t n) {
  return (n + kGroup<T> - 1) / kGroup<T>;
}

template <typename T>
constexpr int64_t panels_of(int64_t n) {
  return (n + kPanel<T> - 1) / kPanel<T>;
}

template <typename T>
constexpr size_t panel_elements(int64_t n, int64_t features) {
  return size_t(panels_of<T>(n) * kPanel<T> * features);
}

// The leading dimension for a batch-major matrix in scratch: whole cache lines, and never a
// multiple of 512 bytes. The rows of a block of columns would otherwise map to a few of the 64 sets
// of a first-level cache: at 1024 bytes, 64 rows of eight lines need 16 ways of half of the sets.
template <typename T>
constexpr int64_t padded_ld(int64_t features) {
  constexpr int64_t line = 64 / int64_t{sizeof(T)};
  const int64_t ld = (features + line - 1) / line * line;
  return ld * int64_t{sizeof(T)} % 512 == 0 ? ld + line : ld;
}

}  // namespace ridgeline::cpu::simd
