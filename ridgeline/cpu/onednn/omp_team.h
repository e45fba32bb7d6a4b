#pragma once

#include <cstddef>

namespace ridgeline::cpu {

// Returns the stack size of OpenMP's threads in $OMP_STACKSIZE ("4M", "512 k", "100" kilobytes); 0
// if it is unset or invalid.
size_t omp_stack_bytes(const char* text);

// Gives the next parallel regions of OpenMP that the calling thread begins `wanted` threads, or as
// many of them as the system grants, and returns that number. libgomp aborts the process if it gets
// no thread, so the team is created here, right after checking with the system. oneDNN uses this
// number both when it creates a primitive and when it runs one.
int use_omp_threads(int wanted);

}  // namespace ridgeline::cpu
