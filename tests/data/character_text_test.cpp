#include "ridgeline/data/character_text.h"

#include <gtest/gtest.h>

#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using testing::expect_error;
using testing::TempFolder;
using testing::write_file;

TEST(Alphabet, IsTheDistinctBytesInOrder) {
  const Alphabet alphabet = Alphabet::of("banana\n");
  EXPECT_EQ(alphabet.symbols(), "\nabn");
  EXPECT_EQ(alphabet.code('b'), 2);
  EXPECT_EQ(alphabet.code('c'), -1);
  EXPECT_EQ(alphabet.symbol(3), 'n');
  EXPECT_EQ(alphabet.encode("nab", "x"), (std::vector<uint8_t>{3, 1, 2}));
  expect_error(ErrorKind::data, {"--prompt", "character 3", "'c'", "4 symbols"},
               [&] { (void)alphabet.encode("abc", "--prompt"); });
  expect_error(ErrorKind::data, {"byte 0xc3"}, [&] { (void)alphabet.encode("\xc3", "x"); });
  expect_error(ErrorKind::data, {"ascending"}, [] { Alphabet("ba"); });
  expect_error(ErrorKind::data, {"distinct"}, [] { Alphabet(""); });
}

// Two streams of two chunks of three characters: each sample continues where the sample two before
// it ended, and a label is the next character.
TEST(Streams, ContinueFromBatchToBatch) {
  const std::string text = "abcdefghijklmno";  // 14 pairs: the last two are left out
  const SampleSet set = make_streams(text, Alphabet::of(text), 2, 3, "text");
  EXPECT_EQ(set.streams, 2);
  EXPECT_EQ(set.size(), 4);
  EXPECT_EQ(set.targets_per_sample(), 3);
  EXPECT_EQ(set.sample_shape(), (Shape{3}));
  const auto codes = set.inputs.span<uint8_t>();
  EXPECT_EQ(std::vector<uint8_t>(codes.begin(), codes.end()),
            (std::vector<uint8_t>{0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11}));
  const auto labels = set.targets.span<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(labels.begin(), labels.end()),
            (std::vector<int32_t>{1, 2, 3, 7, 8, 9, 4, 5, 6, 10, 11, 12}));
}

TEST(Streams, AreAsManyAsTheTextHasRoomFor) {
  const std::string text = "abcabca";
  EXPECT_EQ(make_streams(text, Alphabet::of(text), 32, 2, "text").streams, 3);
  expect_error(ErrorKind::data, {"text", "7 characters", "sequences of 7"},
               [&] { (void)make_streams(text, Alphabet::of(text), 1, 7, "text"); });
}

TEST(Streams, SplitAFile) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += char('a' + i % 10);
  const auto file = write_file(folder / "some.txt", text);
  const DataSet set = load_streams(file, 3, 4, "some");
  EXPECT_EQ(set.train.size() * 4, 84);  // of 90 characters, 7 chunks of 12
  EXPECT_EQ(set.test.streams, 2);       // of 10 characters
  EXPECT_EQ(set.train.symbols, "abcdefghij");
  expect_error(ErrorKind::data, {"is empty"},
               [&] { (void)read_text(write_file(folder / "empty.txt", "")); });
  const Alphabet small("abc");
  expect_error(ErrorKind::data, {"some", "'d'"},
               [&] { (void)load_streams(file, 3, 4, "some", &small); });
}

}  // namespace
}  // namespace ridgeline::data
