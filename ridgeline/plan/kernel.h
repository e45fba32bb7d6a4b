#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/core/precision.h"
#include "ridgeline/core/runtime.h"
#include "ridgeline/plan/program.h"

namespace ridgeline {

// A kernel of the table: one way to compute a span of a program. To add one, write
//   covers()   looks at the ops from a position on and returns how many it would compute (0: none,
//   and
//              why), which values of the span it leaves unwritten, and the formats it reads and
//              writes;
//   prepare()  binds it to memory and returns a Step whose run() is straight code: it allocates
//              nothing, decides nothing and throws nothing.
// and add it to its folder's list (cpu/kernels.cpp, cuda/kernels.cpp). The table walk then tests
// it, and benchmarks, planner and profiler know it by its name.

// The layout of a value in memory; "" is plain, which is dense row-major in its own dtype. Kernels
// choose the names of other formats ("onednn:nChw16c", "transposed"); the planner only compares
// them.
using Format = std::string;

struct FormatUse {
  ValueId value = -1;
  Format format;
  size_t bytes = 0;  // memory it takes in this format
};

// A kernel's offer for the ops at a position.
struct Cover {
  size_t ops = 0;                 // 0: does not apply
  std::string reason;             // then: why not
  std::vector<ValueId> skips;     // temporaries written and read inside that never reach memory
  std::vector<FormatUse> reads;   // values wanted in a format that is not plain
  std::vector<FormatUse> writes;  // values given in a format that is not plain
  size_t workspace = 0;           // bytes of scratch while the step runs

  static Cover no(std::string why) {
    Cover cover;
    cover.reason = std::move(why);
    return cover;
  }
  static Cover of(size_t ops) {
    Cover cover;
    cover.ops = ops;
    return cover;
  }
};

// The ops from `begin` on, as covers() sees them.
struct RemainingOps {
  const Program& program;
  size_t begin;
  const Runtime& runtime;
  size_t* looks = nullptr;  // if set: counts the ops that are looked at

  size_t size() const { return program.ops.size() - begin; }
  // Returns the op `offset` places on if it is a T; else, or past the end, null.
  template <typename T>
  const T* get(size_t offset) const {
    if (looks != nullptr) ++*looks;
    return offset < size() ? std::get_if<T>(&program.ops[begin + offset]) : nullptr;
  }
  // Returns true if the value is a temporary that no op from `begin + count` on reads.
  bool dead_after(const Value& value, size_t count) const;
};

// One prepared kernel. run() makes one pass over the span.
class Step {
 public:
  virtual ~Step() = default;
  virtual void run() = 0;
  // Makes `count` passes; called only if the step covers a whole program (it then contains the
  // Tick).
  virtual void run_many(int64_t count) {
    for (int64_t i = 0; i < count; ++i) run();
  }
  // The compiled variant that it launches ("wgmma_split4_64x32_7stages"); "" if there is only one.
  virtual std::string variant() const { return {}; }
};

// Makes a Step from a callable; `variant` as in Step.
template <typename F>
std::unique_ptr<Step> make_step(F f, std::string variant = {}) {
  struct Call final : Step {
    Call(F g, std::string v) : f(std::move(g)), name(std::move(v)) {}
    void run() override { f(); }
    std::string variant() const override { return name; }
    F f;
    std::string name;
  };
  return std::make_unique<Call>(std::move(f), std::move(variant));
}

// The memory that a kernel is bound to.
class Binding {
 public:
  virtual ~Binding() = default;
  virtual Runtime& runtime() const = 0;
  // Returns the value's memory in the format this kernel asked for (plain unless its Cover says
  // otherwise). The data is null for an absent value and for one that the kernel skips.
  virtual Tensor read(const Value& value) const = 0;
  virtual Tensor write(const Value& value) const = 0;
  virtual std::byte* workspace() const = 0;
  // For a conversion: its value, and the formats in which read() and write() give it.
  virtual Value converted() const { return {}; }
  virtual Format from() const { return {}; }
  virtual Format to() const { return {}; }
};

struct Span {
  const Program& program;
  size_t begin, end;

  size_t size() const { return end - begin; }
  const Op& op(size_t offset) const { return program.ops[begin + offset]; }
  template <typename T>
  const T& get(size_t offset) const {
    return std::get<T>(op(offset));
  }
};

// The library that a kernel calls. A build, or a machine, may lack it.
enum class Library : uint8_t { none, onednn, cublaslt, cudnn, nccl, mpi, nvrtc };
std::string_view name(Library library);  // "" for none

// Facts about a kernel that hold wherever it applies. The planner, the table walk of the tests and
// `ridgeline info --list-kernels` read them here.
struct Traits {
  // The precisions that it computes in. covers() need not check those that all its values share.
  Precisions precisions = kEveryPrecision;
  // The least compute capability of its GPU, times ten; or the exact one, if it uses instructions
  // that later GPUs lack (wgmma).
  int least_arch = 0;
  bool only_arch = false;
  Library library = Library::none;
  bool vendor = false;  // it is the library's own kernel, to compare ours with
  // It is a library's alternative proposal, which the library may not have.
  bool further_proposal = false;
  // It shows a step on the way to a faster kernel. No plan takes it unless it is asked for by name.
  bool demonstration = false;
  bool deterministic = true;
  bool fallback = false;  // a reference: considered only where nothing else covers
  // Its steps do what a graph cannot hold (they wait for the GPU, and call libraries that call it):
  // a plan ends one graph before them and begins another after them.
  bool between_graphs = false;
  // It may run in parallel with others in a graph, because it uses only memory that the program
  // names, and its workspace.
  bool concurrent = false;
  // covers() takes a tenth of a second or more, because it builds the library's plan to answer.
  bool slow_to_query = false;
  // Its messages to other ranks pass through host memory.
  bool through_host = false;
  // It sums products in fp16, as Program::accumulate may ask.
  bool fp16_sums = false;

  // Returns whether it may compute something in a run: runs in half types keep some values in fp32.
  constexpr bool takes(Precision precision) const {
    return precisions.has(precision) || (is_half(precision) && precisions.has(Precision::fp32));
  }
  constexpr bool runs_on(int architecture) const {
    return only_arch ? architecture == least_arch : architecture >= least_arch;
  }
};

struct Kernel {
  std::string name;  // "cpu.linear.simd": target.what.how, unique
  DeviceKind target = DeviceKind::cpu;
  std::function<Cover(const RemainingOps&)> covers;
  std::function<std::unique_ptr<Step>(const Span&, const Binding&)> prepare;
  Traits traits{};

  // A conversion is a kernel that covers no ops: instead of `covers` it sets `converts`, which says
  // whether it converts `value` from one format into another; prepare() is then called with an
  // empty span and a binding whose read() and write() give converted() in from() and to().
  std::function<bool(const Value& value, const Format& from, const Format& to)> converts{};
};

using KernelTable = std::vector<Kernel>;  // in the fixed order of preference; references last

// Returns the table with these precisions in the traits of all its kernels.
KernelTable computing_in(Precisions precisions, KernelTable table);

// Returns why a kernel's target and traits exclude it from a program on a device; "" if they do
// not. All such reasons begin with kForOthers.
inline constexpr const char* kForOthers = "for ";
std::string refuse(const Kernel& kernel, const Program& program, const Runtime& runtime);

// Calls covers() unless refuse() excludes the kernel.
Cover offer(const Kernel& kernel, const RemainingOps& rest);

// The GPUs that a kernel runs on: "any", "sm_80 and later", "sm_90a".
std::string gpus_of(const Traits& traits);

// The other traits, besides precisions and architecture: "calls cuBLASLt, concurrent".
std::string describe(const Traits& traits);

}  // namespace ridgeline
