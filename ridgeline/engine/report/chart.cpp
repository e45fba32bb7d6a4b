#include "ridgeline/engine/report/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "ridgeline/prof/text.h"

namespace ridgeline::engine {
namespace {

constexpr double kWidth = 720, kHeight = 420;
constexpr double kLeft = 70, kRight = 170, kTop = 46, kBottom = 56;
constexpr double kLogRatio = 20;
constexpr size_t kMostDots = 60;  // per line; more would hide it
// These are also distinguishable for most colour-blind people.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#8c6bb1", "#666666"};

using prof::xml_text;

// Returns the labels as numbers, if all are numbers.
std::optional<std::vector<double>> numbers(const std::vector<std::string>& labels) {
  std::vector<double> values;
  for (const std::string& label : labels) {
    double value = 0;
    const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), value);
    if (error != std::errc() || end != label.data() + label.size() || !std::isfinite(value)) {
      return std::nullopt;
    }
    values.push_back(value);
  }
  return values;
}

// Returns the positions of the labels, scaled to [0, 1].
std::vector<double> positions(const Chart& chart) {
  const std::vector<std::string>& labels = chart.x;
  std::vector<double> at;
  if (chart.bars) {
    for (size_t i = 0; i < labels.size(); ++i) {
      at.push_back((double(i) + 0.5) / double(labels.size()));
    }
    return at;
  }
  if (!chart.at.empty()) {
    const auto [low, high] = std::minmax_element(chart.at.begin(), chart.at.end());
    for (const double v : chart.at) at.push_back(*high > *low ? (v - *low) / (*high - *low) : 0.5);
    return at;
  }
  if (auto values = numbers(labels); values && !values->empty()) {
    const auto [low, high] = std::minmax_element(values->begin(), values->end());
    const bool logarithmic = *low > 0 && *high / *low > kLogRatio;
    const double from = logarithmic ? std::log(*low) : *low,
                 to = logarithmic ? std::log(*high) : *high;
    for (const double value : *values) {
      const double v = logarithmic ? std::log(value) : value;
      at.push_back(to > from ? (v - from) / (to - from) : 0.5);
    }
    return at;
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    at.push_back(labels.size() > 1 ? double(i) / double(labels.size() - 1) : 0.5);
  }
  return at;
}

struct Axis {
  double low = 0, high = 1, tick = 0.2;

  double at(double value) const { return (value - low) / (high - low); }
};

// Returns an axis with round numbers around the data and about five ticks.
Axis round_axis(const Chart& chart) {
  double low = chart.bars ? 0 : INFINITY, high = chart.bars ? 0 : -INFINITY;
  for (const auto& line : chart.series) {
    for (const double y : line.y) {
      if (!std::isfinite(y)) continue;
      low = std::min(low, y);
      high = std::max(high, y);
    }
  }
  if (!(low <= high)) return {};
  if (high - low < 1e-12 * std::max(1.0, std::abs(high))) {
    const double pad = std::max(1e-3, 0.05 * std::abs(high));
    low -= pad;
    high += pad;
  }
  const double rough = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double tick = 10 * power;
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= rough) {
      tick = step * power;
      break;
    }
  }
  return {std::floor(low / tick) * tick, std::ceil(high / tick) * tick, tick};
}

double px(double x) { return kLeft + x * (kWidth - kLeft - kRight); }
double py(double y) { return kHeight - kBottom - y * (kHeight - kTop - kBottom); }

void draw_axes(std::string& svg, const Chart& chart, const Axis& axis,
               const std::vector<double>& at) {
  auto out = std::back_inserter(svg);
  const int ticks = int(std::lround((axis.high - axis.low) / axis.tick));
  for (int i = 0; i <= ticks; ++i) {
    const double value = axis.low + i * axis.tick, y = py(axis.at(value));
    fmt::format_to(
        out, "<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
        px(0), y, px(1), y);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}</text>\n",
                   kLeft - 8, y + 4, std::abs(value) < axis.tick * 1e-9 ? 0.0 : value);
  }
  double last = -1e9;
  for (size_t i = 0; i < at.size(); ++i) {
    if (chart.x[i].empty()) continue;
    if (std::abs(px(at[i]) - last) < 26) continue;  // labels must not overlap
    last = px(at[i]);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", last,
                   kHeight - kBottom + 18, xml_text(chart.x[i]));
  }
  fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                 (px(0) + px(1)) / 2, kHeight - 14, xml_text(chart.x_title));
  fmt::format_to(out,
                 "<text x=\"16\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 16 "
                 "{0:.1f})\">{1}</text>\n",
                 (py(0) + py(1)) / 2, xml_text(chart.y_title));
}

void draw_series(std::string& svg, const Chart::Series& line, size_t index, const Axis& axis,
                 const std::vector<double>& at) {
  auto out = std::back_inserter(svg);
  const char* colour = kColours[index % std::size(kColours)];
  std::string points, dots;
  std::vector<size_t> order(at.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return at[a] < at[b]; });
  for (const size_t i : order) {
    if (i >= line.y.size() || !std::isfinite(line.y[i])) continue;
    const double x = px(at[i]), y = py(axis.at(line.y[i]));
    points += fmt::format("{:.1f},{:.1f} ", x, y);
    if (line.dots || at.size() <= kMostDots) {
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"{}/>\n", x, y,
                          line.dots ? 2 : 3, colour, line.dots ? " fill-opacity=\".5\"" : "");
    }
  }
  if (line.dots) {
    svg += dots;
    points.clear();
    dots.clear();
  }
  fmt::format_to(out,
                 "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>\n{}",
                 colour, points, dots);
  if (line.name.empty()) return;
  const double y = kTop + 8 + 18.0 * double(index), x = kWidth - kRight + 14;
  fmt::format_to(out,
                 "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
                 "stroke-width=\"2\"/><text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                 x, y, x + 16, y, colour, x + 22, y + 4, xml_text(line.name));
}

void draw_bars(std::string& svg, const Chart::Series& series, const Axis& axis,
               const std::vector<double>& at) {
  auto out = std::back_inserter(svg);
  const double width = 0.8 * (px(1) - px(0)) / double(at.size());
  for (size_t i = 0; i < std::min(at.size(), series.y.size()); ++i) {
    if (!std::isfinite(series.y[i])) continue;
    const double x = px(at[i]), y = py(axis.at(series.y[i])), zero = py(axis.at(0));
    fmt::format_to(out,
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                   "fill=\"{}\"/>\n",
                   x - width / 2, y, width, zero - y, kColours[0]);
    if (width < 30) continue;
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.4g}</text>\n", x,
                   y - 5, series.y[i]);
  }
}

}  // namespace

std::string to_svg(const Chart& chart) {
  const double height = std::max(kHeight, kTop + 40 + 18.0 * double(chart.series.size()));
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" class=\"lines\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<style>.lines text{{fill:#333}}.lines .grid{{stroke:#999;stroke-opacity:.35}}"
      "@media(prefers-color-scheme:dark){{.lines text{{fill:#ddd}}}}</style>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"15\">{3}</text>\n",
      kWidth, height, kLeft, xml_text(chart.title));
  const Axis axis = round_axis(chart);
  const std::vector<double> at = positions(chart);
  draw_axes(svg, chart, axis, at);
  if (chart.bars && !chart.series.empty()) {
    draw_bars(svg, chart.series.front(), axis, at);
    return svg + "</svg>\n";
  }
  for (size_t i = 0; i < chart.series.size(); ++i) draw_series(svg, chart.series[i], i, axis, at);
  return svg + "</svg>\n";
}

}  // namespace ridgeline::engine
