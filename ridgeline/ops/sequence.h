#pragma once

#include <fmt/core.h>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// Ops around recurrent layers: embeddings, selection of a timestep, carried state.

// y[i, :] = w[token[i], :]
struct Embedding {
  Value token;  // [...] int32 in [0, rows of w)
  Value w;      // [vocabulary, width]
  Value y;      // [..., width]

  int64_t count() const { return token.shape.numel(); }
  int64_t width() const { return w.shape[1]; }

  static constexpr const char* kName = "embedding";
  Values reads() const { return {token, w}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return {}; }
  double flops() const { return 0; }
  // Only the rows that tokens refer to are read.
  double bytes() const { return size_of(token) + 2 * size_of(y); }
};

// dw[v, :] = sum over the i with token[i] == v of dy[i, :], i ascending; zero where there is none.
// Written, not added to.
struct EmbeddingGrad {
  Value token, dy;
  Value dw;

  int64_t count() const { return token.shape.numel(); }
  int64_t width() const { return dw.shape[1]; }

  static constexpr const char* kName = "embedding_grad";
  Values reads() const { return {token, dy}; }
  Values writes() const { return {dw}; }
  std::string attributes() const { return {}; }
  double flops() const { return double(dy.shape.numel()); }
  double bytes() const { return size_of(token) + size_of(dy) + size_of(dw); }
};

// y[b, :] = x[b, at, :]; a negative `at` counts from the end of the sample, -1 being its last
// timestep, but it stops at the first timestep.
struct SelectTimestep {
  int64_t steps = 1;
  int64_t at = -1;
  Value x;        // [B, steps, features]
  Value lengths;  // optional, [B] int32: where each sample ends
  Value y;        // [B, features]

  int64_t batch() const { return y.shape[0]; }
  int64_t features() const { return y.shape.numel() / y.shape[0]; }

  static constexpr const char* kName = "select_timestep";
  Values reads() const { return {x, lengths}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return fmt::format("T={},at={}", steps, at); }
  double flops() const { return 0; }
  double bytes() const { return 2 * size_of(y) + size_of(lengths); }
};

// dx[b, t, :] = t is the timestep that was selected ? dy[b, :] : 0
struct SelectTimestepGrad {
  int64_t steps = 1;
  int64_t at = -1;
  Value dy, lengths;
  Value dx;

  int64_t batch() const { return dy.shape[0]; }
  int64_t features() const { return dy.shape.numel() / dy.shape[0]; }

  static constexpr const char* kName = "select_timestep_grad";
  Values reads() const { return {dy, lengths}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return fmt::format("T={},at={}", steps, at); }
  double flops() const { return 0; }
  double bytes() const { return size_of(dy) + size_of(lengths) + size_of(dx); }
};

// to = from. It carries the state from one step to the next, at the end of the step because the
// backward ops still read the initial state; it also copies values that inference returns
// unchanged.
struct Copy {
  Value from, to;

  static constexpr const char* kName = "copy";
  Values reads() const { return {from}; }
  Values writes() const { return {to}; }
  std::string attributes() const { return {}; }
  double flops() const { return 0; }
  double bytes() const { return size_of(from) + size_of(to); }
};

}  // namespace ridgeline
