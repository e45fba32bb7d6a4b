#include "ridgeline/core/text_format.h"

#include <gtest/gtest.h>

#include <vector>

#include "ridgeline/core/utf8.h"

namespace ridgeline {
namespace {

TEST(TextFormat, NearestIsTheFewestEditsAwayOrNone) {
  const std::vector<std::string_view> names{"train", "test", "batch"};
  EXPECT_EQ(nearest("trian", names), "train");
  EXPECT_EQ(nearest("batches", names), "batch");
  EXPECT_EQ(nearest("momentum", names), "");
  EXPECT_EQ(nearest("", names), "");
}

TEST(TextFormat, UnprintableCharactersAreSpeltOut) {
  EXPECT_EQ(printable("a b\xc3\xa4"), "a b\xc3\xa4");
  EXPECT_EQ(printable(std::string_view("a\0b\n\x1b[2J\x7f", 9)), "a\\x00b\\x0a\\x1b[2J\\x7f");
  EXPECT_EQ(one_line("a\r\nb\x1b"), "a  b\\x1b");
  EXPECT_EQ(quote("it"), "'it'");
  EXPECT_EQ(quote(std::string(121, 'x')), "'" + std::string(120, 'x') + "...'");
  EXPECT_EQ(printable("\xff\xc3 \xe2\x82"), "\\xff\\xc3 \\xe2\\x82");  // not UTF-8
  EXPECT_EQ(printable("\xc2\x9b\xc2\xa0"), "\\xc2\\x9b\xc2\xa0");      // a command, a space
  EXPECT_EQ(quote("\xc3\xa4 \xff"), "'\xc3\xa4 \\xff'");
}

TEST(TextFormat, LongTextsAreCutBetweenCharacters) {
  std::string umlauts;
  while (umlauts.size() < 10'000) umlauts += "\xc3\xa4";
  for (const std::string& text : {umlauts, "x" + umlauts, std::string(1'000'000, '\xff')}) {
    EXPECT_LT(quote(text).size(), 600u);
    EXPECT_LT(one_line(text).size(), 17'000u);  // four characters for a byte that is none
    EXPECT_EQ(find_invalid_utf8(quote(text)), std::string_view::npos);
    EXPECT_EQ(find_invalid_utf8(one_line(text)), std::string_view::npos);
  }
  EXPECT_EQ(quote(umlauts), std::string("'").append(umlauts, 0, 120) + "...'");
  const std::string line = one_line("begin " + umlauts + " end");
  EXPECT_TRUE(line.starts_with("begin ") && line.ends_with(" end"));
  EXPECT_NE(line.find("bytes left out"), std::string::npos);
  EXPECT_EQ(one_line(std::string(4096, 'x')), std::string(4096, 'x'));
}

TEST(TextFormat, ListsEndSomewhere) {
  EXPECT_EQ(list_words(std::vector<std::string>{"a", "b\n"}), "a, b\\x0a");
  EXPECT_EQ(list_words(std::vector<std::string>{}), "");
  const std::vector<std::string> many(100'000, std::string(1000, 'x'));
  const std::string list = list_words(many);
  EXPECT_LT(list.size(), 1000u);
  EXPECT_NE(list.find("... and 99996 more"), std::string::npos) << list;
}

}  // namespace
}  // namespace ridgeline
