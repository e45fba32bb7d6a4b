#include "ridgeline/engine/sweep/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ridgeline/core/text.h"
#include "ridgeline/engine/report/page.h"
#include "ridgeline/prof/text.h"

namespace ridgeline::engine {
namespace {

using prof::xml_text;

constexpr double kWidth = 720, kHeight = 380, kMargin = 60, kTop = 40, kBottom = 40;

bool is_better_larger(const std::string& metric) {
  for (const auto& [name, each] : kMetrics) {
    if (metric == name) return larger_is_better(each);
  }
  return metric == "inputs_per_second";
}

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double place(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

Extent extent_of(const std::vector<double>& values) {
  Extent extent;
  for (const double value : values) extent.add(value);
  return extent;
}

std::vector<double> metric_of_points(const Sweep& sweep, const std::string& metric) {
  std::vector<double> values;
  for (const SweepPoint& point : sweep.points) values.push_back(metric_of(point, metric));
  return values;
}

// Interpolates from grey, the worst, to orange.
std::string colour(double goodness) {
  const auto mix = [&](int from, int to) {
    return int(std::lround(from + (to - from) * goodness));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(200, 213), mix(200, 94), mix(205, 0));
}

std::string text_at(double x, double y, const std::string& text, const char* anchor = "middle") {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"12\" "
      "fill=\"currentColor\">{}</text>\n",
      x, y, anchor, xml_text(text));
}

std::string svg_head(const std::string& title) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
             "style=\"max-width:100%;height:auto\" font-family=\"sans-serif\" role=\"img\">\n",
             kWidth, kHeight) +
         text_at(kWidth / 2, 18, title);
}

// The last part of a key is a sufficient label: "lr" of "train.optimizer.lr".
std::string short_name(const std::string& key) { return key.substr(key.rfind('.') + 1); }

size_t index_of(const std::vector<std::string>& choices, const std::string& value) {
  return size_t(std::ranges::find(choices, value) - choices.begin());
}

}  // namespace

std::string parallel_coordinates_svg(const Sweep& sweep, const std::string& metric) {
  const std::vector<double> values = metric_of_points(sweep, metric);
  const Extent extent = extent_of(values);
  const size_t axes = sweep.keys.size() + 1;
  const double bottom = kHeight - kBottom;
  const auto x = [&](size_t axis) {
    return kMargin + (kWidth - 2 * kMargin) * double(axis) / double(axes - 1);
  };
  const auto y = [&](double place) { return bottom - (bottom - kTop) * place; };
  const auto place = [&](size_t key, const std::string& value) {
    const auto& choices = sweep.choices[key];
    if (choices.size() < 2) return 0.5;
    return double(index_of(choices, value)) / double(choices.size() - 1);
  };
  // The best are drawn last, on top.
  const bool larger = is_better_larger(metric);
  const auto goodness = [&](size_t i) {
    return larger ? extent.place(values[i]) : 1 - extent.place(values[i]);
  };
  std::vector<size_t> order;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) order.push_back(i);
  }
  std::ranges::sort(order, [&](size_t a, size_t b) { return goodness(a) < goodness(b); });
  std::string svg = svg_head(metric + " by settings");
  for (const size_t i : order) {
    svg += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"",
                       colour(goodness(i)));
    for (size_t key = 0; key + 1 < axes; ++key) {
      svg += fmt::format("{:.1f},{:.1f} ", x(key), y(place(key, sweep.points[i].values[key])));
    }
    svg += fmt::format("{:.1f},{:.1f}\"/>\n", x(axes - 1), y(extent.place(values[i])));
  }
  for (size_t axis = 0; axis < axes; ++axis) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"currentColor\"/>\n",
        x(axis), kTop, bottom);
    const bool is_metric = axis + 1 == axes;
    svg += text_at(x(axis), bottom + 22, is_metric ? metric : short_name(sweep.keys[axis]));
    if (is_metric) {
      if (order.empty()) continue;
      svg += text_at(x(axis) + 6, y(0), fmt::format("{:.4g}", extent.low), "start");
      svg += text_at(x(axis) + 6, y(1) + 4, fmt::format("{:.4g}", extent.high), "start");
      continue;
    }
    for (const std::string& choice : sweep.choices[axis]) {
      svg += text_at(x(axis) - 6, y(place(axis, choice)) + 4, choice, "end");
    }
  }
  return svg + "</svg>\n";
}

std::string heat_map_svg(const Sweep& sweep, const std::string& metric) {
  if (sweep.keys.size() < 2) return {};
  std::vector<size_t> keys(sweep.keys.size());
  std::iota(keys.begin(), keys.end(), size_t{0});
  std::ranges::stable_sort(
      keys, [&](size_t a, size_t b) { return sweep.choices[a].size() > sweep.choices[b].size(); });
  const size_t across = keys[0], down = keys[1];
  const auto& columns = sweep.choices[across];
  const auto& rows = sweep.choices[down];
  const bool larger = is_better_larger(metric);
  std::vector<double> best(columns.size() * rows.size(), std::numeric_limits<double>::quiet_NaN());
  const std::vector<double> values = metric_of_points(sweep, metric);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    double& cell = best[index_of(rows, sweep.points[i].values[down]) * columns.size() +
                        index_of(columns, sweep.points[i].values[across])];
    if (std::isnan(cell) || (larger ? values[i] > cell : values[i] < cell)) cell = values[i];
  }
  const Extent extent = extent_of(best);
  const double left = 2 * kMargin, wide = (kWidth - left - kMargin) / double(columns.size());
  const double high = (kHeight - kTop - kBottom - 20) / double(rows.size());
  std::string svg =
      svg_head(fmt::format("best {} over {} and {}", metric, short_name(sweep.keys[across]),
                           short_name(sweep.keys[down])));
  for (size_t r = 0; r < rows.size(); ++r) {
    const double y = kTop + high * double(r);
    svg += text_at(left - 8, y + high / 2 + 4, rows[r], "end");
    for (size_t c = 0; c < columns.size(); ++c) {
      const double value = best[r * columns.size() + c], x = left + wide * double(c);
      if (std::isnan(value)) continue;
      const double goodness = larger ? extent.place(value) : 1 - extent.place(value);
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\">"
          "<title>{}</title></rect>\n",
          x, y, wide - 1, high - 1, colour(goodness), fmt::format("{:.6g}", value));
    }
  }
  for (size_t c = 0; c < columns.size(); ++c) {
    svg += text_at(left + wide * (double(c) + 0.5), kHeight - kBottom, columns[c]);
  }
  svg += text_at(left + wide * double(columns.size()) / 2, kHeight - 16, sweep.keys[across]);
  svg += text_at(left - 8, kTop - 8, short_name(sweep.keys[down]), "end");
  return svg + "</svg>\n";
}

void write_report(const Sweep& sweep, const std::string& metric,
                  const std::filesystem::path& folder) {
  prof::Page page("Sweep", counted(int64_t(sweep.points.size()), "combination"));
  page.section("Over the settings", to_svg(to_chart(sweep, metric)));
  page.section("Each combination", parallel_coordinates_svg(sweep, metric));
  if (const std::string map = heat_map_svg(sweep, metric); !map.empty()) {
    page.section("Two settings at a time", map);
  }
  prof::HtmlTable table;
  table.head = sweep.keys;
  const std::vector<std::string> metrics = sweep_metrics(sweep);
  for (const std::string& each : metrics) table.head.push_back(each);
  for (const SweepPoint& point : sweep.points) {
    std::vector<std::string> row = point.values;
    for (const std::string& each : metrics) {
      const double value = metric_of(point, each);
      row.push_back(std::isfinite(value) ? fmt::format("{:.6g}", value) : "");
    }
    table.rows.push_back(std::move(row));
  }
  page.section("Results", prof::table_html(table));
  write_page(page, folder);
}

}  // namespace ridgeline::engine
