#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/json.h"
#include "ridgeline/engine/evaluate.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct EvalFlags {
  std::string model, set, data, precision, json, target;
  bool train_part = false, strict = false;
  RunFlags run;
};

int run_eval(const EvalFlags& flags, Communicator& ranks) {
  engine::ModelOptions options;
  flags.run.apply(options.run);
  options.precision = parse_model_precision(flags.precision);
  options.strict = flags.strict;
  std::vector<std::string> warnings;
  const auto part = flags.train_part ? data::Part::train : data::Part::test;
  const engine::Evaluation result = engine::evaluate_file(flags.model, flags.set, part, flags.data,
                                                          options, warnings, &ranks, flags.target);
  if (!ranks.is_root()) return 0;
  for (const std::string& warning : warnings) engine::Progress().warning(warning);
  const bool classes = !std::isnan(result.accuracy);
  if (flags.json != "-") {
    const bool text = result.targets > result.samples;
    std::string loss = fmt::format("{:.4f}", result.loss);
    if (text) loss += fmt::format(" nats a character, perplexity {:.3f}", std::exp(result.loss));
    const std::string accuracy =
        classes ? fmt::format("accuracy {:.2f} % ({} of {})\n", 100 * result.accuracy,
                              result.correct, result.targets)
                : "";
    std::string scores;
    for (const auto& [metric, value] : engine::metrics_of(result)) {
      if (metric == engine::Metric::loss || metric == engine::Metric::accuracy) continue;
      scores += engine::to_text(metric, value) + "\n";
    }
    for (const engine::HeadScores& head : result.heads) scores += engine::to_text(head) + "\n";
    write_text("-", fmt::format("{}loss {}\n{}speed {} {}/s\n", accuracy, loss, scores,
                                engine::grouped(double(result.targets) / result.seconds),
                                text ? "characters" : "inputs"));
  }
  nlohmann::json document{{"loss", result.loss},
                          {"samples", result.samples},
                          {"targets", result.targets},
                          {"seconds", result.seconds}};
  for (const auto& [metric, value] : engine::metrics_of(result)) {
    document[std::string(engine::name(metric))] = value;
  }
  if (classes) document["correct"] = result.correct;
  for (const engine::HeadScores& head : result.heads) {
    engine::Evaluation as;
    as.accuracy = head.accuracy;
    as.scores = head.scores;
    for (const auto& [metric, value] : engine::metrics_of(as)) {
      if (metric == engine::Metric::loss) continue;
      document["heads"][head.name][std::string(engine::name(metric))] = value;
    }
  }
  write_text(flags.json, dump_json(document, 2) + "\n");
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command = app.add_subcommand("eval", "loss and accuracy of a trained model");
  declare_model(*command, action, flags->model);
  command
      ->add_option("--on", flags->set,
                   "named set, folder or file (default: the one it was trained on)")
      ->type_name("SET");
  action.files.reads(*command, "--on", flags->set);
  command
      ->add_option("--target", flags->target,
                   "file of the targets, where the one of --on does not hold them")
      ->type_name("FILE");
  action.files.reads(*command, "--target", flags->target);
  command->add_flag("--train-part", flags->train_part,
                    "the set's training images, not its test images");
  command->add_flag("--strict", flags->strict,
                    "refuse NaN and infinite weights, and say when a file has no checksums");
  declare_model_precision(*command, flags->precision);
  declare_data(*command, flags->data);
  flags->run.declare(*command);
  declare_json(*command, action, flags->json);
  command->footer(
      "Examples:\n"
      "  ridgeline eval runs/fashion\n"
      "  ridgeline eval runs/fashion/model.safetensors --on mnist --json result.json");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run_eval(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
