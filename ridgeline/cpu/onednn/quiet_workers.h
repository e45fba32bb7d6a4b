#pragma once

namespace ridgeline::cpu {

// OpenMP's workers, which oneDNN uses, spin for milliseconds before they sleep, on the processors
// that our own kernels' threads need: fashion-lenet's training step takes 36 ms with spinning
// workers and 19.5 ms if they sleep at once (4 threads, Xeon); a worker burns
// 4 ms of processor time after each region, and 0.02 with this (2 processors, EPYC). libgomp lets
// them sleep at once if it has more threads than the process has processors, so this function gives
// it a team that sleeps forever, once per process, like libgomp's settings.
//
// It does nothing if `threads` threads of each kind still have a processor each, or if the
// environment sets how to wait (GOMP_SPINCOUNT, OMP_WAIT_POLICY).
void quiet_workers(int threads);

}  // namespace ridgeline::cpu
