#pragma once

#include <string>
#include <vector>

#include "ridgeline/prof/ceilings.h"

namespace ridgeline::prof {

// A kernel of a plan on the plot: its position by work and time, its size by its share.
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

// Returns a complete SVG file for light and dark pages. Points have numbers, which the list below
// explains; kernels without arithmetic are not on the plot, which the list says.
std::string to_svg(const Roofline& roofline);

// Places boxes of equal size for the numbers beside circles, without overlap with each other or a
// circle if possible; in order of the circles.
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
