#include "ridgeline/cpu/simd/net_infer_kernels.h"

#include <algorithm>
#include <unordered_set>

#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/net_infer_step.h"

// A net for a few samples as one kernel: all layers in one call, with activations in the
// first-level cache and weights packed in prepare. The calling thread computes alone, or all
// threads divide the outputs of each linear layer and the units of each recurrent one, so that each
// reads a part of the weights from its own cache; between timesteps they meet at a barrier. It
// covers the longest span of ops that it supports, so that in a net with other layers it computes
// at least the last ones.
namespace ridgeline::cpu::simd {
namespace {

// With more samples, a product that keeps them in registers is better.
constexpr int64_t kMostSamples = 8;
// Above this many bytes of weights, several threads that each read a part are faster.
constexpr double kMuchWeight = 8 << 20;

// Returns why an op is not covered; empty if it is.
struct OpCheck {
  const Program& program;

  static bool all(std::initializer_list<Value> values, DType dtype = DType::fp32) {
    return std::ranges::all_of(values,
                               [&](const Value& each) { return !each || each.dtype == dtype; });
  }
  // The weights are read only once, in prepare.
  bool fixed(std::initializer_list<Value> values) const {
    return std::ranges::all_of(values, [&](const Value& each) {
      return !each || program.info(each.id).role == Role::param ||
             program.info(each.id).role == Role::copy;
    });
  }
  static std::string no(bool fits, const char* why) { return fits ? "" : why; }

  std::string operator()(const Gather& op) const {
    const bool floats =
        op.y.dtype == DType::fp32 && (op.set.dtype == DType::fp32 || op.set.dtype == DType::uint8);
    const bool codes = op.y.dtype == DType::int32 &&
                       (op.set.dtype == DType::int32 || op.set.dtype == DType::uint8);
    return no((floats || codes) && op.y.shape[0] <= kMostSamples,
              "gathers up to 8 samples of fp32 or codes");
  }
  std::string operator()(const Linear& op) const {
    if (!all({op.x, op.w, op.b, op.y})) return "takes fp32 only";
    if (op.x.shape.numel() == 0 || op.y.shape.numel() == 0) return "empty";
    if (!fixed({op.w, op.b})) return "takes weights that do not change";
    return no(op.n() <= kMostSamples, "takes up to 8 samples");
  }
  std::string operator()(const Rnn& op) const {
    const RnnWeights& w = op.weights[0];
    if (!all({op.x, w.w_ih, w.w_hh, w.b_ih, w.b_hh, op.h0, op.c0, op.y, op.hT, op.cT})) {
      return "takes fp32 only";
    }
    if (op.shape.direction != Direction::forward) return "goes forward only";
    if (op.lengths || op.reserve) return "takes no lengths and keeps no reserve";
    if (!fixed({w.w_ih, w.w_hh, w.b_ih, w.b_hh})) return "takes weights that do not change";
    return no(op.shape.batch <= kMostSamples, "takes up to 8 samples");
  }
  std::string operator()(const Activation& op) const {
    return no(all({op.x, op.y}), "takes fp32 only");
  }
  std::string operator()(const Softmax& op) const {
    return no(all({op.x, op.y}) && op.x.shape.numel() > 0, "takes fp32 only");
  }
  std::string operator()(const Argmax& op) const {
    return no(all({op.x}) && op.x.shape.numel() > 0, "takes fp32 only");
  }
  std::string operator()(const Embedding& op) const {
    return no(all({op.w, op.y}) && all({op.token}, DType::int32), "takes fp32 only");
  }
  std::string operator()(const SelectTimestep& op) const {
    return no(all({op.x, op.y}) && !op.lengths, "takes fp32 and no lengths");
  }
  std::string operator()(const Copy&) const { return {}; }
  std::string operator()(const Tick&) const { return {}; }
  template <typename Other>
  std::string operator()(const Other&) const {
    return "the next op is none that a prepared net takes";
  }
  std::string of(const Op& op) const { return std::visit(*this, op); }
};

Cover covers_net_infer(const RemainingOps& rest, NetTeam team) {
  const Program& program = rest.program;
  const OpCheck misfit{program};
  const auto at = [&](size_t i) -> const Op& {
    if (rest.looks != nullptr) ++*rest.looks;
    return program.ops[i];
  };
  if (std::string why = misfit.of(at(rest.begin)); !why.empty()) return Cover::no(why);
  if (rest.begin > 0 && misfit.of(at(rest.begin - 1)).empty()) {
    return Cover::no("begins with the first of the ops that it takes");
  }
  const int threads = cpu_runtime(rest.runtime).pool().size();
  if (team == NetTeam::all_threads && threads == 1) return Cover::no("there is one thread");
  size_t end = rest.begin;
  double weights = 0;
  Cover cover;
  for (; end < program.ops.size() && misfit.of(at(end)).empty(); ++end) {
    weights += double(net_infer_weights(program.ops[end])) * sizeof(float);
    cover.workspace += net_infer_state(program.ops[end]);
  }
  if (weights == 0) return Cover::no("there are no weights to pack");
  if (weights > kMuchWeight && threads > 1 && team == NetTeam::caller) {
    return Cover::no("more weights than one thread should read");
  }
  cover.ops = end - rest.begin;
  std::unordered_set<ValueId> seen;
  for (size_t i = rest.begin; i < end; ++i) {
    for (const Value& value : writes(program.ops[i])) {
      if (!rest.dead_after(value, cover.ops) || !seen.insert(value.id).second) continue;
      cover.skips.push_back(value.id);
      cover.workspace += align_up(size_t(size_of(program.info(value.id).value)));
    }
  }
  return cover;
}

}  // namespace

KernelTable net_infer_kernels() {
  const auto kernel = [](const char* name, NetTeam team) {
    Kernel one;
    one.name = name;
    one.covers = [team](const RemainingOps& rest) { return covers_net_infer(rest, team); };
    one.prepare = [team](const Span& span, const Binding& binding) {
      return prepare_net_infer(span, binding, team);
    };
    return one;
  };
  return computing_in(kFloatOnly, {kernel("cpu.net_infer.simd", NetTeam::caller),
                                   kernel("cpu.net_infer.threads", NetTeam::all_threads),
                                   net_batch_kernel(), rnn_infer_kernel()});
}

}  // namespace ridgeline::cpu::simd
