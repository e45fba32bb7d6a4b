#include "ridgeline/engine/train/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridgeline/core/error.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::slurp;
using testing::TempFolder;

std::string refused(const std::filesystem::path& path, RunFolder::Use use, ErrorKind kind) {
  try {
    RunFolder folder(path, use);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), exit_code(kind));
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return {};
}

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(RunFolder, SecondHolderIsToldTheFirst) {
  const TempFolder temp;
  const RunFolder first(temp / "run", RunFolder::Use::fresh);
  EXPECT_THAT(refused(temp / "run", RunFolder::Use::fresh, ErrorKind::io),
              HasSubstr("process " + std::to_string(getpid())));
}

TEST(RunFolder, AnotherRunNeedsForce) {
  const TempFolder temp;
  {
    RunFolder folder(temp / "run", RunFolder::Use::fresh);
    folder.append_metrics("{\"step\":1}");
  }
  EXPECT_THAT(refused(temp / "run", RunFolder::Use::fresh, ErrorKind::usage),
              HasSubstr("--resume"));
  const RunFolder forced(temp / "run", RunFolder::Use::force);
  EXPECT_FALSE(std::filesystem::exists(forced.metrics()));
}

TEST(RunFolder, NothingToResume) {
  const TempFolder temp;
  EXPECT_THAT(refused(temp / "run", RunFolder::Use::resume, ErrorKind::usage),
              HasSubstr("no run to continue"));
  EXPECT_FALSE(std::filesystem::exists(temp / "run")) << "a folder was made for it";
}

TEST(RunFolder, FileInItsPlaceIsRefused) {
  const TempFolder temp;
  std::ofstream(temp / "run") << "x";
  refused(temp / "run", RunFolder::Use::fresh, ErrorKind::io);
}

TEST(RunFolder, KeepsTheCheckpointBefore) {
  const TempFolder temp;
  RunFolder folder(temp / "run", RunFolder::Use::fresh);
  folder.save_checkpoint(bytes("one"));
  folder.save_checkpoint(bytes("two"));
  folder.save_checkpoint(bytes("three"));
  EXPECT_EQ(slurp(folder.checkpoint()), "three");
  EXPECT_EQ(slurp(folder.previous()), "two");
}

TEST(RunFolder, BothDamagedIsAnError) {
  const TempFolder temp;
  RunFolder folder(temp / "run", RunFolder::Use::fresh);
  folder.save_checkpoint(bytes("one"));
  folder.save_checkpoint(bytes("two"));
  EXPECT_THROW(folder.load_checkpoint([](const nn::TensorFile&) {}, [](const std::string&) {}),
               Error);
}

TEST(RunFolder, TrimsMetricsAndTornLines) {
  const TempFolder temp;
  RunFolder folder(temp / "run", RunFolder::Use::fresh);
  folder.append_metrics("{\"step\":1}");
  folder.append_metrics("{\"step\":5}");
  folder.append_metrics("{\"step\":9");
  folder.trim_metrics(4);
  EXPECT_EQ(slurp(folder.metrics()), "{\"step\":1}\n");
}

}  // namespace
}  // namespace ridgeline::engine
