#include "ridgeline/core/temporary.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "ridgeline/core/cache_file.h"
#include "ridgeline/core/file.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

class Temporary : public ::testing::Test {
 protected:
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      all.insert(entry.path().filename().string());
    }
    return all;
  }

  const ScratchFolder scratch_{"ridgeline-temporary"};
  const fs::path folder_ = scratch_.path(), target_ = folder_ / "a.bin";
};

TEST_F(Temporary, LeavesNothingUnlessItIsPublished) {
  put(target_, "old");
  {
    TemporaryFile file(target_);
    EXPECT_EQ(names().size(), 2u);
    write_all(file.fd(), {}, file.path());
  }
  EXPECT_EQ(names(), (std::set<std::string>{"a.bin"}));
  EXPECT_EQ(read_text_file(target_), "old");
  TemporaryFile(target_).publish();
  EXPECT_EQ(names(), (std::set<std::string>{"a.bin"}));
  EXPECT_EQ(read_text_file(target_), "");
}

TEST_F(Temporary, LongNamesAreCut) {
  const fs::path longest = folder_ / std::string(255, 'x');
  TemporaryFile(longest).publish();
  EXPECT_EQ(names(), std::set<std::string>{std::string(255, 'x')});
}

TEST_F(Temporary, OnlyWhatAKilledProcessLeftIsRemoved) {
  const TemporaryFile at_work(target_);
  const std::string left = "a.bin.0123456789abcdef.tmp";
  put(folder_ / left, "torn");
  // A user's files, a folder, a link and a file of another target, none of them ours.
  const std::set<std::string> others{"a.bin.tmp",
                                     "a.bin.0123456789abcde.tmp",
                                     "a.bin.0123456789ABCDEF.tmp",
                                     "a.bin.0123456789abcdef.tmp~",
                                     "b.bin.0123456789abcdef.tmp",
                                     "a.bin"};
  for (const std::string& name : others) put(folder_ / name, "kept");
  fs::create_directory(folder_ / "a.bin.00000000000000d1.tmp");
  fs::create_symlink("a.bin", folder_ / "a.bin.00000000000000d2.tmp");
  ASSERT_EQ(::mkfifo((folder_ / "a.bin.00000000000000d3.tmp").c_str(), 0600), 0);
  std::set<std::string> expected = names();
  expected.erase(left);
  remove_leftovers(target_);
  EXPECT_EQ(names(), expected);
  EXPECT_TRUE(fs::exists(at_work.path()));
  remove_leftovers(folder_ / "none" / "a.bin");  // no such folder
}

TEST_F(Temporary, AFileOfAnotherUserStays) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const fs::path foreign = folder_ / "a.bin.0123456789abcdef.tmp";
  put(foreign, "not ours");
  ASSERT_EQ(::chown(foreign.c_str(), 65534, 65534), 0);
  remove_leftovers(target_);
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(Temporary, AScratchFolderIsPrivateAndGoes) {
  fs::path path;
  {
    const ScratchFolder mine("ridgeline-test"), other("ridgeline-test");
    path = mine.path();
    EXPECT_NE(path, other.path());
    put(path / "file", "x");
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
  }
  EXPECT_FALSE(fs::exists(path));
}

class CacheFiles : public Temporary {
 protected:
  const fs::path file_ = folder_ / "cache" / "a.json";
};

TEST_F(CacheFiles, ArePrivate) {
  EXPECT_FALSE(read_cache_file(file_));
  write_cache_file(file_, "kept");
  EXPECT_EQ(read_cache_file(file_), "kept");
  struct stat status {};
  ASSERT_EQ(::stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(file_.parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  write_cache_file({}, "nowhere");
  EXPECT_FALSE(read_cache_file({}));
}

TEST_F(CacheFiles, LinksAreNotFollowed) {
  const fs::path precious = folder_ / "precious";
  put(precious, "precious");
  fs::create_directory(file_.parent_path());
  fs::create_symlink(precious, file_);
  EXPECT_FALSE(read_cache_file(file_));
  write_cache_file(file_, "kept");
  EXPECT_EQ(read_text_file(precious), "precious");
  EXPECT_EQ(read_cache_file(file_), "kept");
}

TEST_F(CacheFiles, OnlyPlainFilesAreUsed) {
  fs::create_directories(file_);
  EXPECT_FALSE(read_cache_file(file_));
  write_cache_file(file_, "x");
  EXPECT_TRUE(fs::is_directory(file_));
  fs::remove(file_);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_FALSE(read_cache_file(file_));  // would wait for a writer
  write_cache_file(file_, "x");
  EXPECT_TRUE(fs::is_fifo(file_));
}

TEST_F(CacheFiles, FilesOfOtherUsersAreNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  write_cache_file(file_, "planted");
  ASSERT_EQ(::chown(file_.c_str(), 65534, 65534), 0);
  EXPECT_FALSE(read_cache_file(file_));
  write_cache_file(file_, "kept");
  EXPECT_EQ(read_cache_file(file_), "kept");
  ASSERT_EQ(::chown(file_.parent_path().c_str(), 65534, 65534), 0);
  EXPECT_FALSE(read_cache_file(file_));
  write_cache_file(file_, "into a folder of another user");
  EXPECT_EQ(read_text_file(file_), "kept");
}

TEST(CacheFolder, IsNoneWithoutAHome) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string home = variable("HOME"), xdg = variable("XDG_CACHE_HOME");
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(cache_file("a"), "/x/ridgeline/a");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(cache_file("a"), "/home/me/.cache/ridgeline/a");
  ::setenv("HOME", "relative", 1);
  EXPECT_EQ(cache_file("a"), "");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(cache_folder(), "");
  EXPECT_EQ(cache_file("a"), "");
  ::setenv("HOME", home.c_str(), 1);
  ::setenv("XDG_CACHE_HOME", xdg.c_str(), 1);
}

}  // namespace
}  // namespace ridgeline
