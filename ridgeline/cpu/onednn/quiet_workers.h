#pragma once

namespace ridgeline::cpu {

// OpenMP's workers, which oneDNN uses, spin for milliseconds before they sleep, on the processors
// that the threads of our own kernels need: fashion-lenet's training step takes 36 ms with spinning
// workers and 19.5 ms when they sleep at once (4 threads, Xeon); a worker burns
// 4 ms of processor time after each region, and 0.02 with this (2 processors, EPYC). libgomp makes
// them sleep at once when it has more threads than the process has processors; so this gives it a
// team that sleeps forever, once for the process, as libgomp's settings are the process's.
//
// Nothing happens where `threads` threads of each leave a processor to everyone, or where the
// environment says how to wait (GOMP_SPINCOUNT, OMP_WAIT_POLICY).
void quiet_workers(int threads);

}  // namespace ridgeline::cpu
