// Checks the persistent recurrent passes by themselves against a reference in double on the GPU,
// then times them in a graph, in us per timestep without the large products before and after.
//   rnn_bench [bf16|fp16|fp32] [check|time|small] [CELL:HIDDEN:BATCH[:STEPS[:LAYERS]]]...
// small: only checks of small layers, for compute-sanitizer. Shapes (cell lstm, gru or rnn): only
// those, with 128 steps by default, one layer or a stack.

#include <cstdio>
#include <cstring>
#include <vector>

#include "bench/gpu/rnn_stack.cuh"

using namespace ridgeline::cuda;
using namespace ridgeline::cuda::recurrent;

namespace {

template <typename T>
void check_small() {
  for (const Problem& p : {Problem{40, 5, 3, false, true}, Problem{129, 33, 4, true, true}}) {
    Run<Cell::lstm, T>{p}.run(true);
    Run<Cell::gru, T>{p}.run(true);
    Run<Cell::rnn_tanh, T>{p}.run(true);
  }
  Run<Cell::lstm, T>{{64, 800, 2}}.run(true);  // several panels a block
  run_stacks<Cell::lstm, T>({40, 21, 3, false, true}, 3, true);
}

template <typename T>
void check_all() {
  const Problem checked[] = {{1024, 16, 12},
                             {512, 16, 9, true, true},
                             {250, 5, 7, false, true},
                             {129, 33, 6, true, true},
                             {1024, 70, 5},
                             {8, 1, 3}};
  for (const Problem& p : checked) {
    Run<Cell::lstm, T>{p}.run(true);
    Run<Cell::gru, T>{p}.run(true);
    Run<Cell::rnn_tanh, T>{p}.run(true);
  }
  Run<Cell::rnn_tanh, T>{{1760, 16, 10, true, true}}.run(true);
  run_stacks<Cell::lstm, T>({512, 64, 7}, 4, true);
  run_stacks<Cell::lstm, T>({129, 21, 6, false, true}, 3, true);
  run_stacks<Cell::rnn_tanh, T>({250, 33, 5, false, true}, 2, true);
  if (sizeof(T) == 4) return;
  Run<Cell::lstm, T>{{256, 300, 4, false, true}}.run(true);
  Run<Cell::lstm, T>{{1760, 20, 6}}.run(true);
  Run<Cell::lstm, T>{{2560, 5, 4}}.run(true);
  Run<Cell::lstm, T>{{1760, 127, 4, true, true}}.run(true);
  Run<Cell::lstm, T>{{1760, 190, 3}}.run(true);
  Run<Cell::lstm, T>{{2560, 100, 3}}.run(true);
  Run<Cell::lstm, T>{{2560, 256, 3}}.run(true);
  Run<Cell::gru, T>{{2560, 33, 5, true, true}}.run(true);
  Run<Cell::rnn_tanh, T>{{2560, 17, 5}}.run(true);
}

template <Cell kCell, typename T>
void time_one(int hidden, int batch) {
  Run<kCell, T>{{hidden, batch, 128}}.run(false);
}

template <typename T>
void time_large() {
  for (const int hidden : {512, 1024}) {
    for (const int batch : {128, 256}) time_one<Cell::lstm, T>(hidden, batch);
  }
  for (const int batch : {1, 16, 64, 256}) {
    time_one<Cell::lstm, T>(1760, batch);
    time_one<Cell::gru, T>(2560, batch);
    time_one<Cell::rnn_tanh, T>(1760, batch);
  }
  time_one<Cell::lstm, T>(2560, 16);
  time_one<Cell::rnn_tanh, T>(2560, 16);
}

template <typename T>
void time_all() {
  run_stacks<Cell::lstm, T>({512, 64, 100}, 4, false);
  run_stacks<Cell::lstm, T>({512, 16, 100}, 4, false);
  for (const int hidden : {256, 512, 1024}) {
    for (const int batch : {1, 16, 64}) {
      time_one<Cell::lstm, T>(hidden, batch);
    }
  }
  time_one<Cell::gru, T>(1024, 16);
  if constexpr (sizeof(T) == 2) time_large<T>();
}

// A shape given on the command line.
struct Asked {
  char cell = 'l';  // the first letter of its name
  Problem problem;
  int layers = 1;
};

template <typename T>
void run_asked(const Asked& asked, bool checks) {
  const auto run = [&]<Cell kCell>() {
    if (asked.layers > 1) return run_stacks<kCell, T>(asked.problem, asked.layers, checks);
    Run<kCell, T>{asked.problem}.run(checks);
  };
  if (asked.cell == 'l') run.template operator()<Cell::lstm>();
  if (asked.cell == 'g') run.template operator()<Cell::gru>();
  if (asked.cell == 'r') run.template operator()<Cell::rnn_tanh>();
}

template <typename T>
void run_all(const std::vector<Asked>& shapes, bool checks, bool times, bool small) {
  for (const Asked& asked : shapes) {
    if (checks) run_asked<T>(asked, true);
    if (times) run_asked<T>(asked, false);
  }
  if (!shapes.empty()) return;
  if (small) return check_small<T>();
  if (checks) check_all<T>();
  if (times) time_all<T>();
}

}  // namespace

int main(int argc, char** argv) {
  const auto asked = [&](const char* what) {
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], what) == 0) return true;
    }
    return false;
  };
  std::vector<Asked> shapes;
  for (int i = 1; i < argc; ++i) {
    const char* colon = std::strchr(argv[i], ':');
    if (colon == nullptr) continue;
    Asked shape{argv[i][0], {0, 0, 128}};
    Problem& p = shape.problem;
    if (std::sscanf(colon, ":%d:%d:%d:%d", &p.hidden, &p.batch, &p.steps, &shape.layers) < 2) {
      return std::fprintf(stderr, "%s: CELL:HIDDEN:BATCH[:STEPS[:LAYERS]]\n", argv[i]), 2;
    }
    shapes.push_back(shape);
  }
  const bool checks = !asked("time"), times = !asked("check"), small = asked("small");
  if (asked("fp16")) {
    run_all<__half>(shapes, checks, times, small);
  } else if (asked("fp32")) {
    run_all<float>(shapes, checks, times, small);
  } else {
    run_all<__nv_bfloat16>(shapes, checks, times, small);
  }
  return 0;
}
