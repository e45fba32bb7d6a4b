#include "ridgeline/nn/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <ostream>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/philox.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::nn {
namespace {

using Bytes = std::vector<std::byte>;

// A file with this header, whatever it says, and this many bytes of data.
Bytes file_of(const std::string& json, size_t data, std::optional<uint64_t> length = {}) {
  Bytes bytes(8 + json.size() + data);
  const uint64_t stated = length.value_or(json.size());
  std::memcpy(bytes.data(), &stated, 8);
  std::memcpy(bytes.data() + 8, json.data(), json.size());
  return bytes;
}

Bytes text(std::string_view text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TensorFile parse(Bytes bytes) { return TensorFile::parse(std::move(bytes), "m.safetensors"); }

std::string tensor(const char* name, const char* dtype, const char* shape, const char* offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

TEST(Safetensors, ReadsBackEveryType) {
  std::vector<HostTensor> tensors;
  std::vector<TensorEntry> entries;
  for (const DType dtype : {DType::uint8, DType::fp16, DType::fp32, DType::fp64, DType::bf16,
                            DType::int32, DType::int64}) {
    tensors.emplace_back(dtype, Shape{3, 5});
    const Tensor& view = tensors.back().view();
    for (size_t i = 0; i < view.bytes(); ++i)
      view.as<uint8_t>()[i] = uint8_t(i * 7 + size_t(dtype));
    entries.push_back(entry(std::string(name(dtype)), view));
  }
  const HostTensor scalar(DType::fp32, {}), nothing(DType::fp32, {0, 4});
  entries.push_back(entry("scalar", scalar.view()));
  entries.push_back(entry("nothing", nothing.view()));
  const Metadata metadata{{"format", "pt"}, {"text", "a \"quoted\"\nline, \u00fc"}};
  const Bytes bytes = to_safetensors(entries, metadata);

  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const TensorFile file = parse(bytes);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), entries.size());
  for (const TensorEntry& want : entries) {
    const TensorEntry* got = file.find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_EQ(got->dtype, want.dtype);
    EXPECT_EQ(got->shape, want.shape);
    ASSERT_EQ(got->data.size(), want.data.size());
    EXPECT_TRUE(std::equal(got->data.begin(), got->data.end(), want.data.begin())) << want.name;
  }
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(Safetensors, EmptyFileOfTheFormatIsFine) {
  EXPECT_TRUE(parse(to_safetensors({}, {})).tensors().empty());
  EXPECT_TRUE(parse(file_of("{}      ", 0)).tensors().empty());
}

struct Fault {
  const char* what;
  Bytes bytes;
  std::vector<const char*> parts;
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.what; }

class SafetensorsFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(SafetensorsFaults, AreNamed) {
  test::expect_error(ErrorKind::model, GetParam().parts, [] { parse(GetParam().bytes); });
}

const std::string kA = tensor("a", "F32", "[2]", "[0,8]");

INSTANTIATE_TEST_SUITE_P(
    Length, SafetensorsFaults,
    ::testing::Values(
        Fault{"empty", {}, {"m.safetensors", "0 bytes", "too few"}},
        Fault{"header past the end", file_of("{}", 0, 3), {"header of 3 bytes", "only 2 follow"}},
        Fault{"header above the limit", file_of("{}", 0, 100'000'001), {"100000001", "limit"}},
        Fault{"all ones", Bytes(8, std::byte{0xff}), {"18446744073709551615"}},
        Fault{"zip", text("PK\x03\x04 and so on"), {"pickle", "save_file(torch.load("}},
        Fault{"pickle", text("\x80\x02}q\x01(X\x08..."), {"pickle", "convert"}}));

INSTANTIATE_TEST_SUITE_P(
    Json, SafetensorsFaults,
    ::testing::Values(
        Fault{"none", file_of("", 0), {"bad safetensors header", "bad JSON"}},
        Fault{"cut", file_of("{\"a\":", 0), {"bad JSON at byte"}},
        Fault{"array", file_of("[]", 0), {"an array", "object"}},
        Fault{"deep", file_of("{\"a\":" + std::string(100'000, '['), 0), {"an array", "'a'"}},
        Fault{"deep objects", file_of(R"({"a":{"b":{"c":{}}}})", 0), {"unknown key 'b'"}},
        Fault{"twice", file_of("{" + kA + "," + kA + "}", 8), {"'a' is there twice"}},
        Fault{"twice inside",
              file_of(R"({"a":{"dtype":"F32","dtype":"F32"}})", 0),
              {"'dtype' is there twice"}},
        Fault{"metadata not text", file_of(R"({"__metadata__":{"v":1}})", 0), {"a number", "'v'"}},
        Fault{"lacking", file_of(R"({"a":{"dtype":"F32","shape":[]}})", 0), {"'a' lacks"}},
        Fault{"negative", file_of("{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", 8), {"-2"}},
        Fault{"fraction", file_of("{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}", 8), {"2.0"}},
        Fault{"huge number",
              file_of("{" + tensor("a", "F32", "[99999999999999999999]", "[0,8]") + "}", 8),
              {"does not belong"}},
        Fault{"bad UTF-8", file_of("{\"\xff\":1}", 0), {"bad JSON"}},
        Fault{"control", file_of(R"({"a\nb":{}})", 0), {"control characters"}},
        Fault{"null", file_of(R"({"a":null})", 0), {"null"}},
        Fault{"trailing", file_of("{} {}", 0), {"bad JSON"}}));

INSTANTIATE_TEST_SUITE_P(
    Tensors, SafetensorsFaults,
    ::testing::Values(
        Fault{"unknown type",
              file_of("{" + tensor("a", "F8_E4M3", "[8]", "[0,8]") + "}", 8),
              {"'a'", "'F8_E4M3'", "BF16"}},
        Fault{"outside", file_of("{" + kA + "}", 4), {"'a'", "0 to 8", "4 bytes"}},
        Fault{"backwards", file_of("{" + tensor("a", "F32", "[0]", "[8,0]") + "}", 8), {"8 to 0"}},
        Fault{"three offsets",
              file_of("{" + tensor("a", "F32", "[2]", "[0,4,8]") + "}", 8),
              {"3 data_offsets"}},
        Fault{"misfit",
              file_of("{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8),
              {"F32 [3]", "12 bytes", "has 8"}},
        Fault{"overlap",
              file_of("{" + kA + "," + tensor("b", "F32", "[2]", "[4,12]") + "}", 12),
              {"'b'", "overlaps"}},
        Fault{"hole",
              file_of("{" + kA + "," + tensor("b", "F32", "[2]", "[12,20]") + "}", 20),
              {"'b'", "hole"}},
        Fault{"rest", file_of("{" + kA + "}", 9), {"8 of the 9"}},
        Fault{"overflow",
              file_of("{" + tensor("a", "F32", "[4294967296,4294967296]", "[0,8]") + "}", 8),
              {"'a'", "overflows"}},
        Fault{"overflow behind a zero",
              file_of("{" + tensor("a", "F32", "[0,18446744073709551615]", "[0,0]") + "}", 0),
              {"'a'", "overflows"}},
        Fault{"too many dimensions",
              file_of("{" + tensor("a", "F32", "[1,1,1,1,1,1,2]", "[0,8]") + "}", 8),
              {"7 dimensions"}}));

TEST(Safetensors, HeaderOf640BytesIsNoPickle) {
  std::string json = "{" + kA + "}";
  json.resize(640, ' ');
  EXPECT_EQ(parse(file_of(json, 8)).tensors().size(), 1u);
}

Bytes small_file() {
  const HostTensor a(DType::fp32, {3, 2}), b(DType::int64, {2});
  const std::vector<TensorEntry> entries{entry("a", a.view()), entry("0.bias", b.view())};
  return to_safetensors(entries, {{"format", "pt"}});
}

// The result is success or Error; anything else (another exception, a crash, a sanitizer report)
// fails.
void survive(Bytes bytes) {
  try {
    const TensorFile file = parse(std::move(bytes));
    size_t sum = 0;
    for (const TensorEntry& tensor : file.tensors()) {
      EXPECT_EQ(tensor.data.size(), size_t(tensor.shape.numel()) * size_of(tensor.dtype));
      for (const std::byte byte : tensor.data) sum += size_t(byte);  // touches every byte
    }
    EXPECT_LE(sum, size_t{255} * 1000);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::model) << error.what();
  }
}

TEST(SafetensorsFuzz, EveryTruncation) {
  const Bytes whole = small_file();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(parse(Bytes(whole.begin(), whole.begin() + ptrdiff_t(length))), Error) << length;
  }
}

// Without checksums, as other programs write it.
Bytes foreign_file() {
  const std::string metadata = R"("__metadata__":{"format":"pt"},)";
  return file_of("{" + metadata + tensor("0.bias", "I64", "[2]", "[0,16]") + "," +
                     tensor("a", "F32", "[3,2]", "[16,40]") + "}",
                 40);
}

TEST(SafetensorsFuzz, EveryByteChanged) {
  const Bytes whole = foreign_file();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes bytes = whole;
      bytes[at] ^= std::byte(1 << bit);
      survive(std::move(bytes));
    }
    for (const char c : {'\0', '"', '{', '}', '[', ']', '9', '-', '\x7f'}) {
      Bytes bytes = whole;
      bytes[at] = std::byte(c);
      survive(std::move(bytes));
    }
  }
}

TEST(SafetensorsFuzz, RandomHeaders) {
  const std::string alphabet = "{}[]\",:0129-ae \\dtypshofF32";
  const Philox random{11, streams::kSample};
  for (uint64_t round = 0; round < 3000; ++round) {
    std::string json = "{";
    for (uint64_t i = 0; i < 40; ++i)
      json += alphabet[random.below(alphabet.size(), round * 64 + i)];
    survive(file_of(json, 16));
  }
}

// A file with every type, with values that are not zero, and a text that needs escapes.
Bytes own_file() {
  std::vector<HostTensor> tensors;
  std::vector<TensorEntry> entries;
  for (const DType dtype : {DType::fp32, DType::uint8, DType::fp64, DType::bf16}) {
    tensors.emplace_back(dtype, Shape{2, 3});
    const Tensor& view = tensors.back().view();
    for (size_t i = 0; i < view.bytes(); ++i) view.as<uint8_t>()[i] = uint8_t(i * 13 + 1);
    entries.push_back(entry(fmt::format("{}.weight", name(dtype)), view));
  }
  const HostTensor nothing(DType::fp32, {0, 4});
  entries.push_back(entry("nothing", nothing.view()));
  return to_safetensors(entries, {{"format", "pt"}, {"text", "a \"quoted\"\n\x1b, \u00fc"}});
}

TEST(SafetensorsChecksums, EveryFlippedBitIsFound) {
  const Bytes whole = own_file();
  EXPECT_TRUE(parse(whole).has_checksums());
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes bytes = whole;
      bytes[at] ^= std::byte(1 << bit);
      EXPECT_THROW(parse(std::move(bytes)), Error) << "byte " << at << ", bit " << bit;
    }
  }
}

TEST(SafetensorsChecksums, EveryOverwrittenRangeIsFound) {
  const Bytes whole = own_file();
  for (const size_t length : {1, 3, 8, 64, 200}) {
    for (const std::byte fill : {std::byte{0}, std::byte{0xff}, std::byte{' '}}) {
      for (size_t at = 0; at + length <= whole.size(); ++at) {
        Bytes bytes = whole;
        std::fill_n(bytes.begin() + ptrdiff_t(at), length, fill);
        if (bytes == whole) continue;
        EXPECT_THROW(parse(std::move(bytes)), Error) << length << " bytes at " << at;
      }
    }
  }
}

TEST(SafetensorsChecksums, TheDamagedPartIsNamed) {
  const Bytes whole = own_file();
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  const auto flipped = [&](size_t at) {
    Bytes bytes = whole;
    bytes[at] ^= std::byte{1};
    return [bytes] { parse(bytes); };
  };
  // Wider types go first.
  test::expect_error(ErrorKind::model, {"m.safetensors", "'fp64.weight' is damaged", "checksum"},
                     flipped(8 + length + 3));
  test::expect_error(ErrorKind::model, {"m.safetensors", "'uint8.weight' is damaged"},
                     flipped(whole.size() - 1));
  test::expect_error(ErrorKind::model, {"m.safetensors", "the header is damaged"}, flipped(100));
}

// Another program may copy the metadata into a file with its own weights: such a file is not
// damaged.
TEST(SafetensorsChecksums, CopiedChecksumsDoNotMarkAnotherProgramsFileAsDamaged) {
  const std::string metadata =
      R"("__metadata__":{"ridgeline.crc32.a":"11111111","text":"t","ridgeline.crc32":"22222222"},)";
  const TensorFile file =
      parse(file_of("{" + metadata + tensor("a", "F32", "[2]", "[0,8]") + "}", 8));
  EXPECT_FALSE(file.has_checksums());
  EXPECT_EQ(file.metadata(), (Metadata{{"text", "t"}}));
  // The copied checksums disappear when we write the file again.
  const TensorFile again = parse(to_safetensors(
      file.tensors(), {{"ridgeline.crc32.b", "11111111"}, {"ridgeline.crc32", "22222222"}}));
  EXPECT_TRUE(again.has_checksums());
  EXPECT_TRUE(again.metadata().empty());
}

}  // namespace
}  // namespace ridgeline::nn
