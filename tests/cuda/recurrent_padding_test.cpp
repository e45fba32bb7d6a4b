// Values after a sample's last timestep never enter a result, in every kernel of recurrent layers
// that takes lengths.
#include <gtest/gtest.h>

#include "ridgeline/cuda/kernels.h"
#include "tests/cuda/gpu.h"
#include "tests/support/padding.h"

namespace ridgeline::test {
namespace {

class CudaPadding : public GpuTest {
 protected:
  CudaPadding() {
    std::erase_if(table_,
                  [](const Kernel& kernel) { return kernel.name.find("rnn") == kernel.name.npos; });
  }

  void expect_none(Case c) {
    if (!has_padding(c) || !wanted(c)) return;
    c.program.precision = precision_;
    expect_no_padding(c, table_, gpu(), exercised_);
  }
  void walk_cases(Precision precision) {
    precision_ = precision;
    for (const auto& cases : {recurrent_op_cases, recurrent_cases, wide_recurrent_cases}) {
      for (const Case& c : cases(storage(precision))) expect_none(c);
    }
    if (!all_wanted()) return;
    for (const char* kernel : {"cuda.rnn.plain", "cuda.rnn_grad.plain", "cuda.rnn_grad_w.plain"}) {
      EXPECT_GT(exercised_[kernel], 0) << kernel;
    }
  }

  KernelTable table_ = cuda::kernels();
  Precision precision_ = Precision::fp32;
  Exercised exercised_;
};

// tf32 and fp16 use the same code paths as fp32 and bf16.
TEST_F(CudaPadding, NeverEntersAResultInFp64) { walk_cases(Precision::fp64); }
TEST_F(CudaPadding, NeverEntersAResultInFp32) { walk_cases(Precision::fp32); }

// For half types also the passes of layers that fill the chip or do not fit on it: on a Hopper GPU
// every kernel takes lengths except cuDNN's and those of whole classifiers.
TEST_F(CudaPadding, NeverEntersAResultInBf16) {
  walk_cases(Precision::bf16);
  expect_none(large_rnn_training_case(DType::bf16, CellKind::gru, 2, 33, 1301));
  expect_none(large_rnn_case(DType::bf16, CellKind::gru, 2, 33, 1060));
  expect_none(large_rnn_case(DType::bf16, CellKind::lstm, 2, 130, 1060));
  if (gpu().architecture() != 90 || !all_wanted()) return;
  for (const Kernel& kernel : table_) {
    if (kernel.traits.further_proposal || kernel.traits.library == Library::cudnn) continue;
    if (kernel.name.find("rnn_classifier") != kernel.name.npos) continue;
    EXPECT_GT(exercised_[kernel.name], 0) << kernel.name << ": no case exercises this kernel";
  }
}

}  // namespace
}  // namespace ridgeline::test
