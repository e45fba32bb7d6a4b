#include "ridgeline/engine/train/run_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "ridgeline/core/error.h"
#include "ridgeline/prof/event_file.h"
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

constexpr const char* kLine = R"({"event":"train","step":1})";

// A tensor file in our format, identified by `text`.
std::string tensor_file(const std::string& text) {
  const auto file = nn::to_safetensors({}, {{"text", text}});
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

// Every file of a folder but the lock, by its path.
std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& each : std::filesystem::recursive_directory_iterator(folder)) {
    if (each.path().filename() == ".lock") continue;
    files[each.path().lexically_relative(folder)] = each.is_directory() ? "" : slurp(each.path());
  }
  return files;
}

// A run with all its files, and some files of the user beside it.
std::map<std::string, std::string> make_run(const std::filesystem::path& path) {
  {
    RunFolder folder(path, RunFolder::Use::fresh);
    folder.begin("seed = 1\n");
    folder.save_checkpoint(bytes(tensor_file("one")));
    folder.save_checkpoint(bytes(tensor_file("two")));
    folder.append_metrics(kLine);
    std::ofstream(folder.model(), std::ios::binary) << tensor_file("model");
    prof::EventFile(folder.tensorboard(), 0);
    std::ofstream(folder.tensorboard() / "events.out.tfevents.1700000000.host.1.0") << "another's";
    std::ofstream(path / "notes.txt") << "the user's";
  }
  return files_of(path);
}

TEST(RunFolder, SecondHolderIsToldTheFirst) {
  const TempFolder temp;
  const RunFolder first(temp / "run", RunFolder::Use::fresh);
  EXPECT_THAT(refused(temp / "run", RunFolder::Use::fresh, ErrorKind::io),
              HasSubstr("process " + std::to_string(getpid())));
}

TEST(RunFolder, ARunThatDoesNotBeginLeavesNothing) {
  const TempFolder temp;
  { const RunFolder folder(temp / "a" / "run", RunFolder::Use::fresh); }
  EXPECT_FALSE(std::filesystem::exists(temp / "a"));
  const auto mine = temp / "mine";
  std::filesystem::create_directory(mine);
  std::ofstream(mine / "model.safetensors") << "the user's";
  refused(mine, RunFolder::Use::fresh, ErrorKind::usage);
  EXPECT_FALSE(std::filesystem::exists(mine / ".lock"));
  // The lock of an earlier run stays.
  make_run(temp / "run");
  refused(temp / "run", RunFolder::Use::fresh, ErrorKind::usage);
  EXPECT_TRUE(std::filesystem::exists(temp / "run" / ".lock"));
}

// Processes that take a lock which others remove at the same time: one holds it at any time.
TEST(RunFolder, ALockThatIsRemovedLetsNobodyIn) {
  const TempFolder temp;
  const auto path = temp / "run", inside = temp / "inside";
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int fault = 0;
      for (int times = 0; times < 400; ++times) {
        try {
          const RunFolder folder(path, RunFolder::Use::fresh);
          const int file = ::open(inside.c_str(), O_CREAT | O_EXCL, 0600);
          if (file < 0) fault = 1;
          ::close(file);
          ::unlink(inside.c_str());
        } catch (const Error&) {  // another one has it
        }
      }
      ::_exit(fault);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(RunFolder, AnotherRunNeedsForce) {
  const TempFolder temp;
  {
    RunFolder folder(temp / "run", RunFolder::Use::fresh);
    folder.append_metrics(kLine);
  }
  EXPECT_THAT(refused(temp / "run", RunFolder::Use::fresh, ErrorKind::usage),
              HasSubstr("--resume"));
  RunFolder forced(temp / "run", RunFolder::Use::force);
  EXPECT_TRUE(std::filesystem::exists(forced.metrics()));
  forced.begin("");
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

TEST(RunFolder, TheOldRunStaysUntilTheNewOneHasAResult) {
  const TempFolder temp;
  const auto old = make_run(temp / "run");
  {
    const RunFolder forced(temp / "run", RunFolder::Use::force);
    EXPECT_EQ(files_of(temp / "run"), old);
  }
  EXPECT_EQ(files_of(temp / "run"), old) << "it was put off before it began";
  {
    RunFolder forced(temp / "run", RunFolder::Use::force);
    EXPECT_TRUE(forced.begin("seed = 2\n"));
    EXPECT_FALSE(forced.has_checkpoint());
    prof::EventFile(forced.tensorboard(), 0);
  }
  EXPECT_EQ(files_of(temp / "run"), old) << "it began and had nothing";
  {
    RunFolder forced(temp / "run", RunFolder::Use::force);
    forced.begin("seed = 2\n");
    forced.save_checkpoint(bytes(tensor_file("new")));
  }
  const auto now = files_of(temp / "run");
  std::vector<std::string> names;
  for (const auto& [name, text] : now) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("checkpoint.safetensors", "config.toml", "notes.txt",
                                            "tensorboard",
                                            "tensorboard/events.out.tfevents.1700000000.host.1.0"));
  EXPECT_EQ(now.at("checkpoint.safetensors"), tensor_file("new"));
  EXPECT_THAT(now.at("config.toml"), HasSubstr("seed = 2"));
}

// A killed process restores nothing; the next one in the folder does.
TEST(RunFolder, AnOldRunSurvivesAKill) {
  const TempFolder temp;
  const auto old = make_run(temp / "run");
  const pid_t child = ::fork();
  if (child == 0) {
    RunFolder forced(temp / "run", RunFolder::Use::force);
    forced.begin("seed = 2\n");
    prof::EventFile(forced.tensorboard(), 0);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NE(files_of(temp / "run"), old);
  { const RunFolder next(temp / "run", RunFolder::Use::resume); }
  EXPECT_EQ(files_of(temp / "run"), old);
}

TEST(RunFolder, AHalfMovedRunIsPutTogetherAgain) {
  const TempFolder temp;
  const auto old = make_run(temp / "run");
  const auto aside = temp / "run/.ridgeline-moving-abcdef";
  std::filesystem::create_directory(aside);
  std::filesystem::rename(temp / "run/checkpoint.safetensors", aside / "checkpoint.safetensors");
  { const RunFolder next(temp / "run", RunFolder::Use::resume); }
  EXPECT_EQ(files_of(temp / "run"), old);
}

TEST(RunFolder, AHalfRemovedRunIsRemoved) {
  const TempFolder temp;
  const auto standing = make_run(temp / "run");
  const auto aside = temp / "run/.ridgeline-removed-abcdef";
  std::filesystem::create_directories(aside / "tensorboard");
  std::ofstream(aside / "checkpoint.safetensors") << tensor_file("old");
  std::ofstream(aside / "tensorboard/events.out.tfevents.1") << "old";
  { const RunFolder next(temp / "run", RunFolder::Use::resume); }
  EXPECT_EQ(files_of(temp / "run"), standing);
}

TEST(RunFolder, FilesOfOthersAreNeverReplaced) {
  for (const char* name : {"config.toml", "metrics.jsonl", "model.safetensors",
                           "checkpoint.safetensors", "checkpoint.prev.safetensors", ".lock"}) {
    const TempFolder temp;
    std::ofstream(temp / name) << "the user's\n";
    for (const auto use : {RunFolder::Use::fresh, RunFolder::Use::force}) {
      const std::string message = refused(temp.path(), use, ErrorKind::usage);
      EXPECT_THAT(message, HasSubstr(name));
      EXPECT_THAT(message, HasSubstr("move it away"));
      EXPECT_EQ(slurp(temp / name), "the user's\n");
    }
    make_run(temp / "run");
    std::ofstream(temp / "run" / name) << "the user's\n";
    const auto before = files_of(temp / "run");
    refused(temp / "run", RunFolder::Use::force, ErrorKind::usage);
    EXPECT_EQ(files_of(temp / "run"), before) << name;
  }
}

TEST(RunFolder, AFolderOrALinkInTheirPlaceIsNotOurs) {
  const TempFolder temp;
  std::filesystem::create_directory(temp / "model.safetensors");
  refused(temp.path(), RunFolder::Use::force, ErrorKind::usage);
  std::filesystem::remove(temp / "model.safetensors");
  std::filesystem::create_symlink("nowhere", temp / "config.toml");
  refused(temp.path(), RunFolder::Use::force, ErrorKind::usage);
  EXPECT_TRUE(std::filesystem::is_symlink(temp / "config.toml"));
}

TEST(RunFolder, AConfigOnceChangedIsTheUsers) {
  const TempFolder temp;
  make_run(temp / "run");
  const auto config = temp / "run/config.toml";
  const std::string changed = slurp(config) + "# mine\n";
  std::ofstream(config) << changed;
  EXPECT_THAT(refused(temp / "run", RunFolder::Use::force, ErrorKind::usage),
              HasSubstr("config.toml"));
  {
    RunFolder resumed(temp / "run", RunFolder::Use::resume);
    EXPECT_FALSE(resumed.begin("seed = 3\n"));
  }
  EXPECT_EQ(slurp(config), changed);
}

// Version 0.1 wrote files without checksums and without a mark in the config.
TEST(RunFolder, ARunOfAnOlderVersionIsOurs) {
  const TempFolder temp;
  std::string json =
      R"({"__metadata__":{"format":"pt","ridgeline.classes":"4","ridgeline.config":"seed = 1\n",)"
      R"("ridgeline.input":"2","ridgeline.version":"1"}})";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  std::ofstream(temp / "model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) << json;
  std::ofstream(temp / "config.toml") << "seed = 1\n";
  std::ofstream(temp / "metrics.jsonl") << kLine << "\n";
  RunFolder forced(temp.path(), RunFolder::Use::force);
  EXPECT_TRUE(forced.begin("seed = 2\n"));
  EXPECT_FALSE(std::filesystem::exists(forced.model()));
  EXPECT_FALSE(std::filesystem::exists(forced.metrics()));
  EXPECT_THAT(slurp(forced.config()), HasSubstr("seed = 2"));
}

TEST(RunFolder, ADamagedNewestIsPassedOverAndKeptBeside) {
  const TempFolder temp;
  make_run(temp / "run");
  const auto ignore = [](const nn::TensorFile&) {};
  for (const char* kept : {"checkpoint.damaged.safetensors", "checkpoint.damaged-2.safetensors"}) {
    RunFolder folder(temp / "run", RunFolder::Use::resume);
    std::ofstream(folder.checkpoint(), std::ios::binary) << "torn";
    std::vector<std::string> warnings;
    const nn::TensorFile file =
        folder.load_checkpoint(ignore, [&](const std::string& text) { warnings.push_back(text); });
    EXPECT_EQ(file.metadata().at("text"), "one");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_THAT(warnings[0], HasSubstr(folder.checkpoint().string()));
    EXPECT_EQ(slurp(folder.checkpoint()), "torn") << "nothing changes before there is a new one";
    folder.save_checkpoint(bytes(tensor_file("three")));
    EXPECT_EQ(slurp(folder.checkpoint()), tensor_file("three"));
    EXPECT_EQ(slurp(folder.previous()), tensor_file("one"));
    EXPECT_EQ(slurp(temp / "run" / kept), "torn");
  }
}

// A file of another version, for example: its checksums are right, so it is not skipped.
TEST(RunFolder, AnUndamagedNewestIsNotPassedOver) {
  const TempFolder temp;
  const auto old = make_run(temp / "run");
  RunFolder folder(temp / "run", RunFolder::Use::resume);
  const auto unknown = [](const nn::TensorFile& file) {
    throw_error(ErrorKind::model, "{}: of version 9", file.origin());
  };
  try {
    folder.load_checkpoint(unknown, [](const std::string& text) { ADD_FAILURE() << text; });
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::model);
    EXPECT_THAT(error.what(), HasSubstr("checkpoint.safetensors: of version 9"));
  }
  EXPECT_EQ(files_of(temp / "run"), old);
}

// A link to itself stands for a file that cannot be opened, even by root.
TEST(RunFolder, ACheckpointThatCannotBeReadStays) {
  const TempFolder temp;
  make_run(temp / "run");
  RunFolder folder(temp / "run", RunFolder::Use::resume);
  std::filesystem::remove(folder.checkpoint());
  std::filesystem::create_symlink("checkpoint.safetensors", folder.checkpoint());
  try {
    folder.load_checkpoint([](const nn::TensorFile&) {},
                           [](const std::string& text) { ADD_FAILURE() << text; });
    ADD_FAILURE() << "it was passed over";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_THAT(error.what(), HasSubstr(folder.checkpoint().string()));
    EXPECT_THAT(error.what(), HasSubstr("make it readable"));
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder.checkpoint()));
}

}  // namespace
}  // namespace ridgeline::engine
