#include "ridgeline/engine/sweep/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/evaluate.h"
#include "ridgeline/engine/population/ensemble.h"
#include "ridgeline/engine/sweep/journal.h"
#include "ridgeline/engine/sweep/pictures.h"

namespace ridgeline::cli {
namespace {

struct SweepFlags {
  ConfigFlags config;
  std::string out, csv, json, svg, metric, prune, save_best, report;
  int64_t prune_factor = 3, prune_epochs = 1, ensemble = 0;
  bool one_by_one = false, resume = false, force = false;
};

// Returns where a result goes: the file of its own flag, else the folder of --out.
std::string place(const SweepFlags& flags, const std::string& flag, const char* name) {
  if (!flag.empty() || flags.out.empty()) return flag;
  return (std::filesystem::path(flags.out) / name).string();
}

std::vector<FileUses::File> files_in_out(const SweepFlags& flags) {
  std::vector<FileUses::File> files;
  const auto add = [&](const std::string& flag, const char* name, const Recognise& ours) {
    if (flag.empty()) files.push_back({place(flags, flag, name), ours, true});
  };
  add(flags.csv, "sweep.csv", engine::is_sweep_csv);
  add(flags.json, "sweep.json", is_json());
  add(flags.svg, "sweep.svg", is_svg());
  if (flags.out.empty()) return files;
  const auto in_out = [&](const char* name) {
    return (std::filesystem::path(flags.out) / name).string();
  };
  files.push_back({in_out("sweep.jsonl"), engine::SweepJournal::is_journal, true});
  if (!flags.save_best.empty())
    files.push_back({in_out("best.safetensors"), is_model_file(), true});
  if (flags.ensemble > 0) files.push_back({in_out("ensemble.safetensors"), is_model_file(), true});
  return files;
}

// "1,200 nets in 6 groups, 2 side by side"
void show_layout(const engine::PopulationLayout& layout, size_t from_before) {
  engine::Progress progress;
  std::string text =
      fmt::format("{} {} in {}", engine::grouped(double(layout.members)),
                  layout.members == 1 ? "net" : "nets", counted(int64_t(layout.groups), "group"));
  if (layout.side_by_side > 1) {
    text += fmt::format(", {} side by side", layout.side_by_side);
    if (layout.threads_each > 1) text += fmt::format(" with {} threads each", layout.threads_each);
  } else {
    text += ", one after the other";
  }
  if (layout.ranks > 1) text += fmt::format(" on each of {} ranks", layout.ranks);
  if (from_before > 0)
    text += fmt::format("; {} done before", engine::grouped(double(from_before)));
  progress.line(text);
}

std::string result_text(const engine::SweepPoint& point) {
  if (!point.error.empty()) return point.error;
  const engine::TrainReport& report = point.report;
  const bool validates = report.validation.has_value();
  const engine::Evaluation& result = validates ? *report.validation : report.test;
  const engine::Metric main = engine::main_metric(result);
  std::string text = validates ? "validation " : "";
  if (main != engine::Metric::loss) {
    text += engine::to_text(main, engine::value_of(result, main)) + ", ";
  }
  text += fmt::format("loss {:.4f}, {}", result.loss, engine::duration(report.train_seconds));
  if (point.pruned_after > 0) {
    text += fmt::format(", pruned after {}", counted(point.pruned_after, "epoch"));
  }
  return text;
}

void write_best(const engine::Sweep& result, const std::filesystem::path& file) {
  engine::Progress progress;
  if (result.best.empty()) {
    progress.warning(
        "--export best: no combination ran to its end with a finite score, so no model "
        "is written");
    return;
  }
  const engine::Sweep::Model& best = result.best.front();
  write_file_atomic(file, best.bytes);
  std::string values;
  for (const std::string& each : result.points[best.point].values) values += " " + each;
  progress.line(fmt::format("{}: the model of{}, the best by its {}", file.string(), values,
                            result.chosen ? "validation set" : "training loss"));
}

void write_ensemble(const engine::Sweep& result, const SweepFlags& flags) {
  engine::Progress progress;
  if (result.best.size() < 2) {
    progress.warning(
        "--ensemble: fewer than two combinations ran to their end with a finite score, so it "
        "is not made");
    return;
  }
  std::vector<std::vector<std::byte>> models;
  for (const engine::Sweep::Model& each : result.best) {
    if (int64_t(models.size()) < flags.ensemble) models.push_back(each.bytes);
  }
  const std::filesystem::path file = std::filesystem::path(flags.out) / "ensemble.safetensors";
  write_file_atomic(file, engine::make_ensemble(models));
  engine::ModelOptions options;
  flags.config.run.apply(options.run);
  std::vector<std::string> warnings;
  const engine::Evaluation test =
      engine::evaluate_file(file, "", data::Part::test, flags.config.data, options, warnings);
  std::string metrics;
  for (const auto& [metric, value] : engine::metrics_of(test)) {
    metrics += (metrics.empty() ? "" : ", ") + engine::to_text(metric, value);
  }
  progress.line(fmt::format("{}: the mean of the best {}; on the test set: {}", file.string(),
                            models.size(), metrics));
}

void check_flags(const SweepFlags& flags) {
  const std::pair<bool, const char*> need_out[] = {{flags.resume, "--resume"},
                                                   {flags.force, "--force"},
                                                   {!flags.save_best.empty(), "--export"},
                                                   {flags.ensemble > 0, "--ensemble"}};
  for (const auto& [given, flag] : need_out) {
    if (!given || !flags.out.empty()) continue;
    throw_error(ErrorKind::usage, "{} needs --out DIR, the folder of the sweep", flag);
  }
}

int run_sweep(const SweepFlags& flags, Communicator& ranks) {
  check_flags(flags);
  // A study takes long, so missing output folders are reported before the first run.
  const bool root = ranks.is_root();
  std::optional<MadeFolder> out, report;
  if (!flags.out.empty() && root) out.emplace("--out", flags.out);
  if (!flags.report.empty() && root) report.emplace("--report", flags.report);
  const std::string csv = place(flags, flags.csv, "sweep.csv"),
                    json = place(flags, flags.json, "sweep.json"),
                    svg = place(flags, flags.svg, "sweep.svg");
  engine::SweepOptions options;
  options.data = flags.config.data;
  options.adjust = [&](engine::Config& config) { flags.config.run.apply(config.run); };
  options.ranks = &ranks;
  options.out = flags.out;
  options.resume = flags.resume;
  options.force = flags.force;
  // Times are comparable only if a run has the machine for itself.
  const bool timed = flags.metric == "us_per_step" || flags.metric == "inputs_per_second";
  options.one_by_one = flags.one_by_one || timed;
  options.models = std::max(size_t(flags.ensemble), size_t(flags.save_best.empty() ? 0 : 1));
  if (!flags.prune.empty()) {
    options.prune.emplace();
    options.prune->factor = flags.prune_factor;
    options.prune->first_epochs = flags.prune_epochs;
    options.prune->synchronous = flags.config.run.deterministic;
  }
  if (root) {
    options.started = show_layout;
    options.progress = [](size_t done, size_t count, const std::string& label,
                          const engine::SweepPoint* point) {
      if (point == nullptr) return;
      engine::Progress().line(
          fmt::format("[{}/{}] {}: {}", done + 1, count, label, result_text(*point)));
    };
  }
  const engine::Sweep result = engine::sweep(flags.config.config, flags.config.sets, options);
  if (!root) return result.stopped_by == 0 ? 0 : 128 + result.stopped_by;
  const auto write = [&](const std::string& path, const std::string& text) {
    write_last(result.stopped_by, path, text);
  };
  const bool classes = std::ranges::any_of(result.points, [](const engine::SweepPoint& point) {
    return std::isfinite(engine::metric_of(point, "accuracy"));
  });
  const std::string metric = !flags.metric.empty() ? flags.metric : classes ? "accuracy" : "loss";
  if (csv != "-" && json != "-" && svg != "-") write("-", engine::to_table(result));
  write(csv, engine::to_csv(result));
  write(json, engine::to_json_text(result));
  write(svg, engine::to_svg(engine::to_chart(result, metric)));
  if (!flags.report.empty()) engine::write_report(result, metric, flags.report);
  if (result.stopped_by == 0 && !result.failed) {
    if (!flags.save_best.empty()) {
      write_best(result, std::filesystem::path(flags.out) / "best.safetensors");
    }
    if (flags.ensemble > 0) write_ensemble(result, flags);
  }
  if (result.failed) throw *result.failed;
  return result.stopped_by == 0 ? 0 : 128 + result.stopped_by;
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SweepFlags>();
  CLI::App* command = app.add_subcommand("sweep", "train every combination of some settings");
  command->add_option("config", flags->config.config, "TOML file that describes the network")
      ->required()
      ->type_name("");
  declare_config_files(*command, action, flags->config);
  declare_sets(
      *command, flags->config.sets,
      "values to try, as in train.optimizer.lr=0.1,0.01 or train.seed=1..8; one value applies "
      "to all runs; may be repeated");
  declare_data(*command, flags->config.data);
  flags->config.run.declare(*command);
  command
      ->add_option("--out", flags->out,
                   "folder for sweep.csv, sweep.json, sweep.svg and what --resume needs")
      ->type_name("DIR");
  action.files.writes(*command, "--out", [flags = flags.get()] { return files_in_out(*flags); });
  declare_csv(*command, action, flags->csv, "write the table here as CSV", engine::is_sweep_csv);
  declare_json(*command, action, flags->json);
  declare_svg(*command, action, flags->svg, "draw the metric over the swept settings here");
  command
      ->add_option(
          "--metric", flags->metric,
          "accuracy, loss, f1, auc, mse, mae, r2, train_loss, us_per_step or inputs_per_second "
          "(default: accuracy, or loss where there is none)")
      ->check(CLI::IsMember(engine::chart_metrics()).description(""))
      ->type_name("NAME");
  command->add_flag("--one-by-one", flags->one_by_one,
                    "train one combination at a time with all threads, or ranks, each planned for "
                    "itself (as --metric us_per_step and inputs_per_second do)");
  command
      ->add_option("--prune", flags->prune,
                   "asha: stop combinations early that others have passed (successive halving)")
      ->check(CLI::IsMember({"asha"}).description(""))
      ->type_name("HOW");
  command
      ->add_option("--prune-factor", flags->prune_factor,
                   "of so many combinations one goes on to the next rung (3)")
      ->check(range(2, 100))
      ->type_name("N");
  command
      ->add_option("--prune-epochs", flags->prune_epochs,
                   "epochs of the first rung; each further one is --prune-factor times as long (1)")
      ->check(range(1, 1e6))
      ->type_name("N");
  command->add_flag("--resume", flags->resume, "continue the sweep that --out holds");
  command->add_flag("--force", flags->force, "replace an unfinished sweep that --out holds");
  command
      ->add_option("--export", flags->save_best,
                   "best: write the best combination's model to best.safetensors in --out")
      ->check(CLI::IsMember({"best"}).description(""))
      ->type_name("WHICH");
  command
      ->add_option("--ensemble", flags->ensemble,
                   "join the best K models to ensemble.safetensors in --out: the mean of their "
                   "probabilities, or values")
      ->check(range(2, 1000))
      ->type_name("K");
  declare_report(*command, action, flags->report);
  command->footer(
      "Examples:\n"
      "  ridgeline sweep configs/mnist-sigmoid.toml --set model.layers.0.out=128,512,2048 --out "
      "study\n"
      "  ridgeline sweep configs/mnist-sigmoid.toml --set train.optimizer.lr=1,0.1,0.01 \\\n"
      "      --set train.epochs=5,20 --svg rates.svg");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return with_ranks(action, [&](Communicator& ranks) { return run_sweep(*flags, ranks); });
    };
  });
}

}  // namespace ridgeline::cli
