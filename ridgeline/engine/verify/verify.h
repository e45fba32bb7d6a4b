#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/engine/weights.h"

namespace ridgeline::engine {

struct VerifyOptions {
  std::filesystem::path data;  // --data
  int64_t steps = 0;           // 0: one epoch
  std::vector<Precision> precisions{Precision::fp64, Precision::fp32};
  double reference_seconds = 10;  // the reference kernels make as many steps as fit in about this
  std::shared_ptr<const data::DataSet> set;  // already loaded; else by config.data.name
  Communicator* ranks = nullptr;             // null: alone
  // The result of ranks that were launched separately: a file of write_part(). Empty: none.
  std::filesystem::path part;
  int part_ranks = 0;
};

enum class Verdict { pass, amplified, fail };
const char* name(Verdict verdict);

// The CPU runs for a precision.
struct CpuSide {
  Precision base = Precision::fp32;  // of the base run, with which all others are compared
  bool reference_kernels = true;     // also compare the reference kernels with it
};
// tf32 and fp32x3 exist only on a GPU. Their runs are compared with the CPU's in fp32, the type
// that both of them store, within bounds for the precision itself. `others`: a GPU or other ranks
// run it. Throws Error(usage) if there is nothing to compare.
CpuSide cpu_side(Precision precision, bool others);

// The distance of a run from the base run: CPU, fast kernels, one rank.
struct Comparison {
  struct Tensor {
    std::string name;
    double max_norm = 0, two_norm = 0;  // of the difference, over those of the base
    double bound = 0;                   // of both
    // The norms of a base run whose initial weights were off by one rounding.
    double control_max = 0, control = 0;
    Verdict verdict = Verdict::pass;
  };
  std::string what;  // "cpu reference", "cuda:0", "4 ranks"
  Precision precision = Precision::fp32, base = Precision::fp32;
  int64_t steps = 0;
  std::vector<Tensor> tensors;
  double worst_loss = 0;       // relative, over the steps
  std::vector<double> losses;  // relative, of each step
  double loss_bound = 0;
  Verdict verdict = Verdict::pass;  // the worst of all
};

struct VerifyReport {
  int64_t steps = 0, batch = 0;
  std::string data;
  std::vector<Comparison> comparisons;
  std::vector<std::string> notes;  // what was left out, and why
  // fp32 base against fp64 base, if both were run: for information.
  double between_precisions = 0;

  bool good() const;
};

// Trains with the same seed on all devices and compares. Collective: the ranks make their run
// together, the root does the rest. Other ranks get an empty report.
VerifyReport verify(const Config& config, const VerifyOptions& options);

// Makes only the ranks' run, which the root writes for a verify() elsewhere. Collective.
void write_part(const Config& config, const VerifyOptions& options,
                const std::filesystem::path& file);

// Runs `arguments` under `mpirun -n ranks`, with both output streams on stderr. Throws Error(comm)
// if there is no mpirun or it fails.
void launch_ranks(int ranks, const std::vector<std::string>& arguments);

std::string to_text(const VerifyReport& report);
std::string to_json_text(const VerifyReport& report);

}  // namespace ridgeline::engine
