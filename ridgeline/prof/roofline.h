#pragma once

#include <string>
#include <vector>

#include "ridgeline/prof/ceilings.h"

namespace ridgeline::prof {

// A kernel of a plan on the plot: where it is by its work and time, how large by its share.
struct RooflinePoint {
  std::string label;
  double flops = 0, bytes = 0, seconds = 0, share = 0;
};

// Arithmetic per byte against arithmetic per second, both logarithmic, under the measured roofs:
// a slope for each measured level of memory, a level for the arithmetic of the precision in use.
struct Roofline {
  std::string title;
  Ceilings ceilings;
  Precision precision = Precision::fp32;
  std::vector<RooflinePoint> points;
};

// A complete SVG file for light and dark pages. Points carry numbers, which the list below
// explains; kernels without arithmetic have no place on the plot, which the list says.
std::string to_svg(const Roofline& roofline);

// Boxes of equal size for the numbers beside circles, none over another or over a circle where that
// can be had; in order of the circles.
struct Circle {
  double x = 0, y = 0, r = 0;
};
struct Box {
  double x = 0, y = 0, width = 0, height = 0;  // x, y: upper left corner

  bool overlaps(const Box& other) const {
    return x < other.x + other.width && other.x < x + width && y < other.y + other.height &&
           other.y < y + height;
  }
};
std::vector<Box> place_labels(const std::vector<Circle>& circles, const Box& within, double width,
                              double height);

}  // namespace ridgeline::prof
