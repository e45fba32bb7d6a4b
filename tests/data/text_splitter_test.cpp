#include "ridgeline/data/text_splitter.h"

#include "ridgeline/data/idx.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using Lines = std::vector<std::string>;

class SplitterTest : public ::testing::Test {
 protected:
  static void read_all(TextReader& reader, Lines& all) {
    for (TextRecord record; reader.next(record);) {
      all.push_back(std::to_string(record.line) + "|" + std::string(record.text));
    }
  }

  // The records of a file, read in blocks of so many.
  Lines in_blocks(const std::filesystem::path& path, const TextColumns& columns, int64_t size) {
    TextSplitter splitter(open_bytes(path), columns);
    Lines all;
    for (;;) {
      std::vector<uint8_t> bytes{'x'};  // what is there before is left alone
      const TextSplitter::Block block = splitter.next(size, bytes);
      if (block.records == 0) break;
      const size_t before = all.size();
      const auto body = std::as_bytes(std::span(bytes).subspan(1));
      const auto reader = open_text(std::make_unique<MemoryStream>(body, path.string()),
                                    splitter.columns(), block.place);
      read_all(*reader, all);
      EXPECT_EQ(int64_t(all.size() - before), block.records);
      EXPECT_LE(block.records, size);
      EXPECT_EQ(bytes[0], 'x');
    }
    return all;
  }

  void expect_same(std::string_view name, std::string_view bytes, TextColumns columns) {
    const auto path = write_file(folder_ / name, bytes);
    columns.format = text_format(path);
    Lines whole;
    read_all(*open_text(path, columns), whole);
    EXPECT_FALSE(whole.empty());
    for (const int64_t size : {1, 2, 3, 100}) {
      EXPECT_EQ(in_blocks(path, columns, size), whole) << name << ' ' << size;
    }
  }

  TempFolder folder_;
};

TEST_F(SplitterTest, PiecesHoldTheRecordsOfTheWhole) {
  const std::string csv =
      "\xef\xbb\xbf"
      "1,\"a, \"\"quoted\"\"\nline\",x\r\n\n\r\n2,plain 5\" pipe,y\n3,\"\",\"\"\n\n4,last,z";
  expect_same("a.csv", csv, {.text = {"2", "3"}});
  expect_same("b.csv.gz", gzip("id,body,more\n" + csv.substr(3)), {.text = {"body"}});
  expect_same("a.txt", "one\r\n\ntwo\n\n\nthree", {});
  expect_same("a.jsonl", "{\"text\":\"a\"}\n\n  \n{\"text\":\"b\\n\"}\r\n{\"text\":\"c\"}", {});
}

// A byte order mark is one at the beginning of a file; anywhere else it is a character of a text.
TEST_F(SplitterTest, MarksInsideAFileAreText) {
  const std::string mark = "\xef\xbb\xbf";
  const std::string lines = mark + mark + "a\n" + mark + "b\n" + mark + "\n" + mark;
  expect_same("m.txt", lines, {});
  expect_same("m.txt.gz", gzip(lines), {});
  Lines whole;
  read_all(*open_text(folder_ / "m.txt", {}), whole);
  EXPECT_EQ(whole, (Lines{"1|" + mark + "a", "2|" + mark + "b", "3|" + mark, "4|" + mark}));
  const std::string csv = mark + "a," + mark + "\n" + mark + "b,c\n" + mark + ",d\n";
  expect_same("m.csv", csv, {.text = {"1", "2"}});
}

TEST_F(SplitterTest, LongRecordsMakePiecesOfFew) {
  const size_t most = TextSplitter::kMostBytes;
  const std::string long_line(most / 2 + 1, 'x');
  std::string text;
  for (int i = 0; i < 5; ++i) text += long_line + "\n" + std::string(3, '\n');
  expect_same("long.txt", text, {});
  const auto path = write_file(folder_ / "long.txt", text);
  TextSplitter splitter(open_bytes(path), {.format = TextFormat::lines});
  int64_t records = 0;
  for (;;) {
    std::vector<uint8_t> bytes;
    const int64_t got = splitter.next(1000, bytes).records;
    records += got;
    EXPECT_LE(bytes.size(), most + long_line.size() + 1);
    if (got == 0) break;
  }
  EXPECT_EQ(records, 20);
}

TEST_F(SplitterTest, PiecesAreCheckedLikeTheWhole) {
  const auto refuse = [&](std::string_view bytes, const Lines& parts) {
    const auto path = write_file(folder_ / "a.csv", bytes);
    expect_error(ErrorKind::data, parts,
                 [&] { in_blocks(path, {.format = TextFormat::csv, .text = {"1"}}, 1); });
  };
  refuse("a,b\nc,d\ne\n", {"line 3", "1 column,", "first record has 2"});
  refuse("a,b\n\nc,\"d\n", {"line 3", "never closed"});
  refuse("a,b\n\"x\ny\",d\n\xff,f\n", {"line 4", "UTF-8"});
}

TEST_F(SplitterTest, AnEmptyFileHasNoRecords) {
  const auto path = write_file(folder_ / "a.csv", "\n\n");
  EXPECT_TRUE(in_blocks(path, {.format = TextFormat::csv, .text = {"1"}}, 4).empty());
}

TEST_F(SplitterTest, FilePartsAndSamples) {
  const auto path = write_file(folder_ / "samples", "abcdefghij");
  InputFile file(path);
  FilePart part(file, 3, 7);
  std::array<std::byte, 8> out{};
  EXPECT_EQ(part.read(out), 4u);
  EXPECT_EQ(char(out[0]), 'd');
  EXPECT_EQ(part.read(out), 0u);

  SampleStream samples(path, {2}, false);
  EXPECT_EQ(samples.count(), 5);
  std::vector<uint8_t> two;
  samples.restrict([](int64_t count) {
    EXPECT_EQ(count, 5);
    return Range{1, 3};
  });
  EXPECT_EQ(samples.read(5, two), 2);
  EXPECT_EQ(std::string(two.begin(), two.end()), "cdef");
  EXPECT_EQ(samples.read(5, two), 0);
  expect_error(ErrorKind::data, {"whole number"}, [&] { SampleStream(path, {3}, false); });
  const auto packed = write_file(folder_ / "samples.gz", gzip("abcdefghij"));
  SampleStream unpacked(packed, {5}, false);
  std::vector<uint8_t> all;
  EXPECT_EQ(unpacked.read(3, all), 2);
  EXPECT_EQ(all.back(), 'j');
  expect_error(ErrorKind::usage, {"gzip"}, [&] { unpacked.restrict({}); });
}

}  // namespace
}  // namespace ridgeline::data
