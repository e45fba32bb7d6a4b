#pragma once

#include <optional>
#include <string>

#include "ridgeline/cuda/conv/spans.h"
#include "ridgeline/plan/kernel.h"

// Code that the kernels over rows of channels (conv1d/kernels.h) share.
namespace ridgeline::cuda {

struct Signal {
  int channels = 0, length = 0;
};

// Parses "~signal:256x336": 256 channels of 336 positions, as rows of channels. Rows past a
// sample's length may hold any values (plan/padding.h).
std::optional<Signal> parse_signal(const Format& format);
FormatUse signal_use(const Value& value, int64_t channels, int64_t length);

// Whether the dtype is a half type or fp32.
bool is_signal_type(DType dtype);
bool is_relu(const Activation* activation, const Value& x);

// A normalisation over whole samples with a gamma and beta for every element, relu, and a pool of
// three, each reading the output of the one before.
struct NormPool {
  const LayerNorm* norm = nullptr;
  const Activation* relu = nullptr;
  const MaxPool* pool = nullptr;
};

std::optional<NormPool> norm_pool_at(const RemainingOps& rest, size_t at, const Value& x);
std::string refuse_norm(const LayerNorm& norm);

int sms(const Binding& binding);

}  // namespace ridgeline::cuda
