#include "ridgeline/engine/report/scores_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/data/sets.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/engine/report/chart.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/prof/page.h"

namespace ridgeline::engine {
namespace {

constexpr size_t kMostPoints = 2000;  // of a scatter plot; more only enlarge the page
constexpr int kMostClasses = 200;     // of the table
constexpr int64_t kMostOutputs = 8;   // that are drawn

std::string chart_html(const Chart& chart) {
  return fmt::format("<div class=\"chart\">{}</div>\n", to_svg(chart));
}

std::string class_name(const Config& config, const data::Preparation* preparation, size_t c) {
  const data::SetInfo* known = data::find_known_set(config.data.name);
  const std::vector<std::string> none;
  const bool prepared = preparation != nullptr && preparation->target();
  const auto& names = prepared           ? preparation->target()->classes
                      : config.data.text ? config.data.text->coding.class_names
                      : known != nullptr ? known->class_names
                                         : none;
  const std::string number = std::to_string(c);
  return c >= names.size() || names[c] == number ? number : number + " " + names[c];
}

std::string classes_html(const data::SampleSet& set, const std::vector<float>& outputs,
                         const Config& config, const data::Preparation* preparation) {
  const auto labels = set.targets.span<const int32_t>();
  const std::vector<ClassScores> each = score_each_class(outputs, labels, set.classes);
  prof::HtmlTable table;
  table.head = {"class", "samples", "precision", "recall", "F1", "AUC"};
  for (size_t c = 0; c < each.size() && set.classes <= kMostClasses; ++c) {
    const auto number = [](double value) {
      return std::isnan(value) ? "-" : fmt::format("{:.4f}", value);
    };
    table.rows.push_back({class_name(config, preparation, c), fmt::format("{}", each[c].samples),
                          number(each[c].precision), number(each[c].recall), number(each[c].f1),
                          number(each[c].auc)});
  }
  Chart chart;
  chart.title = "calibration";
  chart.x_title = "confidence of the likeliest class";
  chart.y_title = "share that is right";
  Chart::Series model{"model", {}}, perfect{"perfect", {}};
  const auto add = [&](double confidence, double accuracy, const std::string& label) {
    chart.at.push_back(confidence);
    chart.x.push_back(label);
    model.y.push_back(accuracy);
    perfect.y.push_back(confidence);
  };
  for (int i = 0; i <= 5; ++i) add(0.2 * i, NAN, fmt::format("{:.1f}", 0.2 * i));
  for (const CalibrationBin& bin : calibration(outputs, labels, set.classes)) {
    if (bin.samples > 0) add(bin.confidence, bin.accuracy, "");
  }
  chart.series = {model, perfect};
  const bool probabilities = config.train.loss.kind == nn::LossKind::cross_entropy;
  return (table.rows.empty() ? "" : prof::table_html(table)) +
         (probabilities ? chart_html(chart) : "");
}

// Draws points (x, y) as dots, with about five labels on the x axis; `line` is where y equals x,
// else 0.
std::string scatter_html(const std::string& title, const std::string& y_title,
                         const std::vector<std::pair<double, double>>& points, bool diagonal) {
  Chart chart;
  chart.title = title;
  chart.x_title = "true";
  chart.y_title = y_title;
  Chart::Series dots{"test samples", {}, true}, line{diagonal ? "equal" : "none left over", {}};
  const auto [low, high] = std::ranges::minmax_element(points);
  for (int i = 0; i <= 4; ++i) {
    const double x = low->first + (high->first - low->first) * i / 4;
    chart.at.push_back(x);
    chart.x.push_back(fmt::format("{:.4g}", x));
    dots.y.push_back(NAN);
    line.y.push_back(diagonal ? x : 0);
  }
  for (const auto& [x, y] : points) {
    chart.at.push_back(x);
    chart.x.emplace_back();
    dots.y.push_back(y);
    line.y.push_back(NAN);
  }
  chart.series = {dots, line};
  return chart_html(chart);
}

// Values are in the units of the data if a preparation has scaled them.
std::string values_html(const data::SampleSet& set, const std::vector<float>& from,
                        const data::Preparation* preparation) {
  const auto floats = set.targets.span<const float>();
  std::vector<double> outputs(from.begin(), from.end()), targets(floats.begin(), floats.end());
  if (!target_units(preparation, set).empty()) {
    preparation->target()->restore(outputs);
    preparation->target()->restore(targets);
  }
  const auto width = size_t(set.outputs()), samples = size_t(set.size());
  const size_t stride = (samples + kMostPoints - 1) / kMostPoints;
  std::string html;
  for (size_t c = 0; c < std::min<size_t>(width, kMostOutputs); ++c) {
    std::vector<std::pair<double, double>> predicted, residual;
    for (size_t i = 0; i < samples; i += stride) {
      const double truth = targets[i * width + c], given = outputs[i * width + c];
      predicted.emplace_back(truth, given);
      residual.emplace_back(truth, given - truth);
    }
    const std::string which = width > 1 ? fmt::format(" of output {}", c) : "";
    html += scatter_html("predicted against true" + which, "predicted", predicted, true);
    html += scatter_html("residuals" + which, "predicted - true", residual, false);
  }
  return html;
}

}  // namespace

std::string scores_html(const Evaluation& test, const Trainer& trainer) {
  std::vector<std::pair<std::string, std::string>> figures;
  for (const auto& [metric, value] : metrics_of(test)) {
    const std::string text = to_text(metric, value);
    figures.emplace_back(text.substr(text.find(' ') + 1), std::string(name(metric)));
  }
  std::string html = prof::figures_html(figures);
  const data::SampleSet& set = trainer.set().test;
  const std::vector<float>& outputs = trainer.test_outputs();
  if (outputs.empty()) return html;
  const data::Preparation* preparation = trainer.set().preparation.get();
  return html + (set.has_values() ? values_html(set, outputs, preparation)
                                  : classes_html(set, outputs, trainer.config(), preparation));
}

}  // namespace ridgeline::engine
