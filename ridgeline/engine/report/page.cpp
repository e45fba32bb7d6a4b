#include "ridgeline/engine/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ridgeline/core/file.h"
#include "ridgeline/core/result_mark.h"
#include "ridgeline/engine/info.h"
#include "ridgeline/engine/profile/profile.h"
#include "ridgeline/engine/report/chart.h"
#include "ridgeline/engine/report/confusion.h"
#include "ridgeline/engine/report/scores_html.h"
#include "ridgeline/engine/train/metrics.h"
#include "ridgeline/engine/train/train.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/prof/roofline.h"

namespace ridgeline::engine {
namespace {

std::string percent(double share, int digits = 0) {
  return fmt::format("{:.{}f} %", 100 * share, digits);
}

std::string chart_html(const std::string& svg) {
  return svg.empty() ? "" : fmt::format("<div class=\"chart\">{}</div>\n", svg);
}

void write_text_file(const std::filesystem::path& path, const std::string& text) {
  write_file_atomic(path, std::as_bytes(std::span(text)));
}

std::string plan_html(const Profile& profile) {
  // The most important columns come first: on a phone the others need scrolling.
  prof::HtmlTable table;
  table.head = {"kernel", "us", "share",  "roof", "of it",  "p10",     "p90",
                "FLOP",   "B",  "FLOP/s", "B/s",  "FLOP/B", "threads", "ops"};
  table.left = {3, 13};
  for (const KernelProfile& kernel : profile.kernels) {
    const double s = kernel.seconds.median;
    table.rows.push_back(
        {kernel.label, fmt::format("{:.2f}", 1e6 * s), percent(kernel.share),
         profile.ceilings ? prof::name(kernel.roofs.binding()) : "-",
         profile.ceilings ? percent(kernel.fraction) : "-",
         fmt::format("{:.2f}", 1e6 * kernel.seconds.p10),
         fmt::format("{:.2f}", 1e6 * kernel.seconds.p90), engineering(kernel.work.flops),
         engineering(kernel.work.bytes), engineering(s > 0 ? kernel.work.flops / s : 0),
         engineering(s > 0 ? kernel.work.bytes / s : 0), fmt::format("{:.2f}", kernel.intensity()),
         kernel.balance ? fmt::format("{:.2f}", *kernel.balance) : "", kernel.what});
  }
  const auto last = [&](const char* name, double seconds) {
    table.rows.push_back({name, fmt::format("{:.2f}", 1e6 * seconds)});
  };
  last("interrupted", profile.interrupted);
  last("gaps", profile.gaps);
  last("step, unprofiled", profile.total.median);
  return prof::table_html(table);
}

std::string launches_html(const Profile& profile) {
  prof::HtmlTable table;
  table.head = {"GPU function", "kernel",    "us",       "launches", "grid",
                "block",        "registers", "shared B", "occupancy"};
  table.left = {1};
  for (const KernelProfile& kernel : profile.kernels) {
    for (const LaunchUse& use : kernel.launches) {
      const LaunchRecord& k = use.launch;
      table.rows.push_back(
          {k.name.substr(0, 60), kernel.name, fmt::format("{:.2f}", 1e6 * use.seconds),
           std::to_string(use.count), fmt::format("{}x{}x{}", k.grid[0], k.grid[1], k.grid[2]),
           fmt::format("{}x{}x{}", k.block[0], k.block[1], k.block[2]), std::to_string(k.registers),
           std::to_string(k.shared), percent(k.occupancy)});
    }
  }
  return table.rows.empty() ? "" : prof::table_html(table);
}

}  // namespace

prof::Roofline roofline_of(const Profile& profile) {
  prof::Roofline roofline;
  roofline.title = fmt::format("Roofs measured {}, {}", profile.ceilings->when(), profile.device);
  roofline.ceilings = *profile.ceilings;
  roofline.precision = profile.unit;
  for (const KernelProfile& kernel : profile.kernels) {
    roofline.points.push_back(
        {kernel.label, kernel.work.flops, kernel.work.bytes, kernel.seconds.median, kernel.share});
  }
  return roofline;
}

namespace {

void add_profile_sections(prof::Page& page, const Profile& profile) {
  if (profile.ceilings) page.section("Roofline", chart_html(to_svg(roofline_of(profile))));
  page.section("Timeline of a few steps", chart_html(prof::timeline_svg(profile.timeline)));
  page.section("Plan", plan_html(profile));
  std::string next;
  for (const std::string& line : profile.advice) next += prof::paragraph_html(line);
  page.section("What to try next", next);
  page.section("Launches", launches_html(profile));
  prof::HtmlTable calls;
  calls.head = {"call", "times", "us", "share"};
  for (const ApiUse& use : profile.api) {
    calls.rows.push_back({use.name, std::to_string(use.calls),
                          fmt::format("{:.1f}", 1e6 * use.seconds), percent(use.share)});
  }
  if (!calls.rows.empty()) page.section("Host calls", prof::table_html(calls));
}

void add_span(prof::Timeline& timeline, std::map<int, prof::Timeline::Lane>& lanes,
              const HostSpan& span) {
  if (!lanes.contains(span.rank)) lanes[span.rank] = timeline.lane(span.rank, "host");
  timeline.add({lanes[span.rank],
                span.what,
                "host",
                span.begin,
                span.seconds,
                {{"steps", double(span.steps)}, {"waited_s", span.waited}}});
}

// Collective over the ranks of the run.
Profile profile_of(Trainer& trainer) {
  ProfileOptions options;
  options.seconds = 1;
  return profile_runner(trainer.machine(), trainer.runner(), trainer.config(), options);
}

class ReportHelper final : public TrainObserver {
 public:
  void finished(const TrainReport& report, Trainer& trainer) override {
    if (report.stopped_by == 0) profile_of(trainer);
  }
};

// Points of the curves, kept while a run goes on.
class ReportObserver final : public TrainObserver {
 public:
  ReportObserver(std::filesystem::path folder, std::filesystem::path metrics)
      : folder_(std::move(folder)), metrics_(std::move(metrics)) {
    check_page(folder_);
  }

  void started(const TrainReport&, Trainer&) override {
    MetricPoints before = read_metrics(metrics_);
    train_ = std::move(before.train);
    test_ = std::move(before.test);
    validation_ = std::move(before.validation);
  }

  void logged(const TrainPoint& point) override { train_.push_back(point); }
  void evaluated(const EvalPoint& point, Trainer&) override {
    // A finished run that is resumed is evaluated again.
    auto& points = point.validation ? validation_ : test_;
    if (points.empty() || points.back().step < point.step) points.push_back(point);
  }
  void did(const HostSpan& span) override { add_span(timeline_, lanes_, span); }

  void finished(const TrainReport& report, Trainer& trainer) override {
    prof::Page page(
        "Training " + report.data,
        fmt::format("{}, {}, batch {}, {} steps, seed {}", report.device, report.precision,
                    trainer.config().train.batch, report.steps, trainer.config().train.seed));
    page.section("Summary", summary_html(report));
    const std::string loss = chart_html(curve("loss", &TrainPoint::loss, &EvalPoint::loss));
    if (trainer.set().train.has_values()) {
      page.section("Loss", loss);
    } else {
      page.section("Loss and accuracy", loss + chart_html(curve("accuracy", &TrainPoint::accuracy,
                                                                &EvalPoint::accuracy)));
    }
    page.section("Timeline of the run", chart_html(prof::timeline_svg(timeline_)));
    // A run that was stopped should end quickly.
    if (report.stopped_by == 0) {
      page.section("Test set", scores_html(report.test, trainer));
      page.section("Confusions", confusions_html(trainer));
      add_profile_sections(page, profile_of(trainer));
    }
    page.section("Config", fmt::format("<pre>{}</pre>\n", lines_html(to_toml(trainer.config()))));
    add_environment(page, trainer.machine().runtime().fingerprint());
    write_page(page, folder_);
    write_text_file(folder_ / "trace.json", timeline_.to_json());
  }

 private:
  // Unlike xml_text(), keeps line breaks.
  static std::string lines_html(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '<')
        out += "&lt;";
      else if (c == '&')
        out += "&amp;";
      else
        out += c;
    }
    return out;
  }

  static std::string summary_html(const TrainReport& report) {
    std::vector<std::pair<std::string, std::string>> figures;
    if (report.stopped_by == 0) {
      if (!std::isnan(report.test.accuracy)) {
        figures.push_back({percent(report.test.accuracy, 2), "accuracy on the test set"});
      }
      figures.push_back({fmt::format("{:.4f}", report.test.loss), "test loss"});
      if (report.validation) {
        figures.push_back({fmt::format("{:.4f}", report.validation->loss), "validation loss"});
      }
      if (report.kept_best) {
        figures.push_back({fmt::format("step {}", report.best_step),
                           fmt::format("kept, best validation {}", name(report.monitor))});
      }
    } else {
      figures = {{fmt::format("step {}", report.steps), "stopped by a signal"}};
    }
    figures.push_back({grouped(report.inputs_per_second), "inputs a second"});
    figures.push_back({fmt::format("{:.1f} us", 1e6 * report.seconds_per_step()), "a step"});
    if (report.limit && report.steps_here > 0) {
      figures.push_back({percent(report.limit_fraction),
                         fmt::format("of the limit ({}-bound)", report.limit->bound())});
    }
    figures.push_back({duration(report.train_seconds), "training"});
    figures.push_back({duration(report.startup_seconds), "start-up"});
    figures.push_back({grouped(double(report.parameters)), "weights"});
    return prof::figures_html(figures);
  }

  template <typename T, typename E>
  std::string curve(const char* what, T TrainPoint::*of_train, E EvalPoint::*of_test) const {
    if (train_.empty() && test_.empty() && validation_.empty()) return {};
    Chart chart;
    chart.title = what;
    chart.x_title = "epoch";
    Chart::Series train{"train", {}}, validation{"validation", {}}, test{"test", {}};
    const auto add = [&](double epoch, double on_train, double on_validation, double on_test) {
      chart.at.push_back(epoch);
      const bool whole = std::abs(epoch - std::round(epoch)) < 1e-9;
      chart.x.push_back(whole ? fmt::format("{:.0f}", epoch) : "");
      train.y.push_back(on_train);
      validation.y.push_back(on_validation);
      test.y.push_back(on_test);
    };
    for (const TrainPoint& point : train_) add(point.epoch, point.*of_train, NAN, NAN);
    for (const EvalPoint& point : validation_) add(point.epoch, NAN, point.*of_test, NAN);
    for (const EvalPoint& point : test_) add(point.epoch, NAN, NAN, point.*of_test);
    // A run of less than an epoch has no labelled point, so all points get labels.
    if (std::ranges::all_of(chart.x, &std::string::empty)) {
      for (size_t i = 0; i < chart.x.size(); ++i) chart.x[i] = fmt::format("{:.2g}", chart.at[i]);
    }
    chart.series = {train, test};
    if (!validation_.empty()) chart.series.push_back(validation);
    return to_svg(chart);
  }

  std::filesystem::path folder_, metrics_;
  std::vector<TrainPoint> train_;
  std::vector<EvalPoint> test_, validation_;
  prof::Timeline timeline_;
  std::map<int, prof::Timeline::Lane> lanes_;  // by rank
};

class TraceObserver final : public TrainObserver {
 public:
  explicit TraceObserver(std::filesystem::path file) : file_(std::move(file)) {}
  void did(const HostSpan& span) override { add_span(timeline_, lanes_, span); }
  void finished(const TrainReport&, Trainer&) override {
    const std::string json = timeline_.to_json();
    if (file_ == "-") {
      write_stdout(json);
    } else {
      write_text_file(file_, json);
    }
  }

 private:
  std::filesystem::path file_;
  prof::Timeline timeline_;
  std::map<int, prof::Timeline::Lane> lanes_;  // by rank
};

}  // namespace

std::unique_ptr<TrainObserver> report_observer(const std::filesystem::path& folder,
                                               const std::filesystem::path& metrics) {
  return std::make_unique<ReportObserver>(folder, metrics);
}

std::unique_ptr<TrainObserver> report_helper() { return std::make_unique<ReportHelper>(); }

std::unique_ptr<TrainObserver> trace_observer(const std::filesystem::path& file) {
  return std::make_unique<TraceObserver>(file);
}

void add_environment(prof::Page& page, const std::string& machine) {
  prof::HtmlTable table;
  table.head = {"what", "is"};
  table.left = {1};
  for (const auto& [what, value] : environment()) table.rows.push_back({what, value});
  table.rows.push_back({"machine", machine});
  page.section("Environment", prof::table_html(table));
}

void check_page(const std::filesystem::path& folder) {
  const MadeFolder made("--report", folder);
  check_writable(folder / "report.html");
}

void write_page(const prof::Page& page, const std::filesystem::path& folder) {
  make_folder("--report", folder);
  write_text_file(folder / "report.html", page.html());
}

void write_report(const Profile& profile, const std::filesystem::path& folder) {
  prof::Page page("Profile", fmt::format("{}: batch {}, {}, {}", profile.subject, profile.batch,
                                         profile.device, profile.precision));
  std::vector<std::pair<std::string, std::string>> figures = {
      {fmt::format("{:.1f} us", 1e6 * profile.total.median), "a step, unprofiled"},
      {std::to_string(profile.kernels.size()), "kernels in the plan"}};
  if (profile.gaps > 0) {
    figures.push_back({fmt::format("{:.1f} us", 1e6 * profile.gaps), "between kernels"});
  }
  if (profile.limit) {
    figures.push_back({percent(profile.limit->fraction(profile.total.median)),
                       fmt::format("of the limit ({}-bound)", profile.limit->bound())});
  }
  if (profile.device_use) figures.push_back({percent(profile.device_use->busy), "GPU busy"});
  page.section("Summary", prof::figures_html(figures));
  add_profile_sections(page, profile);
  add_environment(page, profile.machine);
  write_page(page, folder);
  if (profile.ceilings) {
    write_text_file(folder / "roofline.svg", with_mark(to_svg(roofline_of(profile))));
  }
  write_text_file(folder / "trace.json", profile.timeline.to_json());
}

}  // namespace ridgeline::engine
