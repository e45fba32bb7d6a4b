#include "ridgeline/core/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

class File : public ::testing::Test {
 protected:
  File() {
    std::string name = (fs::temp_directory_path() / "ridgeline-file-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~File() override { fs::remove_all(folder_); }

  size_t entries() const {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

template <typename F>
std::string message_of(ErrorKind kind, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.kind()), std::string(name(kind)));
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST_F(File, WritesReplacesAndReadsBack) {
  const fs::path path = folder_ / "a.bin";
  for (const std::string text : {"first", "", "something longer than the first"}) {
    write_file_atomic(path, bytes_of(text));
    EXPECT_EQ(read_file(path), bytes_of(text));
    EXPECT_EQ(entries(), 1u);
  }
}

TEST_F(File, FoldersThatNobodyFilledGo) {
  const fs::path mine = folder_ / "mine", inner = mine / "a" / "b";
  fs::create_directory(mine);
  { const MadeFolder made("--out", inner); }
  EXPECT_TRUE(fs::is_empty(mine));
  {
    const MadeFolder made("--out", inner);
    EXPECT_TRUE(fs::is_directory(inner));
    write_file_atomic(mine / "a" / "kept", bytes_of("kept"));
  }
  EXPECT_FALSE(fs::exists(inner));
  EXPECT_TRUE(fs::exists(mine / "a" / "kept"));
  { const MadeFolder made("--out", mine / "a"); }
  EXPECT_TRUE(fs::exists(mine / "a" / "kept"));
}

TEST_F(File, SparesAFileThatAnotherProgramCallsTmp) {
  write_file_atomic(folder_ / "a.bin.tmp", bytes_of("a user's own"));
  write_file_atomic(folder_ / "a.bin", bytes_of("whole"));
  EXPECT_EQ(read_file(folder_ / "a.bin"), bytes_of("whole"));
  EXPECT_EQ(read_file(folder_ / "a.bin.tmp"), bytes_of("a user's own"));
}

TEST_F(File, ManyWritersOfOneFileDoNotMeet) {
  const fs::path path = folder_ / "a.bin";
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&path, i] {
      const std::vector<std::byte> bytes(100'000, std::byte(i));
      for (int n = 0; n < 5; ++n) write_file_atomic(path, bytes);
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::vector<std::byte> kept = read_file(path);
  EXPECT_EQ(kept, std::vector<std::byte>(100'000, kept.front()));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(File, AFullDiskKeepsTheOldFile) {
  const fs::path path = folder_ / "a.bin";
  write_file_atomic(path, bytes_of("old"));
  // A limit on file sizes cuts the write short, then fails it, as a full disk does.
  rlimit kept{};
  ::getrlimit(RLIMIT_FSIZE, &kept);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100, kept.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string message =
      message_of(ErrorKind::io, [&] { write_file_atomic(path, std::vector<std::byte>(1000)); });
  ::setrlimit(RLIMIT_FSIZE, &kept);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
  EXPECT_EQ(read_file(path), bytes_of("old"));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(File, RefusesPlacesItCannotWrite) {
  const auto writing = [&](const fs::path& path) {
    return message_of(ErrorKind::io, [&] { write_file_atomic(path, bytes_of("x")); });
  };
  EXPECT_NE(writing(folder_ / "none" / "a").find("No such file"), std::string::npos);
  EXPECT_NE(writing("").find("no file name"), std::string::npos);
  fs::create_directory(folder_ / "taken");
  EXPECT_NE(writing(folder_ / "taken").find("is a folder"), std::string::npos);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(File, FollowsLinksAndNeverReplacesADevice) {
  write_file_atomic(folder_ / "real", bytes_of("old"));
  fs::create_symlink("real", folder_ / "link");
  write_file_atomic(folder_ / "link", bytes_of("new"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "real"), bytes_of("new"));
  // Uses links, so that a fault here damages no device of this machine.
  fs::create_symlink("/dev/null", folder_ / "null");
  write_file_atomic(folder_ / "null", bytes_of("gone"));
  EXPECT_TRUE(fs::is_character_file(folder_ / "null"));
  fs::create_symlink("/dev/full", folder_ / "full");
  const std::string message =
      message_of(ErrorKind::io, [&] { write_file_atomic(folder_ / "full", bytes_of("x")); });
  EXPECT_NE(message.find("No space left"), std::string::npos) << message;
  EXPECT_TRUE(fs::is_character_file(folder_ / "full"));
  EXPECT_EQ(entries(), 4u);
}

TEST_F(File, SaysBeforehandWhatCannotBeWritten) {
  check_writable(folder_ / "new");
  check_writable("/dev/null");
  EXPECT_EQ(entries(), 0u);
  const auto checking = [&](const fs::path& path) {
    return message_of(ErrorKind::io, [&] { check_writable(path); });
  };
  EXPECT_NE(checking(folder_ / "none" / "a").find("No such file"), std::string::npos);
  EXPECT_NE(checking(folder_).find("is a folder"), std::string::npos);
  write_file_atomic(folder_ / "file", bytes_of("x"));
  EXPECT_NE(
      message_of(ErrorKind::io, [&] { make_folder("--out", folder_ / "file"); }).find("--out"),
      std::string::npos);
}

TEST_F(File, NamesWhatItCannotRead) {
  const auto reading = [&](const fs::path& path, size_t limit = 100) {
    return message_of(ErrorKind::model, [&] { read_file(path, ErrorKind::model, limit); });
  };
  EXPECT_NE(reading(folder_ / "none").find("none: cannot open: No such file"), std::string::npos);
  EXPECT_NE(reading(folder_).find("is a folder"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_NE(reading(folder_ / "pipe").find("is a pipe, not a plain file"), std::string::npos);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder_ / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_NE(reading(folder_ / "socket").find("is a socket"), std::string::npos);
  ::close(socket);
  EXPECT_NE(reading("/dev/zero").find("is a device"), std::string::npos);
  write_file_atomic(folder_ / "long", bytes_of("12345"));
  EXPECT_NE(reading(folder_ / "long", 4).find("5 bytes, more than the 4"), std::string::npos);
}

}  // namespace
}  // namespace ridgeline
