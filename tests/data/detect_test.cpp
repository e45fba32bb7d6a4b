#include "ridgeline/data/source/detect.h"

#include "tests/data/array_files.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using namespace std::string_literals;

Content content(const std::string& bytes, const std::string& name = "file") {
  TempFolder folder;
  const auto path = write_file(folder / name, bytes);
  const Content plain = detect(path).content;
  if (!bytes.empty()) {
    const Detected packed = detect(write_file(folder / (name + ".gz"), gzip(bytes)));
    EXPECT_TRUE(packed.gzip);
    EXPECT_EQ(packed.content, plain) << name;
  }
  return plain;
}

TEST(DetectTest, KnowsFilesByTheirContent) {
  EXPECT_EQ(content(""), Content::empty);
  EXPECT_EQ(content(npy(npy_literal("<f4", "(1,)"), "1234")), Content::npy);
  EXPECT_EQ(content(zip({{.name = "x.npy", .bytes = "x"}})), Content::npz);
  EXPECT_EQ(content(zip({{.name = "archive/data.pkl", .bytes = "x"}})), Content::torch);
  EXPECT_EQ(content(zip({{.name = "[Content_Types].xml", .bytes = "x"}})), Content::excel);
  EXPECT_EQ(content(zip({{.name = "docProps/app.xml", .bytes = "x"}})), Content::excel);
  EXPECT_EQ(content(zip({{.name = "photos/a.png", .bytes = "x"}})), Content::zip);
  EXPECT_EQ(content(zip({})), Content::zip);
  EXPECT_EQ(content("\x80\x04\x95junk"), Content::pickle);
  EXPECT_EQ(content("\x89PNG\r\n\x1a\n..."), Content::png);
  EXPECT_EQ(content("\xff\xd8\xff\xe0..."), Content::jpeg);
  EXPECT_EQ(content("GIF89a"), Content::gif);
  EXPECT_EQ(content("BM\x46\0\0\0\0\0\0\0\x36\0\0\0"s), Content::bmp);
  EXPECT_EQ(content("RIFF\x10\0\0\0WEBPVP8 "s), Content::webp);
  EXPECT_EQ(content("II*\0...."s), Content::tiff);
  EXPECT_EQ(content("\x89HDF\r\n\x1a\n"), Content::hdf5);
  EXPECT_EQ(content("PAR1\x15"), Content::parquet);
  EXPECT_EQ(content("%PDF-1.7"), Content::pdf);
  EXPECT_EQ(content("BZh91AY&SY...."), Content::packed);
  EXPECT_EQ(content("\xfd"
                    "7zXZ\0\0"s),
            Content::packed);
  EXPECT_EQ(content("\x28\xb5\x2f\xfd...."), Content::packed);
  EXPECT_EQ(content("ARROW1\0\0"s), Content::arrow);
  EXPECT_EQ(content("SQLite format 3\0"s), Content::sqlite);
  EXPECT_EQ(content(idx_header(8, {2, 3}) + "abcdef"), Content::idx);
  const std::string header = R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  EXPECT_EQ(content(stored(uint64_t(header.size())) + header + "a"), Content::safetensors);
  EXPECT_EQ(content("\x01\x02\xff\xfe raw"), Content::binary);
  EXPECT_EQ(content("\0\0\0\0\0"s), Content::binary);
  // Latin-1 is recognised as a table by the other bytes, so that the reader can say where it is not
  // UTF-8.
  EXPECT_EQ(content("name,price\ncaf\xe9,2\ntea,1\n"), Content::table);
  EXPECT_EQ(content("a caf\xe9\n"), Content::text);
  EXPECT_EQ(content(std::string("\xff\xfe"
                                "a\0,\0b\0\n\0"
                                "1\0,\0"
                                "2\0",
                                16)),
            Content::utf16);
  EXPECT_EQ(content(std::string("\xfe\xff\0a\0,\0b\0\n", 10)), Content::utf16);
  EXPECT_EQ(content("\xff\xfe\x01\x02\x03\x04"), Content::binary);
  EXPECT_EQ(content("{\"name\": \"caf\xe9\"}\n"), Content::json_lines);
  EXPECT_EQ(content("\xe9\xe8\xe7 bytes"), Content::binary);
  EXPECT_EQ(content("caf\xe9\x01 or more"), Content::binary);
}

TEST(DetectTest, TellsTablesAndJsonFromTexts) {
  EXPECT_EQ(content("1,2,3\n4,5,6\n"), Content::table);
  EXPECT_EQ(content("a,b\n1,2\n3,4\n"), Content::table);
  EXPECT_EQ(content("1.5\n2.5\n"), Content::table);
  EXPECT_EQ(content("1.0 2.0\n3.0 4.0\n"), Content::table);
  EXPECT_EQ(content("red,round,fruit\nblue,flat,stone\ngreen,long,leaf\n"), Content::table);
  EXPECT_EQ(content("\"3\",\"A title\",\"Text, with commas.\"\n\"4\",\"b\",\"c\"\n"),
            Content::table);
  EXPECT_EQ(content("a long line of words\n"), Content::text);
  EXPECT_EQ(content("To be, or not to be.\nThat is the question.\n"), Content::text);
  EXPECT_EQ(content("first, second\n", "x.csv"), Content::table);
  EXPECT_EQ(content("first,second,third\n\n\n"), Content::text);
  EXPECT_EQ(content("caf\xc3\xa9\n"), Content::text);
  EXPECT_EQ(content("{\"a\": 1}\n{\"a\": 2}\n"), Content::json_lines);
  EXPECT_EQ(content("{\n \"a\": 1\n}\n"), Content::json);
  EXPECT_EQ(content("[1, 2]\n"), Content::json);
  EXPECT_EQ(content("{\"a\":{\"0\":1,\"1\":2},\"b\":{\"0\":3,\"1\":4}}"), Content::json);
  EXPECT_EQ(content("{\"a\":{\"0\":1}}\n{\"a\":{\"0\":2}}\n"), Content::json_lines);
  EXPECT_EQ(content("{\"a\":{\"0\":1," + std::string(70000, ' ')), Content::json);
  EXPECT_EQ(content("{not json}\n"), Content::text);
  // A character that is cut off at the end of the sample is not an error.
  std::string text(size_t{64} << 10, 'x');
  text.back() = '\xc3';
  EXPECT_EQ(content(text + "\xa9"), Content::text);
}

TEST(DetectTest, RefusesInOneLineWithTheRemedy) {
  expect_error(ErrorKind::data,
               {"x.npy: is a NumPy array (.npy), but a text is wanted", "data describe x.npy"}, [] {
                 refuse_content("x.npy", {Content::npy, false}, "a text");
               });
  expect_error(ErrorKind::data, {"packed by gzip", "can run code"}, [] {
    refuse_content("x", {Content::pickle, true}, "an array");
  });
}

TEST(DetectTest, KnowsTheRealSets) {
  RIDGELINE_NEEDS_DATA();
  const auto root = real_data();
  EXPECT_EQ(detect(root / "mnist/train-images-idx3-ubyte.gz").content, Content::idx);
  EXPECT_EQ(detect(root / "tinyshakespeare/input.txt").content, Content::text);
  EXPECT_EQ(detect(root / "ag_news/test.csv.gz").content, Content::table);
}

}  // namespace
}  // namespace ridgeline::data
