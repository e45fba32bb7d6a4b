#pragma once

#include <cstddef>

namespace ridgeline::cpu {

// The stack of OpenMP's threads that $OMP_STACKSIZE asks for ("4M", "512 k", "100" kilobytes); 0
// for none and for nonsense.
size_t omp_stack_bytes(const char* text);

// Lets the next parallel regions of OpenMP that the calling thread begins have `wanted` threads, or
// as many of them as the system gives, and returns how many that is. libgomp ends the process when
// it gets no thread, so the team is made here, right after the system has been asked for as many.
// oneDNN is told this number both when it makes a primitive and when it runs one.
int use_omp_threads(int wanted);

}  // namespace ridgeline::cpu
