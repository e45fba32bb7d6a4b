#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// A format may hold more elements than its value has: channels up to a whole block, samples up to a
// whole panel, positions up to a pitch. The contents of this padding are part of the format, and
// its name says which rule applies:
//
//   zero      is the default. Every kernel that writes the format, including conversions, leaves
//   its
//             padding zero whatever the memory held before, and a kernel that reads it may rely on
//             that.
//   anything  is for formats whose names begin with kLoose. Kernels that write one may leave
//             anything in its padding, NaN too, and no kernel that reads one lets that reach an
//             element of a value.
//
// The table walk checks this for every kernel. It poisons all memory with NaN before a kernel runs;
// it then looks for zeros in the padding that a kernel or a conversion has written, or puts NaN
// into the loose padding that a kernel is about to read.
enum class Padding { zero, anything };

inline constexpr char kLoose = '~';

inline Padding padding(const Format& format) {
  return format.starts_with(kLoose) ? Padding::anything : Padding::zero;
}

}  // namespace ridgeline
