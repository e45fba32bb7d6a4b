#include "ridgeline/engine/bench/deepbench_shapes.h"

namespace ridgeline::engine {
namespace {

using Sizes = std::vector<int64_t>;

// Adds products of m x k matrices with n columns, plain and with A transposed.
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

std::vector<DeepbenchConv> deepbench_convs() {
  std::vector<DeepbenchConv> all;
  // Adds `shape` for each batch size, in place of its n.
  const auto add = [&](const Sizes& batches, std::vector<DeepbenchConv> shapes) {
    for (const int64_t n : batches) {
      for (DeepbenchConv shape : shapes) {
        shape.n = n;
        all.push_back(shape);
      }
    }
  };
  add({4, 8, 16, 32}, {{700, 161, 1, 0, 32, 20, 5, 0, 2}, {341, 79, 32, 0, 32, 10, 5, 0, 2}});
  // Text recognition (OCR).
  add({16}, {{480, 48, 1, 0, 16, 3, 3, 1, 1},
             {240, 24, 16, 0, 32, 3, 3, 1, 1},
             {120, 12, 32, 0, 64, 3, 3, 1, 1},
             {60, 6, 64, 0, 128, 3, 3, 1, 1}});
  // Face recognition.
  add({8}, {{108, 108, 3, 0, 64, 3, 3, 1, 2},
            {54, 54, 64, 0, 64, 3, 3, 1, 1},
            {27, 27, 128, 0, 128, 3, 3, 1, 1},
            {14, 14, 128, 0, 256, 3, 3, 1, 1},
            {7, 7, 256, 0, 512, 3, 3, 1, 1}});
  // 3x3 filters in a row, with twice as many each time the image is halved.
  add({8, 16}, {{224, 224, 3, 0, 64, 3, 3, 1, 1},
                {112, 112, 64, 0, 128, 3, 3, 1, 1},
                {56, 56, 128, 0, 256, 3, 3, 1, 1},
                {28, 28, 256, 0, 512, 3, 3, 1, 1},
                {14, 14, 512, 0, 512, 3, 3, 1, 1},
                {7, 7, 512, 0, 512, 3, 3, 1, 1}});
  // Several filter sizes in parallel.
  add({16}, {{224, 224, 3, 0, 64, 7, 7, 3, 2},
             {28, 28, 192, 0, 32, 5, 5, 2, 1},
             {28, 28, 192, 0, 64, 1, 1, 0, 1},
             {14, 14, 512, 0, 48, 5, 5, 2, 1},
             {14, 14, 512, 0, 192, 1, 1, 0, 1},
             {7, 7, 832, 0, 256, 1, 1, 0, 1},
             {7, 7, 832, 0, 128, 5, 5, 2, 1}});
  // Residual nets, in their first and their later form.
  add({8, 16}, {{56, 56, 64, 0, 64, 3, 3, 1, 1},
                {56, 56, 64, 0, 256, 1, 1, 0, 2},
                {28, 28, 128, 0, 128, 3, 3, 1, 1},
                {28, 28, 128, 0, 512, 1, 1, 0, 2},
                {14, 14, 256, 0, 256, 1, 1, 0, 1},
                {14, 14, 256, 0, 256, 3, 3, 1, 1},
                {14, 14, 256, 0, 1024, 1, 1, 0, 2},
                {7, 7, 512, 0, 512, 1, 1, 0, 1},
                {7, 7, 2048, 0, 512, 1, 1, 3, 2}});
  // Speech recognition.
  add({16}, {{700, 161, 1, 0, 64, 5, 5, 1, 2},
             {350, 80, 64, 0, 64, 3, 3, 1, 1},
             {350, 80, 64, 0, 128, 5, 5, 1, 2},
             {175, 40, 128, 0, 128, 3, 3, 1, 1},
             {175, 40, 128, 0, 256, 5, 5, 1, 2},
             {84, 20, 256, 0, 256, 3, 3, 1, 1},
             {84, 20, 256, 0, 512, 5, 5, 1, 2},
             {42, 10, 512, 0, 512, 3, 3, 1, 1}});
  add({8, 16}, {{112, 112, 64, 0, 64, 1, 1, 0, 1},
                {56, 56, 64, 0, 256, 1, 1, 0, 1},
                {56, 56, 256, 0, 64, 1, 1, 0, 1},
                {56, 56, 256, 0, 128, 1, 1, 0, 2},
                {28, 28, 128, 0, 512, 1, 1, 0, 1},
                {28, 28, 512, 0, 128, 1, 1, 0, 1},
                {28, 28, 512, 0, 256, 1, 1, 0, 2},
                {14, 14, 256, 0, 1024, 1, 1, 0, 1},  // published twice, measured once
                {28, 28, 512, 0, 1024, 1, 1, 0, 2},
                {14, 14, 1024, 0, 256, 1, 1, 0, 1},
                {14, 14, 1024, 0, 512, 1, 1, 0, 2},
                {7, 7, 512, 0, 2048, 1, 1, 0, 1},
                {14, 14, 1024, 0, 2048, 1, 1, 0, 2},
                {7, 7, 2048, 0, 512, 1, 1, 0, 1}});
  return all;
}

std::vector<int64_t> deepbench_all_reduces() {
  return {100'000, 3'097'600, 4'194'304, 6'553'600, 16'777'217, 38'360'000, 64'500'000};
}

}  // namespace ridgeline::engine
