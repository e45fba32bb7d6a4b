#pragma once

#include <string>
#include <vector>

#include "ridgeline/cuda/generate/schedule.h"

namespace ridgeline::cuda::generate {

// A kernel's source and what it wants to be launched with.
struct Source {
  std::string text;
  std::vector<Value> arguments;  // whose memory Args::p holds, in order
  size_t workspace_bytes = 0;    // 256-byte aligned, its content of no account before and after
  size_t shared_bytes = 0;
  int blocks = 0;
  int cluster = 0;  // blocks of a cluster; 0: one grid whose blocks are all resident
};

constexpr const char* kKernelName = "ridgeline_generated";
constexpr int kMostArguments = 192;

// As the generated kernel takes it.
struct Args {
  void* p[kMostArguments];
  void* space;    // the workspace
  void* barrier;  // four bytes, zero before the first launch and then left to the kernel
  int64_t steps;
};

Source write_source(const NetStep& net, const Schedule& schedule);

}  // namespace ridgeline::cuda::generate
