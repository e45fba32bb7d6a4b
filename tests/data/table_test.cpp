#include "ridgeline/data/source/table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "ridgeline/data/source/json_table.h"
#include "ridgeline/data/source/number.h"
#include "tests/data/array_files.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using ::testing::ElementsAre;

class TableTest : public ::testing::Test {
 protected:
  FieldSet read(std::string_view bytes, const TableOptions& options = {}) {
    return read_table(write_file(folder_ / "t.csv", bytes), options);
  }
  void refuse(std::string_view bytes, std::vector<std::string> parts,
              const TableOptions& options = {}, ErrorKind kind = ErrorKind::data) {
    parts.push_back("t.csv: ");
    expect_error(kind, parts, [&] { (void)read(bytes, options); });
  }
  static std::vector<std::string> names(const FieldSet& set) {
    std::vector<std::string> result;
    for (const Field& field : set.fields()) result.push_back(field.name);
    return result;
  }

  TempFolder folder_;
};

TEST(NumberTest, TakesWhatIsANumberAndNothingElse) {
  double value = 0;
  for (const auto& [text, want] : std::vector<std::pair<std::string, double>>{{"1", 1},
                                                                              {"-2.5", -2.5},
                                                                              {"+3", 3},
                                                                              {" 4 ", 4},
                                                                              {".5", .5},
                                                                              {"1.", 1},
                                                                              {"1e3", 1000},
                                                                              {"1E-2", .01},
                                                                              {"1e-400", 0},
                                                                              {"inf", INFINITY},
                                                                              {"0.00e99", 0}}) {
    EXPECT_TRUE(parse_number(text, value)) << text;
    EXPECT_EQ(value, want) << text;
  }
  for (const char* text : {"", " ", "abc", "1a", "0x10", "1,5", "--1", "+-1", "1e", "1e400",
                           "-1e400", "1_000", "1 2", "e5", ".", "-"}) {
    EXPECT_FALSE(parse_number(text, value)) << text;
  }
}

// The fast path gives the bits of from_chars or declines.
TEST(NumberTest, PlainDecimalsAreRoundedCorrectly) {
  std::mt19937_64 random(1);
  std::vector<std::string> texts{"0",
                                 "-0",
                                 "0.1",
                                 "123456789012345678",
                                 "9007199254740993",
                                 "9007199254740992",
                                 "1e22",
                                 "1e23",
                                 "1.7976931348623157e308",
                                 "4.9e-324",
                                 "0.000001",
                                 "99999999999999999999",
                                 "1e-22",
                                 "1e-23"};
  for (int i = 0; i < 20000; ++i) {
    const double value = std::ldexp(double(random() >> 11), int(random() % 128) - 100);
    texts.push_back(fmt::format("{}", value));
    texts.push_back(fmt::format("{:.{}f}", double(random() % 1000000) / 1000, random() % 12));
    texts.push_back(fmt::format("-{:.{}e}", value, random() % 18));
  }
  for (const std::string& text : texts) {
    double want = 0, got = 0;
    ASSERT_EQ(std::from_chars(text.data(), text.data() + text.size(), want).ec, std::errc());
    const std::string padded = text + ",       ";
    const char* at = padded.data();
    ASSERT_TRUE(read_decimal(at, got)) << text;
    EXPECT_EQ(at, padded.data() + text.size()) << text;
    EXPECT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(want)) << text;
  }
  for (const char* text :
       {"abc", "", "-", ".", "1e", "1e+", "nan", "+1", "1e999", "1e1234567890"}) {
    const std::string padded = std::string(text) + ",        ";
    const char* at = padded.data();
    double value = 0;
    EXPECT_FALSE(read_decimal(at, value)) << text;
  }
}

TEST_F(TableTest, InfersNumbersCategoriesBooleansAndTexts) {
  std::string bytes = "age,height,kind,paid,id,note\n";
  for (int i = 0; i < 60; ++i) {
    bytes += fmt::format("{},{}.5,{},{},{:05},the text {}\n", 20 + i, i, i % 3 ? "dog" : "cat",
                         i % 2 ? "Yes" : "No", i, i);
  }
  const FieldSet set = read(bytes, {.categories = {"id"}});
  EXPECT_THAT(names(set), ElementsAre("age", "height", "kind", "paid", "id", "note"));
  EXPECT_EQ(set.size(), 60);
  EXPECT_EQ(set.field("age").dtype, DType::int64);
  EXPECT_EQ(values<int64_t>(set.field("age"))[59], 79);
  EXPECT_EQ(set.field("height").dtype, DType::fp64);
  EXPECT_EQ(values<double>(set.field("height"))[2], 2.5);
  EXPECT_EQ(set.field("kind").kind, FieldKind::category);
  EXPECT_THAT(set.field("kind").categories, ElementsAre("cat", "dog"));
  EXPECT_EQ(values<int32_t>(set.field("kind"))[3], 0);
  EXPECT_EQ(set.field("paid").kind, FieldKind::boolean);
  EXPECT_THAT(set.field("paid").categories, ElementsAre("No", "Yes"));
  EXPECT_EQ(set.field("id").kind, FieldKind::category);
  EXPECT_EQ(set.field("id").categories[7], "00007");
  EXPECT_EQ(set.field("note").kind, FieldKind::text);
  EXPECT_EQ(read_text(set.field("note"), 17), "the text 17");
}

TEST_F(TableTest, FindsTheHeader) {
  EXPECT_THAT(names(read("a,b\n1,2\n")), ElementsAre("a", "b"));
  EXPECT_THAT(names(read("1,2\n3,4\n")), ElementsAre("1", "2"));
  EXPECT_THAT(names(read("a,1\nb,2\n")), ElementsAre("1", "2"));
  EXPECT_THAT(names(read("x,y\na,b\na,c\n")), ElementsAre("x", "y"));
  EXPECT_THAT(names(read("a,b\na,c\nd,b\n")), ElementsAre("1", "2"));  // the words occur below
  EXPECT_THAT(names(read(",a\n0,5\n1,6\n")), ElementsAre("1", "a"));   // pandas' index
  using Header = TableOptions::Header;
  EXPECT_EQ(read("2019,2020\n1,2\n", {.header = Header::yes}).size(), 1);
  EXPECT_THAT(names(read("2019,2020\n1,2\n", {.header = Header::yes})),
              ElementsAre("2019", "2020"));
  EXPECT_EQ(read("a,b\nc,d\n", {.header = Header::no}).size(), 2);
  // pandas counts the columns of an array; two numbers may be a sample, and so may other numbers.
  EXPECT_EQ(read("0,1,2\n5,6,7\n8,9,1\n").size(), 2);
  EXPECT_THAT(names(read(",0,1,2,label\n0,5,6,7,cat\n1,8,9,1,dog\n")),
              ElementsAre("column 1", "0", "1", "2", "label"));
  EXPECT_EQ(read("0,1\n5,6\n").size(), 2);
  EXPECT_EQ(read("0,1,2,3.5\n5,6,7,8\n").size(), 2);
  EXPECT_EQ(read("1,2,3\n5,6,7\n").size(), 2);
  refuse("a,b,a\n1,2,3\n", {"line 1", "columns 1 and 3", "'a'"});
}

TEST_F(TableTest, FindsTheSeparator) {
  for (const char separator : {',', '\t', ';', '|', ' '}) {
    const FieldSet set = read(fmt::format("1{0}2.5{0}3\n4{0}5{0}6\n", separator));
    EXPECT_EQ(set.fields().size(), 3u) << separator;
  }
  EXPECT_EQ(read("a;b\n\"x, y\";1\n\"z, w\";2\n").fields().size(), 2u);
  EXPECT_EQ(
      read("name\nJohn Smith\nJane Doe\n", {.header = TableOptions::Header::yes}).fields().size(),
      1u);
  EXPECT_EQ(read("1\n2\n3\n").fields().size(), 1u);
  EXPECT_EQ(read("1;2,3\n4;5,6\n", {.separator = ';', .categories = {"2"}}).fields().size(), 2u);
  refuse("1,2\n", {"cannot separate"}, {.separator = '5'}, ErrorKind::usage);
}

TEST_F(TableTest, ObeysALineThatSaysTheSeparator) {
  for (const char* begin : {"sep=;\n", "\xef\xbb\xbfsep=;\r\n"}) {
    const FieldSet set = read(std::string(begin) + "a;b\n1,5;2\n2,5;3\n");
    EXPECT_THAT(names(set), ElementsAre("a", "b"));
    EXPECT_EQ(set.size(), 2);
  }
  refuse("sep=|\na|b\n1|2\n1|2|3\n", {"line 4", "3 columns"});
  EXPECT_EQ(read("sep=;\na,b\n1,2\n", {.separator = ','}).size(), 1);
}

TEST_F(TableTest, ReadsMissingValues) {
  const FieldSet set = read("a,b,c\n1,x,true\n,?,false\nNA,y,\nnan,x,null\n");
  const std::vector<double> a = doubles(set.field("a"));
  EXPECT_EQ(a[0], 1);
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(std::isnan(a[size_t(i)])) << i;
  EXPECT_THAT(values<int32_t>(set.field("b")), ElementsAre(0, -1, 1, 0));
  EXPECT_THAT(values<uint8_t>(set.field("c")), ElementsAre(1, 0, 255, 255));
  EXPECT_EQ(set.field("a").dtype, DType::fp64);
  // A column of nothing is one of missing numbers.
  EXPECT_TRUE(std::isnan(doubles(read("a,b\n1,\n2,\n").field("b"))[1]));
}

TEST_F(TableTest, TakesSpreadsheetsWordsForMissingNumbers) {
  std::string bytes = "a,b\n";
  for (int i = 0; i < 20; ++i) bytes += "1,none\n";
  for (const char* word :
       {"Nan", "NONE", "na", "#N/A", "#DIV/0!", "-", " Null ", "Unknown", "n.a.", "."}) {
    const FieldSet set = read(bytes + fmt::format("{},small\n", word));
    EXPECT_TRUE(std::isnan(doubles(set.field("a"))[20])) << word;
    EXPECT_THAT(set.field("b").categories, ElementsAre("none", "small"));  // words stay words
  }
  // A column of nothing but such words holds words.
  EXPECT_EQ(read("a,b\n1,-\n2,-\n").field("b").kind, FieldKind::category);
}

TEST_F(TableTest, ReadsDecimalCommasAndGroupsOfDigits) {
  const auto second = [&](std::string_view bytes) {
    const FieldSet set = read(bytes);
    EXPECT_EQ(set.fields().size(), 2u) << bytes;
    return doubles(set.fields()[1]);
  };
  // Spreadsheets of countries with decimal commas, with a header and without.
  EXPECT_THAT(second("a;b\n1,5;1.234,5\n2,5;-0,25\n"), ElementsAre(1234.5, -0.25));
  EXPECT_THAT(second("1,5;2,5\n3,5;4,5\n"), ElementsAre(2.5, 4.5));
  EXPECT_THAT(second("a\tb\n1\t2,5e3\n2\t3\n"), ElementsAre(2500, 3));
  EXPECT_THAT(second("a;b\n1;1,234\n2;5,678\n"), ElementsAre(1.234, 5.678));
  // Points stay points, whatever separates.
  EXPECT_THAT(second("a;b\n1;1.234\n2;5.678\n"), ElementsAre(1.234, 5.678));
  // Groups of digits.
  EXPECT_THAT(second("a,b\n1,\"1,234\"\n2,\"-12,345,678.5\"\n"), ElementsAre(1234, -12345678.5));
  EXPECT_THAT(second("a;b\n1,5;1 234,5 \u20ac\n2,5;-0,25 %\n"), ElementsAre(1234.5, -0.25));
  EXPECT_THAT(second("a,b\n1,\"$1,234.5\"\n2,-$12'345\n"), ElementsAre(1234.5, -12345));
  for (const char* text : {"1,23", "1234,567", "1,2345", ",123", "0,123", "1,234,56", "1.5,000",
                           "12 34", "0 123", "$", "5 apples", "1 - 2"}) {
    double value = 0;
    EXPECT_FALSE(parse_number(text, '.', value)) << text;
  }
}

TEST_F(TableTest, LeavesOutAColumnOfSeparatorsAtTheEnd) {
  EXPECT_THAT(names(read("a,b,\n1,2,\n3,4,\n")), ElementsAre("a", "b"));
  EXPECT_THAT(names(read("a,b,\n1,2,\n3,4,5\n")), ElementsAre("a", "b", "3"));
  EXPECT_THAT(names(read("a,b\n1,\n3,\n")), ElementsAre("a", "b"));
}

TEST_F(TableTest, NamesLineAndColumnOfWhatIsNoNumber) {
  std::string bytes = "a,price\n";
  for (int i = 0; i < 50; ++i) bytes += fmt::format("{},{}\n", i, 2 * i);
  refuse(bytes + "50,cheap\n", {"line 52", "column 2 ('price')", "'cheap'", "not a number"});
  refuse(bytes + "50,\"1,20\"\n", {"line 52", "column 2", "'1,20'", "decimal point"});
  // Far behind what was looked at to find the form.
  for (int i = 0; i < 200000; ++i) bytes += "1.25,3.5\n";
  refuse(bytes + "x,1\n", {"line 200052", "column 1 ('a')", "'x'"});
  EXPECT_EQ(read(bytes + "x,1\n", {.categories = {"a"}}).size(), 200051);
  refuse("a,b\n1,2\n", {"no column 'c'"}, {.categories = {"c"}}, ErrorKind::usage);
}

TEST_F(TableTest, NamesTheLineOfARaggedRecord) {
  std::string bytes = "a,b\n";
  for (int i = 0; i < 300000; ++i) bytes += "1.5,2.5\n";
  refuse(bytes + "1,2,3\n", {"line 300002", "3 columns", "the first record has 2"});
  refuse(bytes + "1\n", {"line 300002", "1 column,"});
  refuse("a,b\n1,2\n3\n", {"line 3", "1 column,"});
  refuse("a,b\n1,\"2\n", {"line 2", "column 2", "never closed"});
  refuse(std::string_view("a,b\n1,\0\n", 8), {"line 2", "NUL"});
  refuse("a,b\n1,\xff\n", {"line 2", "UTF-8"});
  refuse("", {"is empty"});
  refuse("\n\n", {"no records"});
  refuse("a,b\n", {"a header and no records"}, {.header = TableOptions::Header::yes});
  refuse("a,b\n", {"a header and no records", "header = \"no\""});
  EXPECT_EQ(read("a,b\n", {.header = TableOptions::Header::no}).size(), 1);
  EXPECT_EQ(read("a,1\n").size(), 1);
}

// Quotes, CRLF, blank lines and gzip change nothing, wherever the fast path stops.
TEST_F(TableTest, ReadsTheSameHoweverItIsWritten) {
  std::mt19937 random(3);
  std::vector<double> want;
  std::vector<std::string> words;
  std::string plain = "x,w,y\n", odd = "\xef\xbb\xbf\"x\",w,y\r\n";
  const std::vector<std::string> kinds{"red", "blue", "caf\xc3\xa9", "a b"};
  for (int i = 0; i < 50000; ++i) {
    const double x = double(int(random() % 2000000) - 1000000) / 1000, y = double(random() % 100);
    const std::string& word = kinds[random() % 4];
    want.push_back(x);
    words.push_back(word);
    plain += fmt::format("{},{},{}\n", x, word, y);
    switch (random() % 5) {
      case 0:
        odd += fmt::format("\"{}\",\"{}\",{}\r\n", x, word, y);
        break;
      case 1:
        odd += fmt::format(" {}  ,{},\"{}\"\n\n", x, word, y);
        break;
      case 2:
        odd += fmt::format("{}{:.17g},{},{:.1f}\r\n", x < 0 ? "" : "+", x, word, y);
        break;
      default:
        odd += fmt::format("{},{},{}\n", x, word, y);
    }
  }
  for (const std::string& bytes : {plain, odd, gzip(odd)}) {
    const FieldSet set = read(bytes);
    EXPECT_EQ(doubles(set.field("x")), want);
    const Field& field = set.field("w");
    const std::vector<int32_t> codes = values<int32_t>(field);
    ASSERT_EQ(codes.size(), words.size());
    for (size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(field.categories[size_t(codes[i])], words[i]) << i;
    }
    EXPECT_EQ(set.field("y").dtype, DType::int64);
  }
}

// Memory for so many columns would be a thousand times the file's size.
TEST_F(TableTest, RefusesLinesOfMillionsOfCells) {
  const std::string line(size_t{1} << 20, ',');
  refuse(line + "\n" + line + "\n", {"1048576 cells", "','"});
  refuse("a\n" + line + "\n", {"1048576 cells"});
}

TEST_F(TableTest, ReadsMoreColumnsThanABlockHasCells) {
  const size_t columns = 100'000;
  std::string line = "1";
  for (size_t i = 1; i < columns; ++i) line += fmt::format(",{}", i % 10);
  const FieldSet set = read(line + "\n" + line + "\n" + line + "\n");
  ASSERT_EQ(set.fields().size(), columns);
  EXPECT_EQ(set.size(), 3);
  EXPECT_THAT(doubles(set.fields()[99'999]), ElementsAre(9, 9, 9));
}

class JsonTableTest : public TableTest {
 protected:
  FieldSet read(std::string_view bytes, const TableOptions& options = {}) {
    return read_json_table(write_file(folder_ / "t.jsonl", bytes), options);
  }
  void refuse(std::string_view bytes, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::data, parts, [&] { (void)read(bytes); });
  }
};

TEST_F(JsonTableTest, ReadsEveryKindOfValue) {
  const FieldSet set = read(
      gzip("{\"n\": 1, \"w\": \"cat\", \"t\": true, \"v\": [1, 2.5], \"s\": [5, 6], \"m\": "
           "[[1,2],[3,4]]}\n"
           "\n"
           "{\"w\": \"dog\", \"n\": 2.5, \"t\": null, \"v\": [3, 4], \"s\": [], \"m\": [[5,6]]}\n"
           "{\"n\": null, \"v\": [5, 6], \"s\": [7], \"late\": 3, \"m\": []}\n"));
  EXPECT_THAT(names(set), ElementsAre("n", "w", "t", "v", "s", "m", "late"));
  EXPECT_EQ(set.size(), 3);
  EXPECT_TRUE(std::isnan(doubles(set.field("n"))[2]));
  EXPECT_THAT(values<int32_t>(set.field("w")), ElementsAre(0, 1, -1));
  EXPECT_THAT(values<uint8_t>(set.field("t")), ElementsAre(1, 255, 255));
  EXPECT_EQ(set.field("v").shape, Shape({2}));
  EXPECT_THAT(doubles(set.field("v")), ElementsAre(1, 2.5, 3, 4, 5, 6));
  const Field& tokens = set.field("s");
  EXPECT_EQ(tokens.kind, FieldKind::sequence);
  EXPECT_EQ(tokens.dtype, DType::int32);
  EXPECT_THAT(*tokens.offsets, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(doubles(tokens), ElementsAre(5, 6, 7));
  EXPECT_EQ(set.field("m").shape, Shape({2}));
  EXPECT_THAT(*set.field("m").offsets, ElementsAre(0, 2, 3, 3));
  EXPECT_TRUE(std::isnan(doubles(set.field("late"))[1]));
  EXPECT_EQ(doubles(set.field("late"))[2], 3);
}

// The columns are those of pandas.json_normalize, which also keeps "p" as a column of nothing.
TEST_F(JsonTableTest, FlattensObjects) {
  const FieldSet set = read(
      "{\"p\": null, \"n\": 1}\n"
      "{\"p\": {\"city\": \"Bern\", \"at\": {\"x\": 1.5, \"v\": [1, 2]}}, \"n\": 2}\n"
      "{\"p\": {\"at\": {\"v\": [3, 4]}, \"city\": \"Basel\"}, \"e\": {}, \"n\": 3}\n");
  EXPECT_THAT(names(set), ElementsAre("n", "p.city", "p.at.x", "p.at.v"));
  EXPECT_EQ(set.size(), 3);
  EXPECT_THAT(values<int32_t>(set.field("p.city")), ElementsAre(-1, 1, 0));
  EXPECT_EQ(doubles(set.field("p.at.x"))[1], 1.5);
  EXPECT_TRUE(std::isnan(doubles(set.field("p.at.x"))[2]));
  EXPECT_THAT(*set.field("p.at.v").offsets, ElementsAre(0, 0, 2, 4));
}

// A cell of every line for every key, and the keys around it in the name of every key, would take
// thousands of times the file's size.
TEST_F(JsonTableTest, RefusesKeysThatTakeTooMuchMemory) {
  std::string own_keys, long_key = fmt::format("{{\"{}\": {{", std::string(100'000, 'x'));
  for (int i = 0; i < 6000; ++i) own_keys += fmt::format("{{\"k{}\": 1}}\n", i);
  for (int i = 0; i < 6000; ++i) long_key += fmt::format("\"{}\": 1, ", i);
  refuse(own_keys, {"line 4", "a line has 1.0", "same keys"});
  refuse(long_key + "\"last\": 1}}\n", {"line 1", "too long"});
}

TEST_F(JsonTableTest, ReadsManyKeysOfFewLines) {
  std::string line = "{\"outer\": {";
  for (int i = 0; i < 5000; ++i) line += fmt::format("\"key{}\": {}, ", i, i);
  const FieldSet set = read(line + "\"last\": 1}}\n" + "{\"outer\": {\"key7\": 3}}\n");
  EXPECT_EQ(set.fields().size(), 5001u);
  EXPECT_EQ(doubles(set.field("outer.key7"))[1], 3);
}

TEST_F(JsonTableTest, ReadsListsOfWordsAsTexts) {
  const FieldSet set = read(
      "{\"a\": 1}\n{\"a\": 2, \"tags\": []}\n{\"tags\": [\"x\", \"y\"], \"a\": 3}\n"
      "{\"a\": 4, \"tags\": []}\n{\"a\": 5, \"tags\": [\"z\", 1]}\n");
  const Field& tags = set.field("tags");
  EXPECT_EQ(tags.kind, FieldKind::text);
  EXPECT_EQ(tags.samples, 5);
  EXPECT_EQ(read_text(tags, 0), "");
  EXPECT_EQ(read_text(tags, 1), "");
  EXPECT_EQ(read_text(tags, 2), "[\"x\",\"y\"]");
  EXPECT_EQ(read_text(tags, 3), "");
  EXPECT_EQ(read_text(tags, 4), "[\"z\",1]");
  refuse("{\"a\": [\"x\"]}\n{\"a\": 1}\n", {"line 2", "'a'", "an array"});
}

TEST_F(JsonTableTest, NamesLineAndKeyOfWhatIsWrong) {
  refuse("{\"a\": 1}\n{\"a\": \"x\"}\n", {"line 2", "'a'", "string", "a number"});
  refuse("{\"a\": true}\n{\"a\": 1}\n", {"line 2", "'a'", "true or false"});
  refuse("{\"a\": 1}\n{\"a\": [1]}\n", {"line 2", "'a'", "an array"});
  refuse("{\"a\": [{\"b\": 1}]}\n", {"line 1", "'a'", "numbers"});
  refuse("{\"a\": {\"b\": 1, \"b\": 2}}\n", {"line 1", "'a.b'", "twice"});
  refuse("{\"a\": {\"b\": 1}, \"a.b\": 2}\n", {"line 1", "'a.b'", "twice"});
  refuse("{\"a\": {\"b\": 1}}\n{\"a\": {\"b\": \"x\"}}\n", {"line 2", "'a.b'", "a number"});
  refuse("{\"a\": [1, \"x\"]}\n", {"line 1", "'a'", "numbers"});
  refuse("{\"a\": [[1], [2, 3]]}\n", {"line 1", "'a'", "different lengths"});
  refuse("{\"a\": [1, []]}\n", {"line 1", "'a'", "without numbers"});
  refuse("{\"a\": [[], [1]]}\n", {"line 1", "'a'", "without numbers"});
  refuse("{\"a\": 1, \"a\": 2}\n", {"line 1", "'a'", "twice"});
  refuse("[1]\n", {"line 1", "not a JSON object"});
  refuse("{\"a\": 1\n", {"line 1", "not a JSON object"});
  refuse("{\"a\": [[[[[[1]]]]]]}\n", {"line 1", "too deeply"});
  refuse("{\"a\": " + std::string(100000, '[') + "\n", {"line 1"});
  std::string deep = "1";
  for (int i = 0; i < 20; ++i) deep = "{\"a\": " + deep + "}";
  refuse(deep + "\n", {"line 1", "too deeply"});
  refuse("\n", {"no records"});
}

// A line is longer than the sample that the form is usually found from.
TEST_F(TableTest, ReadsManyColumns) {
  constexpr int kColumns = 40'000;
  std::string header, line;
  for (int c = 0; c < kColumns; ++c) {
    header += fmt::format("{}a_column_of_a_long_name_{}", c == 0 ? "" : ",", c);
    line += fmt::format("{}{}.5", c == 0 ? "" : ",", c);
  }
  ASSERT_GT(header.size(), kTableSample);
  const FieldSet set = read(header + "\n" + line + "\n" + line + "\n");
  EXPECT_EQ(set.size(), 2);
  EXPECT_EQ(set.fields().size(), size_t(kColumns));
  EXPECT_EQ(set.fields()[7].name, "a_column_of_a_long_name_7");
}

}  // namespace
}  // namespace ridgeline::data
