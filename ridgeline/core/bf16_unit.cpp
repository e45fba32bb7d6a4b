#include "ridgeline/core/bf16_unit.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace ridgeline {
namespace {

// Returns the register states that the system saves for every thread (XCR0).
uint64_t kept_states() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

Bf16Unit find() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return Bf16Unit::none;
  const uint64_t states = kept_states();
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return Bf16Unit::none;
  const bool avx512 =
      (b & bit_AVX512F) && (b & bit_AVX512BW) && (b & bit_AVX512VL) && (states & 0xe6) == 0xe6;
  const bool tiles = (d >> 24 & 1) && (d >> 22 & 1) && (states >> 17 & 3) == 3;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl of Linux 5.16
  if (tiles && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return Bf16Unit::amx;
  const bool bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
  return avx512 && bf16 ? Bf16Unit::avx512 : Bf16Unit::none;
}

}  // namespace

Bf16Unit bf16_unit() {
  static const Bf16Unit unit = find();
  return unit;
}

}  // namespace ridgeline

#else

namespace ridgeline {

Bf16Unit bf16_unit() { return Bf16Unit::none; }

}  // namespace ridgeline

#endif
