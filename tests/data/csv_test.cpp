#include "ridgeline/data/csv.h"

#include <random>

#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using Records = std::vector<std::vector<std::string>>;

class CsvTest : public ::testing::Test {
 protected:
  Records read(std::string_view bytes, size_t chunk = 4096) {
    InputFile file(write_file(folder_ / "file.csv", bytes));
    ByteSource source(file);
    CsvReader reader(source, ',', chunk);
    Records records;
    for (std::vector<std::string_view> fields; reader.next(fields);) {
      records.emplace_back(fields.begin(), fields.end());
    }
    return records;
  }
  void refuse(std::string_view bytes, const std::vector<std::string>& parts) {
    for (const size_t chunk : {size_t{1}, size_t{4096}}) {
      const std::string line =
          expect_error(ErrorKind::data, parts, [&] { (void)read(bytes, chunk); });
      EXPECT_TRUE(line.starts_with((folder_ / "file.csv").string() + ": ")) << line;
    }
  }

  TempFolder folder_;
};

TEST_F(CsvTest, ReadsQuotesSeparatorsAndLineEndsInsideFields) {
  const Records want{{"1", "a,b", "say \"no\""}, {"2", "two\nlines", ""}, {"", "", "\""}};
  EXPECT_EQ(read("1,\"a,b\",\"say \"\"no\"\"\"\n2,\"two\nlines\",\n,,\"\"\"\"\n"), want);
}

TEST_F(CsvTest, TakesCrLfBomBlankLinesAndAMissingLastLineEnd) {
  const Records want{{"a", "b"}, {"c", "d"}};
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "a,b\r\n\r\n\n\"c\",\"d\""),
            want);
  EXPECT_EQ(read("\"a\",b\r\nc,d\r"), want);
  EXPECT_EQ(read(gzip("a,b\nc,d\n")), want);
  EXPECT_EQ(read(""), Records{});
  EXPECT_EQ(read("\n\r\n"), Records{});
  EXPECT_EQ(read("\"\"\n"), (Records{{""}}));  // an empty field, not a blank line
}

TEST_F(CsvTest, NamesThePlaceOfWhatIsWrong) {
  refuse("a,b\nc\n", {"line 2", "1 column,", "the first record has 2"});
  refuse("a,\"b\nc\nd", {"line 1", "column 2", "never closed"});
  refuse("a,b\n\"c\nd\",\"e", {"line 3", "column 2", "never closed"});
  refuse("a,\"b\"c\n", {"line 1", "column 2", "after the closing quote"});
  refuse(std::string_view("a,b\nc,d\0e\n", 10), {"line 2", "NUL"});
  refuse("a,b\n\"c\n\xff\",d\n", {"line 3", "0xff", "UTF-8"});
  refuse("a,\xed\xa0\x80\n", {"line 1", "0xed"});      // a surrogate
  refuse("a,\xc0\xaf\n", {"line 1", "0xc0"});          // overlong
  refuse("a,\xf4\x90\x80\x80\n", {"line 1", "0xf4"});  // past the last code point
  EXPECT_EQ(read("a,\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\n").size(), 1u);
}

// Whatever is written with quotes doubled is read back, wherever a chunk of the file may end.
TEST_F(CsvTest, ReadsBackRandomRecordsWithAnyChunk) {
  constexpr std::string_view kAlphabet = "ab\",\n\r ";
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const size_t columns = 1 + random() % 3;
    Records want;
    std::string bytes;
    for (size_t r = 0; r < 1 + random() % 6; ++r) {
      std::vector<std::string> record(columns);
      for (size_t c = 0; c < columns; ++c) {
        for (size_t i = 0; i < random() % 7; ++i) {
          record[c] += kAlphabet[random() % kAlphabet.size()];
        }
        if (c > 0) bytes += ',';
        bytes += '"';
        for (const char letter : record[c]) bytes.append(letter == '"' ? 2 : 1, letter);
        bytes += '"';
      }
      bytes += random() % 2 == 0 ? "\n" : "\r\n";
      want.push_back(std::move(record));
    }
    for (const size_t chunk : {1, 2, 3, 7, 4096}) {
      EXPECT_EQ(read(bytes, chunk), want) << bytes << " in chunks of " << chunk;
    }
  }
}

}  // namespace
}  // namespace ridgeline::data
