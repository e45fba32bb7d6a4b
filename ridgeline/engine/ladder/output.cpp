#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridgeline/core/json.h"
#include "ridgeline/engine/ladder/ladder.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/prof/text.h"

namespace ridgeline::engine {

std::string ladder_head() {
  return fmt::format("{:<14} {:>6} {:>5} {:>7} {:>12} {:>12} {:>14} {:>8} {:>8} {:>9}  {}\n",
                     "rung", "batch", "ranks", "threads", "us a step", "us an input", "inputs/s",
                     "gain", "in all", "of limit", "what");
}

std::string to_line(const RungResult& rung) {
  if (!rung.skipped.empty()) {
    return fmt::format("{:<14} skipped: {}\n", rung.name, rung.skipped.substr(0, 160));
  }
  std::string line = fmt::format(
      "{:<14} {:>6} {:>5} {:>7} {:>12.2f} {:>12.4f} {:>14} {:>7.2f}x {:>7.1f}x {:>9}  {}",
      rung.name, rung.batch, rung.ranks, rung.threads, rung.us_per_step, rung.us_per_input,
      grouped(1e6 / rung.us_per_input), rung.gain, rung.total_gain,
      rung.limit_fraction ? fmt::format("{:.0f} %", 100 * *rung.limit_fraction) : "-", rung.what);
  if (rung.founding_us > 0) line += fmt::format(" (founding record: {:.4g} us)", rung.founding_us);
  return line + "\n";
}

std::string to_json_text(const LadderResult& result) {
  nlohmann::json rungs = nlohmann::json::array();
  for (const RungResult& rung : result.rungs) {
    nlohmann::json entry = {{"rung", rung.name},           {"what", rung.what},
                            {"precision", rung.precision}, {"batch", rung.batch},
                            {"ranks", rung.ranks},         {"threads", rung.threads}};
    if (!rung.skipped.empty()) {
      entry["skipped"] = rung.skipped;
    } else {
      entry["us_per_step"] = rung.us_per_step;
      entry["us_per_input"] = rung.us_per_input;
      entry["gain"] = rung.gain;
      entry["total_gain"] = rung.total_gain;
      entry["error"] = rung.error;
      entry["bound"] = rung.bound;
      entry["kernels"] = rung.kernels;
      if (rung.limit_fraction) entry["limit_fraction"] = *rung.limit_fraction;
    }
    if (rung.founding_us > 0) entry["founding_us"] = rung.founding_us;
    rungs.push_back(std::move(entry));
  }
  const nlohmann::json document{{"ladder", result.ladder},
                                {"device", result.device},
                                {"machine", result.machine},
                                {"rungs", rungs}};
  return dump_json(document, 2) + "\n";
}

LadderResult ladder_from_json(const std::string& text) {
  const auto document = parse_json(text);
  LadderResult result;
  if (!document.is_object() || !document.contains("rungs")) return result;
  result.ladder = document.value("ladder", "");
  result.device = document.value("device", "");
  result.machine = document.value("machine", "");
  for (const auto& entry : document["rungs"]) {
    RungResult rung;
    rung.name = entry.value("rung", "");
    rung.what = entry.value("what", "");
    rung.precision = entry.value("precision", "");
    rung.batch = entry.value("batch", int64_t{0});
    rung.ranks = entry.value("ranks", 1);
    rung.threads = entry.value("threads", 0);
    rung.skipped = entry.value("skipped", "");
    rung.us_per_step = entry.value("us_per_step", 0.0);
    rung.us_per_input = entry.value("us_per_input", 0.0);
    rung.error = entry.value("error", 0.0);
    rung.bound = entry.value("bound", 0.0);
    rung.founding_us = entry.value("founding_us", 0.0);
    rung.kernels = entry.value("kernels", std::vector<std::string>{});
    if (entry.contains("limit_fraction")) rung.limit_fraction = entry.value("limit_fraction", 0.0);
    result.rungs.push_back(std::move(rung));
  }
  return result;
}

namespace {

// Draws one word per line, none wider than a step of the staircase.
void draw_name(std::string& svg, const std::string& name, double x, double y, double width) {
  constexpr double kSize = 12, kLine = 13, kLetter = 0.6;  // a letter's width over its size
  std::istringstream words(name);
  for (std::string word; words >> word; y += kLine) {
    const double size = std::min(kSize, (width - 3) / (kLetter * double(word.size())));
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        x, y, size, prof::xml_text(word));
  }
}

}  // namespace

std::string to_svg(const LadderResult& result) {
  constexpr double kWidth = 720, kHeight = 360, kLeft = 70, kRight = 20, kTop = 44, kBottom = 60;
  std::vector<const RungResult*> rungs;
  double low = INFINITY, high = 0;
  for (const RungResult& rung : result.rungs) {
    if (!rung.skipped.empty()) continue;
    rungs.push_back(&rung);
    for (const double us : {rung.us_per_input, rung.founding_us}) {
      if (us <= 0) continue;
      low = std::min(low, 1e6 / us);
      high = std::max(high, 1e6 / us);
    }
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"stairs\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\" "
      "aria-label=\"ladder\">\n<style>.stairs text{{fill:#333}}.stairs .grid{{stroke:#999;"
      "stroke-opacity:.35}}.stairs .old{{stroke:#d55e00;stroke-width:2;stroke-dasharray:5 3}}"
      "@media(prefers-color-scheme:dark){{.stairs text{{fill:#ddd}}}}</style>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"15\">{3}: inputs a second, rung by rung</text>\n",
      kWidth, kHeight, kLeft, prof::xml_text(result.ladder));
  if (rungs.empty()) return svg + "</svg>\n";
  auto out = std::back_inserter(svg);
  const double from = std::floor(std::log10(low)),
               to = std::max(from + 1, std::ceil(std::log10(high)));
  const auto y_of = [&](double rate) {
    return kHeight - kBottom - (std::log10(rate) - from) / (to - from) * (kHeight - kTop - kBottom);
  };
  for (double e = from; e <= to; ++e) {
    const double y = y_of(std::pow(10, e));
    fmt::format_to(out,
                   "<line class=\"grid\" x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\"/>"
                   "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
                   kLeft, y, kWidth - kRight, kLeft - 6, y + 4, engineering(std::pow(10, e)));
  }
  const double step = (kWidth - kLeft - kRight) / double(rungs.size());
  for (size_t i = 0; i < rungs.size(); ++i) {
    const RungResult& rung = *rungs[i];
    const double x = kLeft + step * double(i), y = y_of(1e6 / rung.us_per_input);
    fmt::format_to(out,
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                   "fill=\"#0072b2\" fill-opacity=\".75\"><title>{}</title></rect>\n"
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                   x + 4, y, step - 8, kHeight - kBottom - y, prof::xml_text(rung.what),
                   x + step / 2, y - 5, engineering(1e6 / rung.us_per_input));
    draw_name(svg, rung.name, x + step / 2, kHeight - kBottom + 15, step);
    if (i > 0) {
      fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.3g}x</text>\n",
                     x + step / 2, kHeight - kBottom + 46, rung.gain);
    }
    if (rung.founding_us > 0) {
      fmt::format_to(out,
                     "<line class=\"old\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" "
                     "y2=\"{1:.1f}\"><title>founding record</title></line>\n",
                     x + 2, y_of(1e6 / rung.founding_us), x + step - 2);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace ridgeline::engine
