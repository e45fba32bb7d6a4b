#pragma once

#include <gtest/gtest.h>

#include <ostream>

#include "tests/support/cases.h"

namespace ridgeline::test {

struct Cost {
  double flops, bytes;
  bool operator==(const Cost&) const = default;
};

inline Cost cost(const Op& op) { return {flops(op), bytes(op)}; }

inline std::ostream& operator<<(std::ostream& out, const Cost& cost) {
  return out << cost.flops << " flops, " << cost.bytes << " bytes";
}

}  // namespace ridgeline::test
