#include "ridgeline/engine/deepbench.h"

namespace ridgeline::engine {
namespace {

using Sizes = std::vector<int64_t>;

// Matrices of m x k times n columns, plain and with A transposed.
void add_both(std::vector<GemmShape>& shapes, int64_t m, int64_t k, const Sizes& columns) {
  for (const GemmOp op : {GemmOp::nn, GemmOp::tn}) {
    for (const int64_t n : columns) shapes.push_back({op, m, n, k});
  }
}

}  // namespace

std::vector<GemmShape> deepbench_gemms() {
  std::vector<GemmShape> shapes;
  for (const int64_t hidden : {1760, 2048, 2560, 4096}) {  // plain recurrent layers
    add_both(shapes, hidden, hidden, {16, 32, 64, 128, 7000});
    shapes.push_back({GemmOp::nt, hidden, 7133, hidden});
    add_both(shapes, 5124, hidden, {9124});
    add_both(shapes, 35, hidden, {8457});
  }
  for (const int64_t hidden : {1024, 1536, 2048, 2560, 2816}) {  // the three gates of a GRU
    const bool first = hidden == 1024 || hidden == 2560;
    add_both(shapes, 3 * hidden, hidden, first ? Sizes{16, 32, 64, 128} : Sizes{16, 32});
    add_both(shapes, 3 * hidden, hidden, {24000, 48000});
  }
  shapes.push_back({GemmOp::nt, 3072, 7435, 1024});
  shapes.push_back({GemmOp::nt, 7680, 5481, 2560});
  for (const int64_t out : {512, 1024}) {  // attention and speaker identification
    add_both(shapes, out, 500000, {8, 16});
    for (const int64_t in : {1536, 2048, 2560, 2816}) add_both(shapes, out, in, {24000, 48000});
    for (const int64_t n : {16, 32}) {
      shapes.push_back({GemmOp::nn, out, n, 512});
      shapes.push_back({GemmOp::nt, out, n, 512});
    }
  }
  add_both(shapes, 1024, 512, {700});
  return shapes;
}

std::vector<DeepbenchRnn> deepbench_rnns() {
  std::vector<DeepbenchRnn> all;
  const auto add = [&](const char* cell, const Sizes& hidden, const Sizes& batch,
                       const Sizes& steps) {
    for (const int64_t h : hidden) {
      for (const int64_t b : batch) {
        for (const int64_t t : steps) all.push_back({cell, h, b, t});
      }
    }
  };
  add("rnn-relu", {1760, 2048, 2560}, {16, 32, 64, 128}, {50});
  add("lstm", {512, 1024, 2048, 4096}, {16, 32, 64, 128}, {25});
  add("lstm", {1536}, {8, 16, 32}, {50});
  add("lstm", {256}, {16, 32, 64}, {150});
  add("gru", {2816}, {32}, {750, 375, 187});
  add("gru", {2048, 1536, 2560}, {32}, {1500, 750, 375, 187});
  add("gru", {512}, {32}, {1});
  add("gru", {1024}, {32, 64}, {1500});
  return all;
}

}  // namespace ridgeline::engine
