#pragma once

namespace ridgeline {

// The unit of this CPU that multiplies bf16 numbers and adds the products in fp32.
enum class Bf16Unit { none, avx512, amx };

// The first call requests AMX's tile registers, which Linux grants only to processes that ask for
// them.
Bf16Unit bf16_unit();

}  // namespace ridgeline
