#include "ridgeline/prof/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridgeline/prof/text.h"

namespace ridgeline::prof {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Text, IsEscapedForItsFormat) {
  EXPECT_EQ(json_text("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
  EXPECT_EQ(xml_text("<a & \"b\">\n"), "&lt;a &amp; &quot;b&quot;&gt; ");
}

TEST(Page, HoldsItsSectionsAndNothingFromOutside) {
  Page page("a <title>", "sub & title");
  page.section("Loss and accuracy", "<p>here</p>");
  page.section("Empty", "");
  const std::string html = page.html();
  EXPECT_THAT(html, HasSubstr("<title>a &lt;title&gt;</title>"));
  EXPECT_THAT(html, HasSubstr("<section id=\"loss-and-accuracy\"><h2>Loss and accuracy</h2>"));
  EXPECT_THAT(html, HasSubstr("<a href=\"#loss-and-accuracy\">"));
  EXPECT_THAT(html, Not(HasSubstr("Empty")));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(html, HasSubstr("@media print"));
  EXPECT_THAT(html, HasSubstr("name=\"viewport\""));
  EXPECT_THAT(html, Not(HasSubstr("http")));
}

TEST(PageTable, EscapesCellsAndMarksWords) {
  HtmlTable table;
  table.head = {"kernel", "ops", "us"};
  table.left = {1};
  table.rows = {{"a<b", "linear", "1.5"}};
  const std::string html = table_html(table);
  EXPECT_THAT(html, HasSubstr("<td>a&lt;b</td><td class=\"word\">linear</td><td>1.5</td>"));
}

TEST(ConfusionTable, CountsAndShares) {
  const std::string html = confusion_html({{3, 1}, {0, 0}});
  EXPECT_THAT(html, HasSubstr(">3</td>"));
  EXPECT_THAT(html, HasSubstr("75.0 %"));
  EXPECT_THAT(html, HasSubstr("0.0 %"));  // a class without samples
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(TimelinePicture, DrawsTheLongestSpansOfEveryLane) {
  Timeline timeline;
  const auto a = timeline.lane(0, "kernels"), b = timeline.lane(1, "kernels");
  timeline.add({a, "long & wide", "kernel", 0, 1, {}});
  timeline.add({b, "other", "kernel", 0.5, 0.5, {}});
  timeline.add({b, "speck", "kernel", 0.1, 1e-6, {}});
  const std::string svg = timeline_svg(timeline, 2);
  EXPECT_THAT(svg, HasSubstr("long &amp; wide: 1 s"));
  EXPECT_THAT(svg, HasSubstr("kernels (rank 1)"));
  EXPECT_THAT(svg, HasSubstr("other: 500 ms"));
  EXPECT_THAT(svg, Not(HasSubstr("speck")));
  EXPECT_EQ(timeline_svg(Timeline{}), "");
}

TEST(GreyImage, IsAPngInThePage) {
  const uint8_t pixels[6] = {0, 50, 100, 150, 200, 250};
  const std::string html = grey_image_html(pixels, 3, 2, "a \"4\"");
  EXPECT_THAT(html, HasSubstr("alt=\"a &quot;4&quot;\""));
  // The signature and the length of the first chunk, 13, in base64.
  EXPECT_THAT(html, HasSubstr("src=\"data:image/png;base64,iVBORw0KGgoAAAAN"));
}

}  // namespace
}  // namespace ridgeline::prof
