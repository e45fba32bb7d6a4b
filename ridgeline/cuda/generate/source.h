#pragma once

#include <string>
#include <vector>

#include "ridgeline/cuda/generate/schedule.h"

namespace ridgeline::cuda::generate {

// The source of a GPU function and its launch parameters.
struct Source {
  std::string text;
  std::vector<Value> arguments;  // the values whose memory Args::p holds, in order
  size_t workspace_bytes = 0;    // 256-byte aligned; its content need not be kept between launches
  size_t shared_bytes = 0;
  int blocks = 0;
  int cluster = 0;  // blocks per cluster; 0: one grid whose blocks are all resident
};

constexpr const char* kKernelName = "ridgeline_generated";
constexpr int kMostArguments = 192;

// The argument of the generated function.
struct Args {
  void* p[kMostArguments];
  void* space;    // the workspace
  void* barrier;  // four bytes, zero before the first launch and then owned by the function
  int64_t steps;
};

Source write_source(const NetStep& net, const Schedule& schedule);

}  // namespace ridgeline::cuda::generate
