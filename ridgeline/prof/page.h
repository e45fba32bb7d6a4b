#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/prof/timeline.h"

namespace ridgeline::prof {

// A self-contained HTML page: it loads nothing, follows the reader's light or dark setting, fits a
// phone and prints.
class Page {
 public:
  Page(std::string title, std::string subtitle);

  // `html` is inserted unchanged; headings are text.
  void section(const std::string& heading, const std::string& html);
  std::string html() const;

 private:
  std::string title_, subtitle_;
  std::vector<std::pair<std::string, std::string>> sections_;
};

// Large figures with a word below each.
std::string figures_html(const std::vector<std::pair<std::string, std::string>>& figures);

// Cells are text; all columns but the first are right-aligned numbers, unless `left` names them.
struct HtmlTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::vector<size_t> left;  // further columns of text
};
std::string table_html(const HtmlTable& table);

std::string paragraph_html(const std::string& text);

// Shows how often a class (row) was taken for another (column); darker means more of the row's sum.
std::string confusion_html(const std::vector<std::vector<int64_t>>& counts);

// Draws the rows of a timeline for a page; Timeline::to_json() is for zooming and measuring. The
// longest `most` spans are drawn.
std::string timeline_svg(const Timeline& timeline, size_t most = 600);

// <img> of grey pixels, row after row; `alt` is text.
std::string grey_image_html(std::span<const uint8_t> pixels, int width, int height,
                            const std::string& alt);

}  // namespace ridgeline::prof
