#include "ridgeline/plan/candidates.h"

#include <algorithm>

#include "ridgeline/plan/kernel_patterns.h"

namespace ridgeline {
namespace {

// Returns why the options exclude a kernel, or an empty string.
std::string excluded(const Kernel& kernel, const Program& program, const Runtime& runtime,
                     const PlanOptions& options) {
  if (std::string why = refuse(kernel, program, runtime); !why.empty()) return why;
  if (options.deterministic && !kernel.traits.deterministic) return "not deterministic";
  if (!options.only.empty() && !fits_any(kernel.name, options.only)) return kNotAsked;
  if (fits_any(kernel.name, options.except)) return kUnwanted;
  if (!kernel.traits.demonstration || options.demonstrations) return {};
  const bool pinned = std::ranges::find(options.pinned, kernel.name) != options.pinned.end();
  if (!pinned && !names_last_part(options.only, kernel.name)) return kDemonstration;
  return {};
}

// Returns why a kernel that sums products in fp32 cannot be used if the program wants fp16 sums.
std::string refuse_fp32_sums(const Program& program, const Kernel& kernel, const Cover& cover,
                             size_t begin) {
  if (program.accumulate != Precision::fp16 || kernel.traits.fp16_sums) return {};
  const auto is_product = [](const Op& op) {
    return std::holds_alternative<Linear>(op) || std::holds_alternative<LinearGradX>(op) ||
           std::holds_alternative<LinearGradW>(op);
  };
  const auto ops = std::span(program.ops).subspan(begin, cover.ops);
  return std::ranges::any_of(ops, is_product) ? "sums products in fp32" : "";
}

// A kernel may leave a value unwritten only if nothing outside its span reads it.
std::string refuse_unwritten(const Program& program, const Cover& cover, size_t begin) {
  for (const ValueId id : cover.skips) {
    const ValueInfo& info = program.info(id);
    if (info.role != Role::temp || program.last_read(id) >= int64_t(begin + cover.ops)) {
      return fmt::format("does not write {}, which is read later", info.name);
    }
  }
  return {};
}

// A block of sixteen channels for an image of one channel takes sixteen times its memory and gains
// nothing. Small values may use it, because it costs little there.
std::string refuse_padding(const Program& program, const Cover& cover) {
  constexpr size_t kSmall = size_t{64} << 20, kMostTimes = 4;
  for (const auto* uses : {&cover.reads, &cover.writes}) {
    for (const FormatUse& use : *uses) {
      const ValueInfo& info = program.info(use.value);
      const auto plain = size_t(size_of(info.value));
      if (use.bytes <= kSmall || use.bytes / kMostTimes <= plain) continue;
      return fmt::format("{} takes {} bytes as {}, and {} as it is", info.name, use.bytes,
                         use.format, plain);
    }
  }
  return {};
}

// Returns whether a refusal says nothing about this op.
bool is_for_others(const Cover& cover) {
  return cover.ops == 0 &&
         (cover.reason.starts_with(kOtherOp) || cover.reason.starts_with(kForOthers));
}

}  // namespace

std::vector<Candidate> ask_all(const Program& program, const KernelTable& table,
                               const Runtime& runtime, const PlanOptions& options, Slow slow,
                               PlanningSteps& steps, const std::vector<std::string>& named,
                               bool every) {
  every = every || program.ops.size() <= kMostExplained;
  std::vector<std::string> exclusions;
  for (const Kernel& kernel : table)
    exclusions.push_back(excluded(kernel, program, runtime, options));
  std::vector<Candidate> all;
  for (size_t position = 0; position < program.ops.size(); ++position) {
    bool bare = true;
    for (const Kernel& kernel : table) {
      if (!kernel.covers) continue;
      Candidate candidate{&kernel, position, {}, -1, false};
      std::string why = exclusions[size_t(&kernel - table.data())];
      if (why.empty() && slow == Slow::where_bare && !bare && kernel.traits.slow_to_query &&
          std::ranges::find(named, kernel.name) == named.end()) {
        why = "not asked, for a kernel before it serves and none are compared";
      }
      if (why.empty()) {
        ++steps.asked;
        candidate.cover = kernel.covers(RemainingOps{program, position, runtime, &steps.looked});
        if (candidate.cover.ops > 0) why = refuse_unwritten(program, candidate.cover, position);
        if (candidate.cover.ops > 0 && why.empty()) {
          why = refuse_fp32_sums(program, kernel, candidate.cover, position);
        }
        if (candidate.cover.ops > 0 && why.empty()) why = refuse_padding(program, candidate.cover);
      }
      if (!why.empty()) candidate.cover = Cover::no(why);
      bare &= candidate.cover.ops == 0 || kernel.traits.fallback;
      if (every || !is_for_others(candidate.cover)) all.push_back(std::move(candidate));
    }
  }
  return all;
}

Options usable(const Program& program, const KernelTable& table, const std::vector<Candidate>& all,
               bool with_fallbacks, PlanningSteps& steps) {
  Options options;
  options.walked = &steps.walked;
  options.at.resize(program.ops.size());
  for (const Candidate& candidate : all) {
    if (candidate.cover.ops > 0) options.at[candidate.begin].push_back(candidate);
  }
  if (!with_fallbacks) {
    for (auto& here : options.at) {
      const auto real = [](const Candidate& c) { return !c.kernel->traits.fallback; };
      if (std::any_of(here.begin(), here.end(), real)) {
        std::erase_if(here, [&](const Candidate& c) { return !real(c); });
      }
    }
  }
  for (const Kernel& kernel : table) {
    if (kernel.converts) options.conversions.push_back(&kernel);
  }
  return options;
}

namespace {

// Asks what a plan in the table's order needs.
std::vector<Candidate> ask_for_order(const Program& program, const KernelTable& table,
                                     const Runtime& runtime, const PlanOptions& options,
                                     PlanningSteps& steps) {
  auto all = ask_all(program, table, runtime, options, Slow::where_bare, steps);
  if (!first_cover(program, usable(program, table, all, true, steps)).empty()) return all;
  return ask_all(program, table, runtime, options, Slow::all, steps);
}

}  // namespace

std::vector<Candidate> ask_for(const Program& program, const KernelTable& table,
                               const Runtime& runtime, const PlanOptions& options,
                               PlanningSteps& steps) {
  if (!options.pinned.empty()) {
    auto all = ask_all(program, table, runtime, options, Slow::where_bare, steps, options.pinned);
    const Options usable_ones = usable(program, table, all, true, steps);
    if (!named_cover(program, usable_ones, options.pinned).empty()) return all;
  }
  return options.measures() ? ask_all(program, table, runtime, options, Slow::all, steps)
                            : ask_for_order(program, table, runtime, options, steps);
}

}  // namespace ridgeline
