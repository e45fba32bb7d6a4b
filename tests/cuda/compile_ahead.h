#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "ridgeline/cuda/generate/compile.h"
#include "ridgeline/cuda/generate/kernels.h"
#include "tests/support/walk.h"

namespace ridgeline::test {

// Compiles sources of generated kernels in parallel, into the cache: compiled one by one during the
// walks, they would take minutes.
inline void compile_ahead(const std::vector<std::string>& sources) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  const size_t most = std::min<size_t>(sources.size(), std::thread::hardware_concurrency());
  for (size_t i = 0; i < most; ++i) {
    threads.emplace_back([&] {
      for (size_t k = next++; k < sources.size(); k = next++) {
        try {
          cuda::generate::compile_or_take(sources[k], "sm_90a");
        } catch (const Error&) {  // the walk meets it again and reports it
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The sources that the generator would write for these cases.
inline void compile_ahead(const std::vector<Case>& cases, const cuda::CudaRuntime& runtime,
                          cuda::generate::Tiles tiles = cuda::generate::Tiles::where_faster) {
  if (!wanted_kernel("cuda.program.persistent")) return;
  std::vector<std::string> sources;
  for (const Case& c : cases) {
    if (!wanted(c)) continue;
    if (std::string source = cuda::generated_source(c.program, runtime, tiles); !source.empty()) {
      sources.push_back(std::move(source));
    }
  }
  compile_ahead(sources);
}

}  // namespace ridgeline::test
