#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/train/run_folder.h"
#include "tests/engine/small_run.h"

// Damage to the files of a run, wherever it occurs: it is found and named, and a good checkpoint
// before the damaged one is used instead, if there is one.
namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::quiet;
using testing::slurp;
using testing::small_config;
using testing::TempFolder;

struct Parts {
  uint64_t length = 0;  // of the header
  nlohmann::ordered_json header;

  explicit Parts(const std::string& file) {
    std::memcpy(&length, file.data(), 8);
    header = nlohmann::ordered_json::parse(file.substr(8, length));
  }
  size_t data() const { return 8 + length; }
};

// The positions to damage: every byte of the length and the header, and some of each tensor,
// including its first and last.
std::vector<size_t> places(const std::string& file) {
  const Parts parts(file);
  std::vector<size_t> all(parts.data());
  std::iota(all.begin(), all.end(), size_t{0});
  for (const auto& [name, tensor] : parts.header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    for (size_t at = begin; at < end; at += 1 + (end - begin) / 5) all.push_back(parts.data() + at);
    if (begin < end) all.push_back(parts.data() + end - 1);
  }
  return all;
}

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    train(small_config({"train.max_steps=20", "train.checkpoint_steps=10"}), quiet(out_));
    newest_ = slurp(out_ / "checkpoint.safetensors");
    model_ = slurp(out_ / "model.safetensors");
  }

  // The step of the checkpoint that a run would continue from.
  int64_t resumed_step(std::string& warning) {
    RunFolder folder(out_, RunFolder::Use::resume);
    CheckpointInfo info;
    folder.load_checkpoint([&](const nn::TensorFile& file) { info = read_checkpoint_info(file); },
                           [&](const std::string& text) { warning = text; });
    return info.step;
  }

  // The damage that load_model reports, or nothing.
  std::string load_damage() {
    try {
      ModelOptions options;
      options.run.device = "cpu";
      load_model(out_, options);
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.kind()), 3);
      return error.what();
    }
    return {};
  }

  const TempFolder temp_;
  const std::filesystem::path out_ = temp_ / "run";
  std::string newest_, model_;
};

TEST_F(Damage, AFlippedBitInACheckpointFallsBackToTheOneBefore) {
  std::string warning;
  ASSERT_EQ(resumed_step(warning), 20);
  ASSERT_EQ(warning, "");
  for (const size_t at : places(newest_)) {
    std::string bytes = newest_;
    bytes[at] = char(bytes[at] ^ (1 << at % 8));
    write(out_ / "checkpoint.safetensors", bytes);
    warning.clear();
    ASSERT_EQ(resumed_step(warning), 10) << "byte " << at;
    ASSERT_THAT(warning, HasSubstr("checkpoint.safetensors: ")) << "byte " << at;
    ASSERT_THAT(warning, HasSubstr("checkpoint before it")) << "byte " << at;
  }
}

TEST_F(Damage, ZeroedBytesInACheckpointFallBackToTheOneBefore) {
  std::string warning;
  for (size_t at = 0; at < newest_.size(); at += newest_.size() / 50) {
    std::string bytes = newest_;
    const size_t count = std::min<size_t>(512, bytes.size() - at);
    bytes.replace(at, count, count, '\0');
    write(out_ / "checkpoint.safetensors", bytes);
    warning.clear();
    ASSERT_EQ(resumed_step(warning), 10) << "byte " << at;
    ASSERT_NE(warning, "") << "byte " << at;
  }
}

TEST_F(Damage, AFlippedBitInAModelFileIsAnErrorThatNamesIt) {
  ASSERT_EQ(load_damage(), "");
  for (const size_t at : places(model_)) {
    std::string bytes = model_;
    bytes[at] = char(bytes[at] ^ (1 << at % 8));
    write(out_ / "model.safetensors", bytes);
    const std::string message = load_damage();
    ASSERT_THAT(message, HasSubstr("model.safetensors: ")) << "byte " << at;
    if (at < Parts(model_).data()) continue;
    ASSERT_THAT(message, ::testing::ContainsRegex("tensor '[03].(weight|bias)' is damaged"));
    ASSERT_THAT(message, HasSubstr("restore the file from a copy"));
  }
}

// The file as version 0.1 wrote it, without checksums.
std::string without_checksums(const std::string& file) {
  const Parts parts(file);
  nlohmann::ordered_json header = parts.header;
  auto& metadata = header["__metadata__"];
  for (auto at = metadata.begin(); at != metadata.end();) {
    at = at.key().starts_with("ridgeline.crc32") ? metadata.erase(at) : std::next(at);
  }
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json + file.substr(parts.data());
}

TEST_F(Damage, FilesWithoutChecksumsLoadAndOnlyStrictSaysSo) {
  write(out_ / "checkpoint.safetensors", without_checksums(newest_));
  write(out_ / "model.safetensors", without_checksums(model_));
  std::string warning;
  EXPECT_EQ(resumed_step(warning), 20);
  EXPECT_EQ(warning, "");
  ModelOptions options;
  options.run.device = "cpu";
  EXPECT_TRUE(load_model(out_, options).warnings.empty());
  options.strict = true;
  const auto warnings = load_model(out_, options).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("has no checksums"));
  write(out_ / "model.safetensors", model_);
  EXPECT_TRUE(load_model(out_, options).warnings.empty());
  TrainOptions resume = quiet(out_);
  resume.resume = true;
  EXPECT_EQ(train(small_config({"train.max_steps=30"}), resume).steps_here, 10);
}

// Without checksums a changed value may go unnoticed, but anything that makes the file unusable
// falls back.
TEST_F(Damage, AnUnusableCheckpointWithoutChecksumsFallsBackToo) {
  const std::string old = without_checksums(newest_);
  const auto change = [&](const std::string& from, const std::string& to) {
    std::string bytes = old;
    const size_t at = bytes.find(from);
    ASSERT_NE(at, bytes.npos) << from;
    ASSERT_EQ(from.size(), to.size());
    write(out_ / "checkpoint.safetensors", bytes.replace(at, to.size(), to));
    TrainOptions resume = quiet(out_);
    resume.resume = true;
    ::testing::internal::CaptureStderr();
    std::optional<int64_t> made;
    EXPECT_NO_THROW(made = train(small_config({"train.max_steps=20"}), resume).steps_here) << from;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("checkpoint before it"));
    EXPECT_EQ(made, 10) << from;
  };
  change("\"0.weight\"", "\"0.veight\"");
  change("\"optimizer.0.weight.m\"", "\"optimizer.0.weight.l\"");
  change("type = \\\"adam\\\"", "type = \\\"adan\\\"");
  change("\\\"step\\\":20", "\\\"stet\\\":20");
  change("\"ridgeline.version\":\"1\"", "\"ridgeline.version\":\"9\"");
}

}  // namespace
}  // namespace ridgeline::engine
