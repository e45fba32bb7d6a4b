#pragma once

#include <string>
#include <vector>

namespace ridgeline::engine {

// A line chart: one line per series over common positions on the x axis. Or bars from zero, side by
// side, of one series of counts or shares.
struct Chart {
  struct Series {
    std::string name;
    std::vector<double> y;  // one for each of `x`; NaN leaves a gap
    bool dots = false;      // draw points without lines
  };
  std::string title, x_title, y_title;
  std::vector<std::string> x;  // labels; placed by value if all are numbers, else evenly
  std::vector<double> at;      // if given: where each of `x` is on a linear axis; "" has no label
  std::vector<Series> series;
  bool bars = false;
};

// Returns a complete SVG file that suits light and dark pages. The x axis is logarithmic if its
// numbers are positive and span more than a factor of twenty.
std::string to_svg(const Chart& chart);

}  // namespace ridgeline::engine
