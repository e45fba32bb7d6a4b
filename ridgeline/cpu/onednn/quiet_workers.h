#pragma once

namespace ridgeline::cpu {

// OpenMP's workers, whom oneDNN's rows work with, look for their next work for milliseconds before
// they sleep, on the processors where the threads of our own rows want to go on: fashion-lenet's
// training step takes 36 ms so, and 19.5 where they sleep at once (4 threads, Xeon); a worker burns
// 4 ms of processor time after each region, and 0.02 with this (2 processors, EPYC). libgomp makes
// them sleep at once when it has more threads than the process has processors; so this gives it a
// team that sleeps forever, once for the process, as libgomp's settings are the process's.
//
// Nothing happens where `threads` threads of each leave a processor to everyone, or where the
// environment says how to wait (GOMP_SPINCOUNT, OMP_WAIT_POLICY).
void quiet_workers(int threads);

}  // namespace ridgeline::cpu
