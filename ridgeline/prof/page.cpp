#include "ridgeline/prof/page.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "ridgeline/prof/text.h"

namespace ridgeline::prof {
namespace {

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--text:#1d2126;--quiet:#5b6470;--page:#fff;--card:#f5f6f8;
--line:#d9dde3;--accent:#0a66b0}
@media(prefers-color-scheme:dark){:root{--text:#e4e7eb;--quiet:#9aa4b0;--page:#14171b;
--card:#1e2328;--line:#363d46;--accent:#63b0f4}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem;max-width:60rem;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:0 0 .6rem}
p{margin:.4rem 0}.quiet{color:var(--quiet)}a{color:var(--accent)}
nav{display:flex;flex-wrap:wrap;gap:.3rem 1rem;margin:.8rem 0 1.2rem;font-size:.9rem}
section{margin:1.6rem 0;break-inside:avoid-page}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem}
.figures div{background:var(--card);border-radius:.5rem;padding:.6rem .8rem}
.figures b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums}
.figures span{color:var(--quiet);font-size:.85rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .55rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{color:var(--quiet);font-weight:600}th:first-child,td:first-child,.word{text-align:left}
.confusion td,.confusion th{text-align:center;min-width:2.2rem;border:1px solid var(--line);
padding:.25rem .3rem}
.confusion td{position:relative}.confusion .hit{font-weight:600}
svg{max-width:100%;height:auto}
.pair{display:inline-block;margin:.8rem 1.2rem 0 0;vertical-align:top;font-size:.85rem}
.pair img{width:3.2rem;height:3.2rem;image-rendering:pixelated;margin:.15rem .15rem 0 0;
border:1px solid var(--line)}
pre{background:var(--card);padding:.7rem;border-radius:.5rem;overflow-x:auto;font-size:.8rem}
@media(max-width:34rem){body{padding:.7rem}.figures{grid-template-columns:1fr 1fr}
.chart{overflow-x:auto}.chart svg{min-width:34rem}}
@media print{:root{--text:#000;--page:#fff;--card:#fff;--line:#999;--quiet:#333}
body{max-width:none}nav{display:none}.wide,pre{overflow:visible}pre{white-space:pre-wrap}
table{font-size:.65rem}th,td{padding:.1rem .25rem}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
)";

// "Loss and accuracy" -> "loss-and-accuracy"
std::string anchor(const std::string& heading) {
  std::string id;
  for (const char c : heading) {
    id += std::isalnum(static_cast<unsigned char>(c)) != 0
              ? char(std::tolower(static_cast<unsigned char>(c)))
              : '-';
  }
  return id;
}

std::string base64(std::string_view bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? uint8_t(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

void put_big_endian(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(char(value >> shift));
}

void put_png_chunk(std::string& png, std::string_view type, std::string_view data) {
  put_big_endian(png, uint32_t(data.size()));
  std::string checked(type);
  checked.append(data);
  png += checked;
  put_big_endian(png, uint32_t(crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                                     uInt(checked.size()))));
}

std::string grey_png(std::span<const uint8_t> pixels, int width, int height) {
  std::string lines;  // each preceded by its filter: none
  for (int y = 0; y < height; ++y) {
    lines.push_back(0);
    lines.append(reinterpret_cast<const char*>(pixels.data()) + size_t(y) * size_t(width),
                 size_t(width));
  }
  uLongf size = compressBound(uLong(lines.size()));
  std::string packed(size, '\0');
  compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
            reinterpret_cast<const Bytef*>(lines.data()), uLong(lines.size()), 9);
  packed.resize(size);
  std::string head;
  put_big_endian(head, uint32_t(width));
  put_big_endian(head, uint32_t(height));
  head += std::string("\x08\0\0\0\0", 5);  // 8 bits, grey
  std::string png = "\x89PNG\r\n\x1a\n";
  put_png_chunk(png, "IHDR", head);
  put_png_chunk(png, "IDAT", packed);
  put_png_chunk(png, "IEND", "");
  return png;
}

// The same name has the same colour on every page.
int hue_of(std::string_view name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ uint8_t(c)) * 16777619u;
  return int(hash % 360);
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.4g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.4g} ms", 1e3 * seconds);
  return fmt::format("{:.4g} us", 1e6 * seconds);
}

}  // namespace

Page::Page(std::string title, std::string subtitle)
    : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

void Page::section(const std::string& heading, const std::string& html) {
  if (!html.empty()) sections_.emplace_back(heading, html);
}

std::string Page::html() const {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"generator\" content=\"ridgeline\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{0}</title>\n<style>{1}</style></head>\n"
      "<body>\n<h1>{0}</h1>\n<p class=\"quiet\">{2}</p>\n<nav>",
      xml_text(title_), kStyle, xml_text(subtitle_));
  for (const auto& [heading, html] : sections_) {
    out += fmt::format("<a href=\"#{}\">{}</a>", anchor(heading), xml_text(heading));
  }
  out += "</nav>\n";
  for (const auto& [heading, html] : sections_) {
    out += fmt::format("<section id=\"{}\"><h2>{}</h2>\n{}</section>\n", anchor(heading),
                       xml_text(heading), html);
  }
  return out + "</body></html>\n";
}

std::string figures_html(const std::vector<std::pair<std::string, std::string>>& figures) {
  std::string out = "<div class=\"figures\">";
  for (const auto& [value, label] : figures) {
    out += fmt::format("<div><b>{}</b><span>{}</span></div>", xml_text(value), xml_text(label));
  }
  return out + "</div>\n";
}

std::string table_html(const HtmlTable& table) {
  const auto cell = [&](const char* tag, size_t column, const std::string& text) {
    const bool word = std::find(table.left.begin(), table.left.end(), column) != table.left.end();
    return fmt::format("<{0}{1}>{2}</{0}>", tag, word ? " class=\"word\"" : "", xml_text(text));
  };
  std::string out = "<div class=\"wide\"><table><thead><tr>";
  for (size_t i = 0; i < table.head.size(); ++i) out += cell("th", i, table.head[i]);
  out += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) out += cell("td", i, row[i]);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string paragraph_html(const std::string& text) {
  return fmt::format("<p>{}</p>\n", xml_text(text));
}

std::string confusion_html(const std::vector<std::vector<int64_t>>& counts) {
  std::string out =
      "<p class=\"quiet\">A row is the true class, a column the one given.</p>\n"
      "<div class=\"wide\"><table class=\"confusion\"><thead><tr><th></th>";
  for (size_t i = 0; i < counts.size(); ++i) out += fmt::format("<th>{}</th>", i);
  out += "<th>right</th></tr></thead><tbody>\n";
  for (size_t row = 0; row < counts.size(); ++row) {
    int64_t sum = 0;
    for (const int64_t count : counts[row]) sum += count;
    out += fmt::format("<tr><th>{}</th>", row);
    for (size_t column = 0; column < counts[row].size(); ++column) {
      const int64_t count = counts[row][column];
      const double share = sum > 0 ? double(count) / double(sum) : 0;
      const bool hit = row == column;
      // Errors are visible early: one in ten already has half the depth.
      const double depth = hit ? 0.35 * share : std::min(0.75, 4 * share);
      out += fmt::format("<td{} style=\"background:rgba({},{:.2f})\">{}</td>",
                         hit ? " class=\"hit\"" : "", hit ? "0,140,90" : "214,70,0", depth,
                         count > 0 ? std::to_string(count) : "");
    }
    const double right = sum > 0 ? double(counts[row][row]) / double(sum) : 0;
    out += fmt::format("<td>{:.1f} %</td></tr>\n", 100 * right);
  }
  return out + "</tbody></table></div>\n";
}

std::string timeline_svg(const Timeline& timeline, size_t most) {
  constexpr double kWidth = 720, kLeft = 110, kLane = 26, kTop = 8;
  double begin = 1e300, end = -1e300;
  std::vector<const Timeline::Span*> spans;
  for (const Timeline::Span& span : timeline.spans()) {
    begin = std::min(begin, span.begin);
    end = std::max(end, span.begin + span.seconds);
    spans.push_back(&span);
  }
  if (spans.empty() || !(end > begin)) return {};
  std::stable_sort(spans.begin(), spans.end(),
                   [](const auto* a, const auto* b) { return a->seconds > b->seconds; });
  if (spans.size() > most) spans.resize(most);
  const double height = kTop + kLane * double(timeline.lanes().size()) + 24;
  const double scale = (kWidth - kLeft - 8) / (end - begin);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lanes\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" font-size=\"11\" role=\"img\" "
      "aria-label=\"timeline\">\n<style>.lanes text{{fill:#333}}.lanes .in{{fill:#fff;"
      "pointer-events:none}}@media(prefers-color-scheme:dark){{.lanes text{{fill:#ddd}}"
      ".lanes .in{{fill:#fff}}}}</style>\n",
      kWidth, height);
  auto out = std::back_inserter(svg);
  for (size_t i = 0; i < timeline.lanes().size(); ++i) {
    const auto& lane = timeline.lanes()[i];
    const std::string name =
        lane.rank > 0 ? fmt::format("{} (rank {})", lane.name, lane.rank) : lane.name;
    fmt::format_to(out, "<text x=\"4\" y=\"{:.1f}\">{}</text>\n", kTop + kLane * double(i) + 16,
                   xml_text(name.substr(0, 18)));
  }
  for (const Timeline::Span* span : spans) {
    const double x = kLeft + (span->begin - begin) * scale, width = span->seconds * scale;
    const double y = kTop + kLane * double(span->lane);
    fmt::format_to(out,
                   "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" "
                   "fill=\"hsl({} 50% 42%)\"><title>{}: {}</title></rect>\n",
                   x, y, std::max(0.4, width), kLane - 4, hue_of(span->name), xml_text(span->name),
                   time_text(span->seconds));
    const auto letters = size_t(std::max(0.0, width - 6) / 6.2);
    if (letters >= 4) {
      fmt::format_to(out, "<text class=\"in\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x + 3, y + 15,
                     xml_text(span->name.substr(0, letters)));
    }
  }
  fmt::format_to(out,
                 "<text x=\"{}\" y=\"{:.1f}\">0</text><text x=\"{}\" y=\"{:.1f}\" "
                 "text-anchor=\"end\">{}</text>\n</svg>\n",
                 kLeft, height - 8, kWidth - 8, height - 8, time_text(end - begin));
  return svg;
}

std::string grey_image_html(std::span<const uint8_t> pixels, int width, int height,
                            const std::string& alt) {
  return fmt::format("<img alt=\"{}\" src=\"data:image/png;base64,{}\">", xml_text(alt),
                     base64(grey_png(pixels, width, height)));
}

}  // namespace ridgeline::prof
