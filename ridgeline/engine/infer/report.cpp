#include "ridgeline/engine/infer/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridgeline/engine/infer/infer.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/engine/report/chart.h"
#include "ridgeline/engine/report/confusion.h"
#include "ridgeline/engine/report/page.h"

namespace ridgeline::engine {
namespace {

constexpr size_t kDoubts = 12, kTenths = 10;

std::string counts_chart(const std::string& title, const std::string& x_title,
                         const std::vector<std::string>& x, const std::vector<int64_t>& counts) {
  Chart chart;
  chart.title = title;
  chart.x_title = x_title;
  chart.y_title = "inputs";
  chart.x = x;
  chart.bars = true;
  chart.series = {{"", std::vector<double>(counts.begin(), counts.end())}};
  return fmt::format("<div class=\"chart\">{}</div>\n", to_svg(chart));
}

}  // namespace

InferPage::InferPage(int64_t classes, const Shape& sample, bool probabilities)
    : sample_(sample),
      probabilities_(probabilities),
      labels_(size_t(classes)),
      certainty_(kTenths) {}

void InferPage::add(int64_t index, int64_t label, std::span<const double> outputs,
                    std::span<const uint8_t> sample) {
  ++labels_[size_t(label)];
  const double largest = outputs[size_t(label)];
  if (std::isnan(largest)) return;  // the weights are unusable
  if (probabilities_) ++certainty_[std::min(kTenths - 1, size_t(largest * kTenths))];
  UncertainSample doubt{index, label, -1, largest, 0, largest, {}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (int64_t(i) == label || (doubt.second >= 0 && outputs[i] <= doubt.second_output)) continue;
    doubt.second = int64_t(i);
    doubt.second_output = outputs[i];
  }
  if (!probabilities_) doubt.certainty = largest - doubt.second_output;
  if (doubts_.size() == kDoubts && doubt.certainty >= doubts_.back().certainty) return;
  doubt.sample.assign(sample.begin(), sample.end());
  const auto at =
      std::upper_bound(doubts_.begin(), doubts_.end(), doubt.certainty,
                       [](double value, const UncertainSample& d) { return value < d.certainty; });
  doubts_.insert(at, std::move(doubt));
  if (doubts_.size() > kDoubts) doubts_.pop_back();
}

void InferPage::write(const std::filesystem::path& folder, const InferReport& report,
                      const std::string& model, const std::string& input,
                      const std::string& machine) const {
  prof::Page page("Inference", fmt::format("{} on {}", model, input));
  page.section("Summary",
               prof::figures_html(
                   {{grouped(double(report.samples)), "inputs"},
                    {grouped(report.seconds > 0 ? double(report.samples) / report.seconds : 0),
                     "inputs a second"},
                    {duration(report.seconds), "in the network"},
                    {std::to_string(labels_.size()), "classes"}}));
  std::vector<std::string> classes, tenths;
  for (size_t i = 0; i < labels_.size(); ++i) classes.push_back(std::to_string(i));
  for (size_t i = 0; i < kTenths; ++i) tenths.push_back(fmt::format("{:.1f}", double(i) / kTenths));
  page.section("Labels given", counts_chart("labels given", "label", classes, labels_));
  if (probabilities_) {
    page.section("Certainty", counts_chart("probability of the label given", "probability, from",
                                           tenths, certainty_));
  }
  std::string html;
  const auto [height, width] = image_extent(sample_);
  for (const UncertainSample& doubt : doubts_) {
    const auto shown = [&](double output) {
      return probabilities_ ? fmt::format("{:.0f} %", 100 * output) : fmt::format("{:.4g}", output);
    };
    html += fmt::format("<div class=\"pair\">input {}<br>{}: {}, {}: {}<br>", doubt.index,
                        doubt.label, shown(doubt.output), doubt.second, shown(doubt.second_output));
    if (height > 0) {
      html +=
          prof::grey_image_html(doubt.sample, width, height, fmt::format("input {}", doubt.index));
    }
    html += "</div>\n";
  }
  page.section("Least certain", html);
  add_environment(page, machine);
  write_page(page, folder);
}

}  // namespace ridgeline::engine
