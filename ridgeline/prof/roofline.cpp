#include "ridgeline/prof/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ridgeline/prof/text.h"

namespace ridgeline::prof {
namespace {

using Out = std::back_insert_iterator<std::string>;

constexpr double kWidth = 720, kPlotHeight = 420;
constexpr double kLeft = 66, kRight = 24, kTop = 44, kBottom = 46;
constexpr double kLine = 17;  // of the list below
constexpr double kLabelWidth = 15, kLabelHeight = 12;
// These are also distinguishable for most colour-blind people.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#8c6bb1", "#666666"};

std::string scaled(double value) {  // "12 G", "3.4 T"
  constexpr std::pair<double, const char*> kScales[] = {
      {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, letter] : kScales) {
    if (value >= scale) return fmt::format("{:.3g} {}", value / scale, letter);
  }
  return fmt::format("{:.3g} ", value);
}

// A logarithmic axis over whole powers of ten.
struct LogAxis {
  double low = 0, high = 1;  // exponents
  double from = 0, to = 1;   // pixels of the ends

  static LogAxis over(double least, double most, double from, double to) {
    LogAxis axis;
    axis.low = std::floor(std::log10(least));
    axis.high = std::max(axis.low + 1, std::ceil(std::log10(most)));
    axis.from = from;
    axis.to = to;
    return axis;
  }
  double at(double value) const {
    return from + (std::log10(value) - low) / (high - low) * (to - from);
  }
};

struct Plot {
  LogAxis x, y;
  double peak = 0;  // of arithmetic
};

bool has_place(const RooflinePoint& point) {
  return point.flops > 0 && point.bytes > 0 && point.seconds > 0;
}

Plot make_plot(const Roofline& roofline) {
  Plot plot;
  plot.peak = roofline.ceilings.flops(roofline.precision);
  double left = 0.1, right = 100, low = plot.peak / 100, high = plot.peak * 1.5;
  for (const RooflinePoint& point : roofline.points) {
    if (!has_place(point)) continue;
    const double intensity = point.flops / point.bytes, rate = point.flops / point.seconds;
    left = std::min(left, intensity);
    right = std::max(right, intensity);
    low = std::min(low, rate);
    high = std::max(high, rate);
  }
  if (const double slow = roofline.ceilings.memory_bandwidth(); slow > 0) {
    right = std::max(right, plot.peak / slow);  // the ridge is in the picture
  }
  plot.x = LogAxis::over(left, right, kLeft, kWidth - kRight);
  plot.y = LogAxis::over(low, high, kPlotHeight - kBottom, kTop);
  return plot;
}

void draw_axes(Out out, const Plot& plot) {
  const double bottom = plot.y.from, top = plot.y.to;
  for (double e = plot.x.low; e <= plot.x.high; ++e) {
    const double x = plot.x.at(std::pow(10, e));
    fmt::format_to(out,
                   "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" "
                   "y2=\"{2:.1f}\"/><text x=\"{0:.1f}\" y=\"{3:.1f}\" "
                   "text-anchor=\"middle\">{4:.4g}</text>\n",
                   x, bottom, top, bottom + 17, std::pow(10, e));
  }
  for (double e = plot.y.low; e <= plot.y.high; ++e) {
    const double y = plot.y.at(std::pow(10, e));
    fmt::format_to(out,
                   "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" "
                   "y2=\"{1:.1f}\"/><text x=\"{3:.1f}\" y=\"{4:.1f}\" "
                   "text-anchor=\"end\">{5}</text>\n",
                   plot.x.from, y, plot.x.to, plot.x.from - 6, y + 4, scaled(std::pow(10, e)));
  }
  fmt::format_to(
      out,
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">FLOP per byte moved</text>\n"
      "<text x=\"14\" y=\"{:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 14 "
      "{:.1f})\">FLOP/s</text>\n",
      (plot.x.from + plot.x.to) / 2, bottom + 36, (bottom + top) / 2, (bottom + top) / 2);
}

// Draws the slope of one level of memory up to the ridge, with its name along the slope.
void draw_slope(Out out, const Plot& plot, const Bandwidth& level, bool memory, double& last_y) {
  const double left = std::pow(10, plot.x.low), floor = std::pow(10, plot.y.low);
  const double from = std::max(left, floor / level.rate), ridge = plot.peak / level.rate;
  if (ridge <= from) return;
  const double x1 = plot.x.at(from), y1 = plot.y.at(from * level.rate);
  const double x2 = plot.x.at(ridge), y2 = plot.y.at(plot.peak);
  fmt::format_to(out,
                 "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                 memory ? "roof" : "roof thin", x1, y1, x2, y2);
  // Levels of nearly the same rate overlap, so one name is enough.
  if (std::abs(y1 - last_y) < 16 && x1 == plot.x.from && !memory) return;
  last_y = y1;
  const double angle = std::atan2(y2 - y1, x2 - x1) * 180 / 3.14159265358979;
  // The last one's name is below its slope, where there is no other slope.
  const double tx = x1 + 0.06 * (x2 - x1), ty = y1 + 0.06 * (y2 - y1) + (memory ? 14 : -4);
  fmt::format_to(out,
                 "<text class=\"name\" x=\"{0:.1f}\" y=\"{1:.1f}\" transform=\"rotate({2:.1f} "
                 "{0:.1f} {1:.1f})\">{3}B/s {4}</text>\n",
                 tx, ty, angle, scaled(level.rate),
                 memory ? std::string("memory") : "within " + scaled(level.bytes) + "B");
}

void draw_roofs(Out out, const Plot& plot, const Roofline& roofline) {
  double last_y = -1e9;
  const auto& levels = roofline.ceilings.bandwidths;
  for (size_t i = 0; i < levels.size(); ++i) {
    draw_slope(out, plot, levels[i], i + 1 == levels.size(), last_y);
  }
  if (plot.peak <= 0) return;
  double fastest = 1;
  for (const Bandwidth& level : levels) fastest = std::max(fastest, level.rate);
  const double ridge =
      std::clamp(plot.x.at(std::max(1e-30, plot.peak / fastest)), plot.x.from, plot.x.to);
  // The name is where the roof begins: no kernel reaches the peak rate with so few flops per byte.
  fmt::format_to(out,
                 "<line class=\"roof\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" "
                 "y2=\"{1:.1f}\"/><text class=\"name\" x=\"{0:.1f}\" y=\"{3:.1f}\">{4}FLOP/s "
                 "{5}</text>\n",
                 ridge, plot.y.at(plot.peak), plot.x.to, plot.y.at(plot.peak) - 6,
                 scaled(plot.peak), name(roofline.precision));
}

void draw_points(Out out, const Plot& plot, const Roofline& roofline) {
  std::vector<Circle> circles;
  std::vector<size_t> drawn;
  for (size_t i = 0; i < roofline.points.size(); ++i) {
    const RooflinePoint& point = roofline.points[i];
    if (!has_place(point)) continue;
    // The area is the share: a kernel with all of the time is as large as the line of numbers
    // allows.
    circles.push_back({plot.x.at(point.flops / point.bytes), plot.y.at(point.flops / point.seconds),
                       4 + 14 * std::sqrt(point.share)});
    drawn.push_back(i);
  }
  const Box within{kLeft, kTop, kWidth - kLeft - kRight, kPlotHeight - kTop - kBottom};
  const auto boxes = place_labels(circles, within, kLabelWidth, kLabelHeight);
  for (size_t k = 0; k < circles.size(); ++k) {
    const RooflinePoint& point = roofline.points[drawn[k]];
    fmt::format_to(out,
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\" "
                   "fill-opacity=\".6\" stroke=\"{}\"><title>{}</title></circle>\n",
                   circles[k].x, circles[k].y, circles[k].r,
                   kColours[drawn[k] % std::size(kColours)],
                   kColours[drawn[k] % std::size(kColours)], xml_text(point.label));
  }
  for (size_t k = 0; k < boxes.size(); ++k) {
    fmt::format_to(out,
                   "<text class=\"number\" x=\"{:.1f}\" y=\"{:.1f}\" "
                   "text-anchor=\"middle\">{}</text>\n",
                   boxes[k].x + kLabelWidth / 2, boxes[k].y + kLabelHeight - 2, drawn[k] + 1);
  }
}

// The list has two columns.
size_t list_lines(const Roofline& roofline) { return (roofline.points.size() + 1) / 2; }

void draw_list(Out out, const Roofline& roofline) {
  const size_t lines = list_lines(roofline);
  for (size_t i = 0; i < roofline.points.size(); ++i) {
    const RooflinePoint& point = roofline.points[i];
    const double x = kLeft - 20 + (i / lines) * (kWidth - kLeft) / 2;
    const double y = kPlotHeight + 12 + kLine * double(i % lines);
    fmt::format_to(out,
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/><text x=\"{:.1f}\" "
                   "y=\"{:.1f}\">{}  {} ({:.0f} %{})</text>\n",
                   x, y - 4, kColours[i % std::size(kColours)], x + 12, y, i + 1,
                   xml_text(point.label.substr(0, 40)), 100 * point.share,
                   has_place(point) ? "" : "; not drawn");
  }
}

}  // namespace

std::vector<Box> place_labels(const std::vector<Circle>& circles, const Box& within, double width,
                              double height) {
  std::vector<Box> placed;
  const auto covered = [&](const Box& box) {
    double amount = 0;
    for (const Box& other : placed) amount += box.overlaps(other) ? 10 : 0;
    for (const Circle& circle : circles) {
      const Box around{circle.x - circle.r, circle.y - circle.r, 2 * circle.r, 2 * circle.r};
      amount += box.overlaps(around) ? 1 : 0;
    }
    const bool inside = box.x >= within.x && box.y >= within.y &&
                        box.x + width <= within.x + within.width &&
                        box.y + height <= within.y + within.height;
    return amount + (inside ? 0 : 5);
  };
  for (const Circle& circle : circles) {
    Box best;
    double least = 1e9;
    // Tries rings of growing distance; the first free position is the nearest.
    for (double ring = 0; ring < 8 && least > 0; ++ring) {
      for (int direction = 0; direction < 16 && least > 0; ++direction) {
        const double angle = direction * 2 * 3.14159265358979 / 16;
        const double reach = circle.r + 3 + ring * height;
        const Box box{circle.x + (reach + width / 2) * std::cos(angle) - width / 2,
                      circle.y - (reach + height / 2) * std::sin(angle) - height / 2, width,
                      height};
        const double amount = covered(box);
        if (amount < least) {
          least = amount;
          best = box;
        }
      }
    }
    placed.push_back(best);
  }
  return placed;
}

std::string to_svg(const Roofline& roofline) {
  const double height = kPlotHeight + 20 + kLine * double(list_lines(roofline));
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"roofline\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\" "
      "aria-label=\"roofline\">\n"
      "<style>.roofline text{{fill:#333}}.roofline .grid{{stroke:#999;stroke-opacity:.3}}"
      ".roofline .roof{{stroke:#333;stroke-width:2}}.roofline .thin{{stroke-width:1;"
      "stroke-dasharray:5 3}}.roofline .name{{font-size:11px}}.roofline .number{{font-size:11px;"
      "font-weight:bold}}.roofline .name,.roofline "
      ".number{{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-opacity:.8}}"
      "@media(prefers-color-scheme:dark){{.roofline text{{fill:#ddd}}"
      ".roofline .roof{{stroke:#ddd}}.roofline .name,.roofline .number{{stroke:#14171b}}}}@media "
      "print{{.roofline "
      "text{{fill:#000}}.roofline .roof{{"
      "stroke:#000}}.roofline .name,.roofline .number{{stroke:#fff}}}}</style>\n"
      "<text x=\"{2}\" y=\"22\" font-size=\"15\">{3}</text>\n",
      kWidth, height, kLeft, xml_text(roofline.title));
  Out out(svg);
  const Plot plot = make_plot(roofline);
  draw_axes(out, plot);
  draw_roofs(out, plot, roofline);
  draw_points(out, plot, roofline);
  draw_list(out, roofline);
  return svg + "</svg>\n";
}

}  // namespace ridgeline::prof
