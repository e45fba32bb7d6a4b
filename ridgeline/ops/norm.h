#pragma once

#include <fmt/core.h>

#include "ridgeline/ops/value.h"
#include "ridgeline/ops/window.h"

namespace ridgeline {

// Normalisations. mean and rstd are kept for the gradient, in fp64 for fp64 values and fp32 for all
// narrower ones. Each gradient is one op, because its parts share their sums and libraries compute
// them in one call.

// For each run of `width` numbers of x, with mean and var over the run:
//   y = (x - mean) * rstd * gamma + beta,  rstd = 1 / sqrt(var + epsilon)   (var divides by width)
struct LayerNorm {
  Value x;            // [n, rows*width]
  Value gamma, beta;  // [width], each optional
  Value y;            // like x
  Value mean, rstd;   // [n*rows]; absent when no gradient is wanted
  int64_t width = 1;
  double epsilon = 1e-5;

  int64_t rows() const { return x.shape.numel() / width; }  // of the whole batch

  static constexpr const char* kName = "layer_norm";
  Values reads() const { return {x, gamma, beta}; }
  Values writes() const { return {y, mean, rstd}; }
  std::string attributes() const { return fmt::format("width={},epsilon={}", width, epsilon); }
  double flops() const { return 8.0 * double(x.shape.numel()); }  // 1 + 3 for the sums, 4 for y
  double bytes() const {
    return size_of(x) + size_of(gamma) + size_of(beta) + size_of(y) + size_of(mean) + size_of(rstd);
  }
};

// With xhat = (x - mean) * rstd and g = dy * gamma, means over each run of `width`:
//   dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
//   dgamma = sum over the rows of dy * xhat;  dbeta = sum over the rows of dy
// Written, not added to.
struct LayerNormGrad {
  Value x, gamma, mean, rstd, dy;  // gamma optional
  Value dx, dgamma, dbeta;         // each optional
  int64_t width = 1;

  int64_t rows() const { return x.shape.numel() / width; }

  static constexpr const char* kName = "layer_norm_grad";
  Values reads() const { return {x, gamma, mean, rstd, dy}; }
  Values writes() const { return {dx, dgamma, dbeta}; }
  std::string attributes() const { return fmt::format("width={}", width); }
  double flops() const { return (dx ? 14.0 : 5.0) * double(x.shape.numel()); }
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

// Group normalisation, and root-mean-square normalisation. x has `groups` runs of `width` numbers a
// sample, and a run has whole channels of `spatial` numbers each. With mean and var over each run:
//   y = (x - mean) * rstd * gamma[channel] + beta[channel],  rstd = 1 / sqrt(var + epsilon)
// Where `centred` is false, mean is 0: then var is the mean of the squares.
struct GroupNorm {
  Value x;            // [n, groups*width]
  Value gamma, beta;  // [channels], each optional
  Value y;            // like x
  Value mean, rstd;   // [n*groups]; absent when no gradient is wanted, mean also when not centred
  int64_t groups = 1, width = 1, spatial = 1;
  double epsilon = 1e-5;
  bool centred = true;

  int64_t runs() const { return x.shape.numel() / width; }  // of the whole batch
  int64_t channels() const { return groups * width / spatial; }

  static constexpr const char* kName = "group_norm";
  Values reads() const { return {x, gamma, beta}; }
  Values writes() const { return {y, mean, rstd}; }
  std::string attributes() const {
    return fmt::format("groups={},width={},spatial={},epsilon={}{}", groups, width, spatial,
                       epsilon, centred ? "" : ",rms");
  }
  double flops() const { return (centred ? 8.0 : 5.0) * double(x.shape.numel()); }
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

// With xhat = (x - mean) * rstd and g = dy * gamma, means over each run:
//   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g) where not centred
//   dgamma = sum over samples and a channel's numbers of dy * xhat;  dbeta = that sum of dy
// Written, not added to.
struct GroupNormGrad {
  Value x, gamma, mean, rstd, dy;  // gamma optional; mean absent when not centred
  Value dx, dgamma, dbeta;         // each optional
  int64_t groups = 1, width = 1, spatial = 1;
  bool centred = true;

  int64_t runs() const { return x.shape.numel() / width; }
  int64_t channels() const { return groups * width / spatial; }

  static constexpr const char* kName = "group_norm_grad";
  Values reads() const { return {x, gamma, mean, rstd, dy}; }
  Values writes() const { return {dx, dgamma, dbeta}; }
  std::string attributes() const {
    return fmt::format("groups={},width={},spatial={}{}", groups, width, spatial,
                       centred ? "" : ",rms");
  }
  double flops() const { return (dx ? 14.0 : 5.0) * double(x.shape.numel()); }
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

// For each channel, with mean and var over the m = n*h*w numbers of the batch's images:
//   y = (x - mean) * rstd * gamma + beta,  rstd = 1 / sqrt(var + epsilon)   (var divides by m)
//   running_mean += momentum * (mean - running_mean)
//   running_var  += momentum * (var * m / (m - 1) - running_var);  batches += 1
// m must be at least 2.
struct BatchNorm {
  Value x;             // [n, in.numel()]
  Value gamma, beta;   // [c], both or neither
  Value running_mean;  // [c], read and written
  Value running_var;   // [c], read and written
  Value batches;       // one int64, read and written
  Value y;             // like x
  Value mean, rstd;    // [c]
  Image in;
  double epsilon = 1e-5, momentum = 0.1;

  int64_t n() const { return x.shape[0]; }
  int64_t count() const { return n() * in.pixels(); }  // m

  static constexpr const char* kName = "batch_norm";
  Values reads() const { return {x, gamma, beta, running_mean, running_var, batches}; }
  Values writes() const { return {y, mean, rstd, running_mean, running_var, batches}; }
  std::string attributes() const {
    return fmt::format("in={},epsilon={},momentum={}", to_string(in), epsilon, momentum);
  }
  double flops() const { return 8.0 * double(x.shape.numel()); }
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

// With xhat = (x - mean) * rstd and sums over the m numbers of each channel:
//   dbeta = sum dy;  dgamma = sum dy * xhat
//   dx = gamma * rstd * (dy - dbeta / m - xhat * dgamma / m)
// Written, not added to.
struct BatchNormGrad {
  Value x, gamma, mean, rstd, dy;  // gamma optional
  Value dx, dgamma, dbeta;         // each optional
  Image in;

  int64_t n() const { return x.shape[0]; }
  int64_t count() const { return n() * in.pixels(); }

  static constexpr const char* kName = "batch_norm_grad";
  Values reads() const { return {x, gamma, mean, rstd, dy}; }
  Values writes() const { return {dx, dgamma, dbeta}; }
  std::string attributes() const { return fmt::format("in={}", to_string(in)); }
  double flops() const { return (dx ? 10.0 : 5.0) * double(x.shape.numel()); }
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

// y = (x - mean) / sqrt(var + epsilon) * gamma + beta, with the running statistics
struct BatchNormInfer {
  Value x, gamma, beta;  // gamma and beta: both or neither
  Value mean, var;       // [c]
  Value y;
  Image in;
  double epsilon = 1e-5;

  int64_t n() const { return x.shape[0]; }

  static constexpr const char* kName = "batch_norm_infer";
  Values reads() const { return {x, gamma, beta, mean, var}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return fmt::format("in={},epsilon={}", to_string(in), epsilon); }
  double flops() const { return 2.0 * double(x.shape.numel()); }  // one multiply-add an element
  double bytes() const { return size_of(reads()) + size_of(writes()); }
};

}  // namespace ridgeline
