#pragma once

namespace ridgeline {

// What of this CPU multiplies bf16 numbers and adds the products in fp32.
enum class Bf16Unit { none, avx512, amx };

// The first call asks the system for AMX's tile registers, which Linux gives to those who ask.
Bf16Unit bf16_unit();

}  // namespace ridgeline
