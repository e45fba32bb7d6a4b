#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/prof/timeline.h"

namespace ridgeline::prof {

// A self-contained HTML page: nothing is loaded from anywhere, it follows the reader's light or
// dark setting, fits a phone and prints.
class Page {
 public:
  Page(std::string title, std::string subtitle);

  // `html` is taken as it is; headings are text.
  void section(const std::string& heading, const std::string& html);
  std::string html() const;

 private:
  std::string title_, subtitle_;
  std::vector<std::pair<std::string, std::string>> sections_;
};

// Large figures with a word below each.
std::string figures_html(const std::vector<std::pair<std::string, std::string>>& figures);

// Cells are text; all but the first column are numbers, set to the right, unless `left` says so.
struct HtmlTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::vector<size_t> left;  // further columns of words
};
std::string table_html(const HtmlTable& table);

std::string paragraph_html(const std::string& text);

// How often a class (row) was taken for another (column); darker is more, of the row's own sum.
std::string confusion_html(const std::vector<std::vector<int64_t>>& counts);

// A picture of lanes over time, for a page: to zoom and measure there is Timeline::to_json(). The
// longest `most` spans are drawn.
std::string timeline_svg(const Timeline& timeline, size_t most = 600);

// <img> of grey pixels, row after row; `alt` is text.
std::string grey_image_html(std::span<const uint8_t> pixels, int width, int height,
                            const std::string& alt);

}  // namespace ridgeline::prof
