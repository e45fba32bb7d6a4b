#include "ridgeline/data/text_set.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;

class TextTest : public ::testing::Test {
 protected:
  std::vector<std::string> texts(std::string_view name, std::string_view bytes,
                                 const TextColumns& columns) {
    const auto reader = open_text(write_file(folder_ / name, bytes), columns);
    std::vector<std::string> all;
    for (TextRecord record; reader->next(record);) {
      all.push_back(std::to_string(record.line) + "|" + std::string(record.label) + "|" +
                    std::string(record.text));
    }
    return all;
  }

  TempFolder folder_;
};

using Lines = std::vector<std::string>;

TEST_F(TextTest, ReadsColumnsByNumberAndByName) {
  const TextColumns numbers{.text = {"2", "3"}, .label = "1"};
  EXPECT_EQ(texts("a.csv", "4,\"The \"\"race\"\"\",is on\n1,b,c\n", numbers),
            (Lines{"1|4|The \"race\" is on", "2|1|b c"}));
  const TextColumns names{.text = {"body"}, .label = "class"};
  EXPECT_EQ(texts("a.csv.gz", gzip("id,class,body\n7,x,hello\n"), names), (Lines{"2|x|hello"}));
}

TEST_F(TextTest, ReadsLinesAndJsonLines) {
  EXPECT_EQ(texts("a.txt", "one\r\n\ntwo", {}), (Lines{"1||one", "2||", "3||two"}));
  const TextColumns keys{.text = {"title", "body"}, .label = "label"};
  EXPECT_EQ(texts("a.jsonl", "{\"title\":\"a\\n\",\"body\":\"b\",\"label\":3}\n\n", keys),
            (Lines{"1|3|a\n b"}));
}

TEST_F(TextTest, RefusesWhatItCannotFind) {
  const auto refuse = [&](std::string_view name, std::string_view bytes, const TextColumns& columns,
                          const Lines& parts) {
    expect_error(ErrorKind::data, parts, [&] { texts(name, bytes, columns); });
  };
  refuse("a.csv", "a,b\nc,d\n", {.text = {"body"}}, {"no column 'body'", "a, b"});
  refuse("a.csv", "a,b\n", {.text = {"5"}}, {"line 1", "2 columns", "column 5"});
  refuse("a.csv", "", {.text = {"body"}}, {"empty", "body"});
  refuse("a.jsonl", "{\"text\":\"a\"}\n[1]\n", {}, {"line 2", "JSON object"});
  refuse("a.jsonl", "{\"text\":1.5}\n", {}, {"line 1", "'text'"});
  refuse("a.jsonl", "{\"body\":\"x\"}\n", {}, {"line 1", "no key 'text'"});
  refuse("a.jsonl", "{\"text\":\"a\"}\n{\"b\":1,\"text\":\"a\",\"c\":2,\"text\":\"a\"}\n", {},
         {"line 2", "'text' is there twice"});
  refuse("a.txt", "a\n\xff\n", {}, {"line 2", "UTF-8"});
  expect_error(ErrorKind::usage, {"which columns"}, [&] { texts("a.csv", "a\n", {}); });
}

TEST(Vocabulary, HasThePapersSymbols) {
  const Vocabulary paper{std::string(Vocabulary::paper())};
  EXPECT_EQ(paper.size(), 70);
  EXPECT_EQ(paper.code('a'), 0);
  EXPECT_EQ(paper.code('Z'), 25);
  EXPECT_EQ(paper.code('9'), 35);
  EXPECT_EQ(paper.code('\n'), 69);
  EXPECT_EQ(paper.code('-'), 59);  // the later of its two places
  EXPECT_EQ(paper.code(' '), 70);
  EXPECT_EQ(paper.code('\xc3'), 70);
}

TEST(Vocabulary, EncodesWithPaddingAndTruncation) {
  const Vocabulary abc("abc");
  const auto encode = [&](std::string_view text, bool backward) {
    std::vector<uint8_t> codes(4, 9);
    abc.encode(text, backward, codes);
    return codes;
  };
  EXPECT_EQ(encode("aCx", false), (std::vector<uint8_t>{0, 2, 3, 3}));
  EXPECT_EQ(encode("aCx", true), (std::vector<uint8_t>{3, 2, 0, 3}));
  EXPECT_EQ(encode("abcabc", false), (std::vector<uint8_t>{0, 1, 2, 0}));
  EXPECT_EQ(encode("abcabc", true), (std::vector<uint8_t>{0, 2, 1, 0}));
  EXPECT_EQ(encode("", true), (std::vector<uint8_t>{3, 3, 3, 3}));
}

TEST(Vocabulary, RefusesWhatIsNoVocabulary) {
  expect_error(ErrorKind::usage, {"1 to 254"}, [] { Vocabulary{""}; });
  expect_error(ErrorKind::usage, {"1 to 254", "255"}, [] { Vocabulary{std::string(255, 'a')}; });
  expect_error(ErrorKind::usage, {"symbol 2", "ASCII"}, [] { Vocabulary{"a\xc3"}; });
}

TEST_F(TextTest, LoadsALabelledSet) {
  const auto path = write_file(folder_ / "a.csv", "2,ba\n1,c\n");
  TextCoding coding;
  coding.vocabulary = Vocabulary("abc");
  coding.length = 3;
  coding.classes = 2;
  coding.first_label = 1;
  const TextColumns columns{.text = {"2"}, .label = "1"};
  const SampleSet set = load_text(path, columns, coding, "small");
  EXPECT_EQ(set.inputs.view().shape, (Shape{2, 3}));
  const auto codes = set.inputs.span<uint8_t>();
  EXPECT_EQ(std::vector(codes.begin(), codes.end()), (std::vector<uint8_t>{0, 1, 3, 2, 3, 3}));
  EXPECT_EQ(set.targets.span<int32_t>()[0], 1);
  EXPECT_EQ(set.targets.span<int32_t>()[1], 0);
  EXPECT_EQ(set.classes, 2);

  const auto refuse = [&](std::string_view bytes, const Lines& parts) {
    const auto bad = write_file(folder_ / "bad.csv", bytes);
    expect_error(ErrorKind::data, parts, [&] { (void)load_text(bad, columns, coding, "bad"); });
  };
  refuse("1,a\n3,b\n", {"line 2", "label 3", "2 classes (1 to 2)"});
  refuse("1,a\nx,b\n", {"line 2", "'x'", "whole number"});
  refuse("", {"no texts"});
  coding.class_names = {"cat", "dog"};
  const auto named = write_file(folder_ / "named.csv", "dog,a\ncat,b\n");
  EXPECT_EQ(load_text(named, columns, coding, "named").targets.span<int32_t>()[0], 1);
  refuse("dog,a\ncow,b\n", {"line 2", "'cow'", "cat, dog"});
}

TEST(RealText, AgNewsTestSetHas1900SamplesAClass) {
  RIDGELINE_NEEDS_DATA();
  TextCoding coding;
  coding.class_names = {"World", "Sports", "Business", "Sci/Tech"};
  coding.first_label = 1;
  const SampleSet set = load_text(real_data() / "ag_news" / "test.csv.gz",
                                  {.text = {"2", "3"}, .label = "1"}, coding, "ag-news");
  EXPECT_EQ(set.size(), 7600);
  std::vector<int> count(4);
  for (const int32_t label : set.targets.span<int32_t>()) ++count[size_t(label)];
  EXPECT_EQ(count, (std::vector<int>(4, 1900)));
}

}  // namespace
}  // namespace ridgeline::data
