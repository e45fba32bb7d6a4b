// Recurrent layers with more hidden units than the table walk's, by every kernel that takes them.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ridgeline/cuda/kernels.h"
#include "tests/cuda/gpu.h"
#include "tests/support/oracle.h"
#include "tests/support/walk.h"

namespace ridgeline::test {
namespace {

class CudaRecurrent : public GpuTest {
 protected:
  void walk_wide(Precision precision) {
    KernelTable table = cuda::kernels();
    std::erase_if(table,
                  [](const Kernel& kernel) { return kernel.name.find("rnn") == kernel.name.npos; });
    Exercised exercised;
    for (Case& c : wide_recurrent_cases(storage(precision))) {
      if (!wanted(c)) continue;
      c.program.precision = precision;
      walk(c, table, gpu(), exercised);
    }
    if (!all_wanted()) return;
    EXPECT_GT(exercised["cuda.rnn.plain"], 0);
    EXPECT_GT(exercised["cuda.rnn_grad.plain"], 0);
  }
};

TEST_F(CudaRecurrent, Fp64KernelsOfWideLayersAgreeWithTheOracle) { walk_wide(Precision::fp64); }
TEST_F(CudaRecurrent, Fp32KernelsOfWideLayersAgreeWithTheOracle) { walk_wide(Precision::fp32); }
TEST_F(CudaRecurrent, Bf16KernelsOfWideLayersAgreeWithTheOracle) { walk_wide(Precision::bf16); }
TEST_F(CudaRecurrent, Fp16KernelsOfWideLayersAgreeWithTheOracle) { walk_wide(Precision::fp16); }

// |got - want| / |want|
double distance(const std::vector<double>& got, const std::vector<double>& want) {
  double off = 0, size = 1e-300;
  for (size_t i = 0; i < want.size(); ++i) {
    off += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(off / size);
}

// The blocks of a streamed pass have 16, 20, 32 or 40 units of an LSTM, as many as a layer needs to
// fit, and 24 of a GRU. The double-precision oracle is fast enough for 20 units with 64 samples and
// with two groups of 128, and for 24 units with 32 and 64 samples.
class CudaWeightStreamingKernel : public CudaRecurrent {
 protected:
  void SetUp() override {
    CudaRecurrent::SetUp();
    if (IsSkipped()) return;
    if (gpu().architecture() != 90) GTEST_SKIP() << "the passes are for sm_90";
  }
  static Kernel kernel(const std::string& name) {
    const KernelTable table = cuda::kernels();
    return *std::ranges::find(table, name, &Kernel::name);
  }
  static Case in_bf16(Case c) {
    c.program.precision = Precision::bf16;
    return c;
  }
  static Case large_case(CellKind cell, int64_t steps, int64_t batch, int64_t hidden) {
    return in_bf16(large_rnn_case(DType::bf16, cell, steps, batch, hidden));
  }
};

TEST_F(CudaWeightStreamingKernel, LargeLayersAgreeWithTheOracle) {
  Exercised exercised;
  for (const Case& c :
       {large_case(CellKind::lstm, 2, 2, 2116), large_case(CellKind::lstm, 1, 129, 1060),
        large_case(CellKind::gru, 2, 2, 2116), large_case(CellKind::gru, 1, 33, 1060)}) {
    walk(c, {kernel("cuda.rnn.persistent_weight_streaming")}, gpu(), exercised);
  }
  EXPECT_EQ(exercised["cuda.rnn.persistent_weight_streaming"], 4);
}

// Passes whose weights fill registers and shared memory: one panel of samples, and three panels
// with more places than one warpgroup has.
using CudaLargeKernel = CudaWeightStreamingKernel;
TEST_F(CudaLargeKernel, GrusThatFillTheChipAgreeWithTheOracle) {
  const char *forward = "cuda.rnn.persistent_large", *backward = "cuda.rnn_grad.persistent_large";
  Exercised exercised;
  for (const auto& [steps, batch, hidden] :
       {std::array<int64_t, 3>{2, 3, 2560}, std::array<int64_t, 3>{2, 33, 1301}}) {
    const Case c =
        in_bf16(large_rnn_training_case(DType::bf16, CellKind::gru, steps, batch, hidden));
    walk(c, {kernel(forward), kernel(backward)}, gpu(), exercised);
  }
  EXPECT_EQ(exercised[forward], 2);
  EXPECT_EQ(exercised[backward], 2);
}

// Larger layers are compared with the loop over the timesteps, which has been compared with the
// oracle. Both round the state once per timestep; sums in another order round few of its values to
// a neighbour, while a product that misses sixteen of its places deviates by 2^-9.
TEST_F(CudaWeightStreamingKernel, TheLargestLayersAgreeWithTheLoop) {
  for (const Case& c :
       {large_case(CellKind::lstm, 3, 130, 1324), large_case(CellKind::lstm, 3, 129, 2116),
        large_case(CellKind::gru, 3, 129, 2816)}) {
    const Arrays start = c.inputs();
    std::vector<KernelResult> results;
    for (const char* name : {"cuda.rnn.persistent_weight_streaming", "cuda.rnn.combined"}) {
      const Kernel one = kernel(name);
      const Cover cover = one.covers({c.program, 0, gpu()});
      ASSERT_EQ(cover.ops, 1u) << name << ": " << cover.reason;
      results.push_back(run_kernel(one, cover, c.program, 0, start, gpu(), {}));
      EXPECT_TRUE(results.back().overruns.empty()) << name << ' ' << c.name;
    }
    for (const Value& value : writes(c.program.ops[0])) {
      if (!value) continue;
      EXPECT_LE(distance(results[0].arrays.doubles(value.id), results[1].arrays.doubles(value.id)),
                unit_roundoff(DType::bf16) / 4)
          << c.name << ' ' << c.program.info(value.id).name;
    }
  }
}

// Peers round both products of a timestep, its state and its gate gradients to the half type, each
// by u of its size, and pass the error of a timestep on to the next.
TEST_F(CudaRecurrent, PeersInHalvesAgreeInTheNorm) {
  int compared = 0;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (Case& c : recurrent_cases(dtype)) {
      c.program.precision = dtype == DType::bf16 ? Precision::bf16 : Precision::fp16;
      const Arrays start = c.inputs();
      const RnnShape& shape = std::get<Rnn>(c.program.ops[0]).shape;
      // One number is no norm: the slope 1 - h^2 of a single unit may lose all its digits.
      if (shape.hidden == 1) continue;
      const double steps = double(shape.steps);
      for (const Kernel& kernel : cuda::peer_kernels()) {
        const Cover cover = kernel.covers({c.program, 0, gpu()});
        if (cover.ops == 0) continue;
        Arrays want = start.widened();
        Reference().run(c.program, 0, cover.ops, want);
        const KernelResult got = run_kernel(kernel, cover, c.program, 0, start, gpu(), {});
        EXPECT_TRUE(got.overruns.empty()) << kernel.name << ' ' << c.name;
        for (size_t op = 0; op < cover.ops; ++op) {
          for (const Value& value : writes(c.program.ops[op])) {
            if (!value || std::ranges::count(cover.skips, value.id) > 0) continue;
            EXPECT_LE(distance(got.arrays.doubles(value.id), want.doubles(value.id)),
                      4 * (steps + 2) * unit_roundoff(dtype))
                << kernel.name << ' ' << c.name << ' ' << c.program.info(value.id).name;
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_TRUE(compared > 0 || cuda::peer_kernels().empty());
}

}  // namespace
}  // namespace ridgeline::test
