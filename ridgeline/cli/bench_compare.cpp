#include <filesystem>
#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/engine/bench/compare.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/report/page.h"

namespace ridgeline::cli {

void declare_compare(CLI::App& bench, Action& action) {
  auto files = std::make_shared<std::vector<std::string>>();
  bench
      .add_option("--compare", *files,
                  "two files of bench --json: says what got slower by more than the noise, and "
                  "exits with 8 if anything did")
      ->expected(2)
      ->type_name("BEFORE AFTER");
  bench.callback([files, &bench, &action] {
    if (!bench.get_subcommands().empty()) return;
    if (files->empty()) throw CLI::RequiredError("A subcommand or --compare");
    action.run = [files] {
      const auto comparison = engine::compare_results(engine::read_results(files->at(0)),
                                                      engine::read_results(files->at(1)));
      write_text("-", engine::to_text(comparison));
      return comparison.slower() ? kExitSlower : 0;
    };
  });
}

void SinceFlags::declare(CLI::App& command, Action& action) {
  command
      .add_option("--results", results, "folder of kept results to compare with (bench/results)")
      ->type_name("DIR");
  action.files.reads(command, "a kept result of --results", [this] {
    std::vector<std::string> files;
    std::error_code ignored;
    for (const auto& each : std::filesystem::directory_iterator(results, ignored)) {
      files.push_back(each.path());
    }
    return files;
  });
  declare_report(command, action, report);
}

void SinceFlags::check() const {
  if (!report.empty()) engine::check_page(report);
}

void SinceFlags::show(const std::string& json, const engine::RunConfig& run, bool print) const {
  engine::Machine machine(run);
  const auto now = engine::parse_results(json);
  const auto kept =
      engine::kept_results(results, machine.runtime().fingerprint(), machine.threads());
  auto since = engine::compare_results(kept, now);
  if (print && !since.changes.empty()) {
    since.only_before.clear();  // not measured today
    since.only_after.clear();
    write_text("-", "\nsince the results kept in " + results + ":\n" + engine::to_text(since));
  }
  if (!report.empty()) engine::write_bench_report(now, since, run, report);
}

}  // namespace ridgeline::cli
