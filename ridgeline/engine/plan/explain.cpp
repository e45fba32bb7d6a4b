#include "ridgeline/engine/plan/explain.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/mpi_info.h"
#include "ridgeline/engine/plan/brief.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/nn/activation_memory.h"
#include "ridgeline/plan/candidates.h"
#include "ridgeline/prof/limit.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

using nlohmann::json;
using Out = std::back_insert_iterator<std::string>;

std::string micros(double seconds) {
  return seconds > 0 ? fmt::format("{:.2f} us", 1e6 * seconds) : "not measured";
}

std::string layer_label(const nn::Lowered& lowered, size_t op, const nn::Model& model) {
  const int layer = lowered.op_layer[op];
  return layer < 0 ? "" : model.graph().label(layer);
}

void put_program(Out out, const nn::Lowered& lowered, const nn::Model& model) {
  const Program& program = lowered.program;
  fmt::format_to(out, "program: {}, {}, up to {} a launch\n",
                 counted(int64_t(program.ops.size()), "op"), name(program.precision),
                 counted(program.repeats, "step"));
  for (size_t i = 0; i < program.ops.size(); ++i) {
    fmt::format_to(out, "  {:>3}  {:<70}  {}\n", i, describe(program.ops[i]),
                   layer_label(lowered, i, model));
  }
}

void put_choices(Out out, const Plan& plan, const Explanation& explanation) {
  fmt::format_to(out, "\nchosen kernels ({}):\n", explanation.source);
  for (size_t i = 0; i < plan.choices().size(); ++i) {
    const Choice& choice = plan.choices()[i];
    if (choice.converted >= 0) {
      fmt::format_to(out, "  convert  {:<40}  value {} to {}\n", plan.label(i),
                     plan.program().info(choice.converted).name,
                     choice.to.empty() ? "plain" : choice.to);
      continue;
    }
    const std::string span = choice.end - choice.begin == 1
                                 ? fmt::format("{}", choice.begin)
                                 : fmt::format("{}-{}", choice.begin, choice.end - 1);
    fmt::format_to(out, "  {:>7}  {:<40}  {:>14}\n", span, plan.label(i), micros(choice.seconds));
  }
  if (explanation.shortlist_seconds.empty()) return;
  fmt::format_to(out, "whole plans measured:");
  for (const double seconds : explanation.shortlist_seconds) {
    fmt::format_to(out, "  {}", micros(seconds));
  }
  fmt::format_to(out, "\n");
}

// Whether a kernel was excluded because it is for other ops, precisions or devices.
bool is_for_other_ops(const std::string& reason) {
  return reason.starts_with(kOtherOp) || reason.starts_with(kForOthers);
}

void put_candidates(Out out, const Program& program, const Explanation& explanation) {
  fmt::format_to(out, "\ncandidates at each op (* chosen):\n");
  const auto chosen = std::ranges::find_if(explanation.candidates, &Candidate::chosen);
  const bool any = chosen != explanation.candidates.end();
  auto next = explanation.candidates.begin();  // sorted by position
  for (size_t i = 0; i < program.ops.size(); ++i) {
    fmt::format_to(out, "  {:>3}  {}\n", i, name(program.ops[i]));
    std::vector<const Candidate*> here;
    for (; next != explanation.candidates.end() && next->begin == i; ++next) here.push_back(&*next);
    std::stable_sort(here.begin(), here.end(), [](const Candidate* a, const Candidate* b) {
      return (a->cover.ops > 0) > (b->cover.ops > 0);
    });
    int others = 0;
    for (const Candidate* candidate : here) {
      const bool usable = candidate->cover.ops > 0;
      // Kernels of other ops or devices are not worth printing here; the JSON has them all.
      const bool elsewhere = any && candidate->kernel->target != chosen->kernel->target;
      if (elsewhere || (!usable && is_for_other_ops(candidate->cover.reason))) {
        ++others;
        continue;
      }
      const std::string what =
          usable ? fmt::format("{}, {}", counted(int64_t(candidate->cover.ops), "op"),
                               micros(candidate->seconds))
                 : "refused: " + candidate->cover.reason;
      fmt::format_to(out, "       {} {:<40}  {}\n", candidate->chosen ? '*' : ' ',
                     candidate->kernel->name, what);
    }
    if (others > 0)
      fmt::format_to(out, "         and {} for other ops, precisions and devices\n",
                     counted(others, "kernel"));
  }
}

// Prints the memory that the forward pass keeps for the backward pass, layer by layer.
json put_activations(Out out, const nn::Lowered& lowered, const nn::Model& model) {
  const std::vector<double> kept = nn::activation_bytes(lowered, model.layers().size());
  json all = json::array();
  double sum = 0;
  std::string text;
  for (size_t i = 0; i < kept.size(); ++i) {
    const std::string type = model.layers()[i]->type();
    all.push_back({{"layer", i}, {"type", type}, {"bytes", kept[i]}});
    sum += kept[i];
    if (kept[i] <= 0) continue;
    text += fmt::format("{}{} {} {}B", text.empty() ? "" : ", ", i, type, engineering(kept[i]));
  }
  fmt::format_to(out, "activations: {}B kept for the backward pass, op by op{}{}\n",
                 engineering(sum), text.empty() ? "" : ": ", text);
  return all;
}

// Prints what activation checkpointing saves, and what it recomputes for that.
json put_recompute(Out out, Machine& machine, Config config,
                   std::shared_ptr<const data::DataSet> set, const Plan& plan) {
  config.run.recompute = false;
  Trainer trainer(machine, config, std::move(set));
  const Plan& without = trainer.runner().plan();
  const MemoryUse& memory = without.memory();
  fmt::format_to(out,
                 "recompute: {}B in one block without it, live at once {}B; {:.0f} % more FLOP\n",
                 engineering(double(memory.arena)), engineering(double(memory.peak_live)),
                 100 * (plan.program().flops() / without.program().flops() - 1));
  return {{"arena", memory.arena},
          {"peak_live", memory.peak_live},
          {"flops", without.program().flops()}};
}

json candidates_json(const Explanation& explanation) {
  json all = json::array();
  for (const Candidate& candidate : explanation.candidates) {
    json entry = {{"kernel", candidate.kernel->name},
                  {"begin", candidate.begin},
                  {"ops", candidate.cover.ops},
                  {"chosen", candidate.chosen}};
    if (candidate.cover.ops == 0) entry["refused"] = candidate.cover.reason;
    if (candidate.seconds >= 0) entry["us"] = 1e6 * candidate.seconds;
    all.push_back(std::move(entry));
  }
  return all;
}

json choices_json(const Plan& plan) {
  json all = json::array();
  for (size_t i = 0; i < plan.choices().size(); ++i) {
    const Choice& choice = plan.choices()[i];
    all.push_back({{"kernel", choice.kernel->name},
                   {"label", plan.label(i)},
                   {"begin", choice.begin},
                   {"end", choice.end},
                   {"us", 1e6 * choice.seconds}});
  }
  return all;
}

}  // namespace

PlanReport explain_plan(const Config& config, const std::filesystem::path& data_dir, bool all,
                        Communicator* ranks) {
  return explain_plan(config, std::make_shared<data::DataSet>(load_data(config, data_dir)), all,
                      ranks);
}

PlanReport explain_plan(const Config& config, std::shared_ptr<const data::DataSet> set, bool all,
                        Communicator* ranks) {
  const bool several = ranks != nullptr && ranks->size() > 1;
  if (several) check_alike(*ranks, config, *set);
  Machine machine(config.run, several ? ranks : nullptr);
  Trainer trainer(machine, config, set);
  Runner& runner = trainer.runner();
  const Plan& plan = runner.plan();
  const Program& program = plan.program();
  const MemoryUse& memory = plan.memory();

  PlanReport report;
  Out out(report.text);
  if (several) {
    fmt::format_to(out, "ranks: {} over {}\n", ranks->size(), to_string(mpi_info_of(*ranks)));
  }
  if (all) {
    put_program(out, runner.lowered(), trainer.model());
    put_choices(out, plan, runner.explanation());
    put_candidates(out, program, runner.explanation());
  } else {
    report.text += brief_plan(runner.lowered(), trainer.model(), plan, runner.explanation());
  }
  fmt::format_to(out, "\nmemory: {}B in one block; live at once {}B; without reuse {}B\n",
                 engineering(double(memory.arena)), engineering(double(memory.peak_live)),
                 engineering(double(memory.sum)));
  const json activations = put_activations(out, runner.lowered(), trainer.model());
  json ops = json::array();
  for (const Op& op : program.ops) ops.push_back(describe(op));
  json document = {
      {"ops", ops},
      {"kernels", choices_json(plan)},
      {"candidates", candidates_json(runner.explanation())},
      {"source", runner.explanation().source},
      {"tuning_seconds", runner.explanation().tuning_seconds},
      {"memory", {{"arena", memory.arena}, {"peak_live", memory.peak_live}, {"sum", memory.sum}}}};
  document["memory"]["activations"] = activations;
  if (config.run.recompute) {
    document["memory"]["without_recompute"] = put_recompute(out, machine, config, set, plan);
  }
  if (several) {
    document["ranks"] = {{"count", ranks->size()}, {"mpi", to_json(mpi_info_of(*ranks))}};
  }
  if (const auto ceilings = machine.ceilings()) {
    const prof::Limit limit = prof::limit_of(program, *ceilings);
    fmt::format_to(
        out,
        "limit: {:.1f} us a step, {}-bound: {}FLOP in {:.1f} us at {}FLOP/s; {}B in {:.1f} "
        "us at {}B/s\n",
        1e6 * limit.seconds(), limit.bound(), engineering(limit.flops), 1e6 * limit.compute_seconds,
        engineering(ceilings->flops(program.precision)), engineering(limit.bytes),
        1e6 * limit.memory_seconds, engineering(ceilings->bandwidth(limit.bytes / 2)));
    document["limit"] = {{"us", 1e6 * limit.seconds()},
                         {"bound", limit.bound()},
                         {"flops", limit.flops},
                         {"bytes", limit.bytes},
                         {"compute_us", 1e6 * limit.compute_seconds},
                         {"memory_us", 1e6 * limit.memory_seconds},
                         {"flops_per_second", ceilings->flops(program.precision)},
                         {"bytes_per_second", ceilings->bandwidth(limit.bytes / 2)}};
  }
  if (!all) report.text += "--all lists the program, every candidate and why others were refused\n";
  report.json = dump_json(document, 2) + "\n";
  return report;
}

std::string plan_source(const Config& config, const std::filesystem::path& data_dir) {
  Config untuned = config;
  untuned.run.tune = false;  // only the program is needed, not the choice of kernels
  Machine machine(untuned.run, nullptr);
  Trainer trainer(machine, untuned, std::make_shared<data::DataSet>(load_data(untuned, data_dir)));
  return generated_source(trainer.runner().lowered().program, machine.runtime());
}

}  // namespace ridgeline::engine
