#include "ridgeline/data/download.h"

#include <signal.h>
#include <sys/resource.h>

#include "ridgeline/data/locate.h"
#include "ridgeline/data/part_file.h"
#include "tests/data/files.h"
#include "tests/data/loopback_server.h"

namespace ridgeline::data {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// A set of two files that only our test server has. The first is longer than one of libcurl's
// buffers, so that a cut falls between two writes.
class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest() {
    std::string noise(300000, '\0');
    uint32_t word = 1;
    for (char& byte : noise) byte = char((word = word * 1664525 + 1013904223) >> 24);
    images_ = gzip(noise);
    labels_ = gzip("labels");
    set_ = {
        .name = "toy",
        .classes = 2,
        .folders = {"toy"},
        .files = {
            {"toy-images.gz", int64_t(images_.size()), sha256_of(images_), sha256_of(noise)},
            {"toy-labels.gz", int64_t(labels_.size()), sha256_of(labels_), sha256_of("labels")}}};
  }

  Reply good(const Request& request) const {
    if (request.path.ends_with("/toy-images.gz")) return {.body = images_};
    if (request.path.ends_with("/toy-labels.gz")) return {.body = labels_};
    return {.status = 404, .body = "no such page"};
  }
  LoopbackServer good_server() {
    return LoopbackServer([this](const Request& request) { return good(request); });
  }
  GetOptions from(const LoopbackServer& server) const { return {.mirror = server.url()}; }
  fs::path target(std::string_view name = "toy-images.gz") { return folder_ / "toy" / name; }
  fs::path part() { return folder_ / "toy/toy-images.gz.part"; }

  TempFolder folder_;
  std::string images_, labels_;
  SetInfo set_;
  ScopedEnv no_mirror_{"RIDGELINE_MIRROR", std::nullopt};
  ScopedEnv no_proxy_{"no_proxy", "127.0.0.1"};
};

TEST_F(DownloadTest, GetsAllFilesOnce) {
  const LoopbackServer server = good_server();
  EXPECT_EQ(get(set_, folder_.path(), from(server)), folder_ / "toy");
  EXPECT_EQ(read_file(target()), images_);
  EXPECT_EQ(read_file(target("toy-labels.gz")), labels_);
  EXPECT_FALSE(fs::exists(part()));
  ASSERT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests()[0].path, "/toy/toy-images.gz");

  EXPECT_EQ(get(set_, folder_.path(), from(server)), folder_ / "toy");
  EXPECT_EQ(server.requests().size(), 2u);  // nothing was requested again
  EXPECT_TRUE(check(set_, folder_.path()).good());
}

TEST_F(DownloadTest, TakesTheMirrorOfTheEnvironmentAndTheUsersCache) {
  const LoopbackServer server = good_server();
  const ScopedEnv mirror("RIDGELINE_MIRROR", server.url() + "/");
  const ScopedEnv cache("XDG_CACHE_HOME", folder_.path().string());
  EXPECT_EQ(get(set_), folder_ / "ridgeline/data/toy");
  EXPECT_EQ(read_file(folder_ / "ridgeline/data/toy/toy-labels.gz"), labels_);
}

TEST_F(DownloadTest, RefusesToReplaceAFileThatIsWrong) {
  const LoopbackServer server = good_server();
  write_file(target(), "not this");
  expect_error(ErrorKind::data, {target().string(), "differs", "remove it first"},
               [&] { get(set_, folder_.path(), from(server)); });
  EXPECT_EQ(read_file(target()), "not this");
}

TEST_F(DownloadTest, RefusesToShadowItsFileByAWrongOneOfAnotherSpelling) {
  const LoopbackServer server = good_server();
  const fs::path plain = write_file(target("toy-images"), "not this");
  expect_error(ErrorKind::data, {plain.string(), "differs", "remove it first"},
               [&] { get(set_, folder_.path(), from(server)); });
}

TEST_F(DownloadTest, ReportsProgress) {
  const LoopbackServer server = good_server();
  GetOptions options = from(server);
  int64_t last = -1;
  int calls = 0;
  options.progress = [&](const Progress& now) {
    if (now.file != "toy-images.gz") return true;
    EXPECT_GE(now.done, last);
    EXPECT_EQ(now.total, int64_t(images_.size()));
    last = now.done;
    ++calls;
    return true;
  };
  get(set_, folder_.path(), options);
  EXPECT_GT(calls, 1);
  EXPECT_EQ(last, int64_t(images_.size()));
}

TEST_F(DownloadTest, StopsWhenToldAndKeepsThePart) {
  const LoopbackServer server = good_server();
  GetOptions options = from(server);
  options.progress = [&](const Progress& now) { return now.done == 0; };
  expect_error(ErrorKind::data, {"toy-images.gz: stopped after", part().string()},
               [&] { get(set_, folder_.path(), options); });
  EXPECT_TRUE(fs::exists(part()));
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(DownloadTest, SaysNotFound) {
  const LoopbackServer server([](const Request&) { return Reply{.status = 404, .body = "gone"}; });
  expect_error(ErrorKind::data,
               {"toy: toy-images.gz could not be downloaded", server.url() + "/toy/toy-images.gz",
                "HTTP 404 (not found)", "RIDGELINE_MIRROR"},
               [&] { get(set_, folder_.path(), from(server)); });
  EXPECT_TRUE(fs::is_empty(folder_ / "toy"));  // the error page is no part
}

TEST_F(DownloadTest, SaysWhenNobodyAnswers) {
  std::string url;
  { url = good_server().url(); }  // a port that was free a moment ago
  expect_error(ErrorKind::data, {"toy-images.gz", "127.0.0.1"},
               [&] { get(set_, folder_.path(), {.mirror = url}); });
}

TEST_F(DownloadTest, RemovesAFileOfTheWrongChecksum) {
  std::string wrong = images_;
  wrong[1000] ^= 1;
  const LoopbackServer server([&](const Request&) { return Reply{.body = wrong}; });
  expect_error(ErrorKind::data,
               {"wrong checksum", "expected sha256 " + sha256_of(images_),
                "got " + sha256_of(wrong), "removed"},
               [&] { get(set_, folder_.path(), from(server)); });
  EXPECT_TRUE(fs::is_empty(folder_ / "toy"));
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST_F(DownloadTest, KeepsThePartOfACutConnectionAndResumes) {
  const size_t cut = 100000;
  std::atomic<bool> whole = false;
  const LoopbackServer server([&](const Request& request) {
    Reply reply = good(request);
    if (!whole) reply.cut_after = cut;
    return reply;
  });
  expect_error(ErrorKind::data,
               {"connection cut after 100000 of " + std::to_string(images_.size()) + " bytes",
                "100000 bytes are kept in " + part().string(), "next get resumes"},
               [&] { get(set_, folder_.path(), from(server)); });
  EXPECT_EQ(read_file(part()), images_.substr(0, cut));
  EXPECT_FALSE(fs::exists(target()));

  whole = true;
  get(set_, folder_.path(), from(server));
  EXPECT_EQ(read_file(target()), images_);
  EXPECT_FALSE(fs::exists(part()));
  EXPECT_EQ(server.requests()[1].range_from, int64_t(cut));
}

TEST_F(DownloadTest, TreatsAStalledConnectionAsCut) {
  const LoopbackServer server([&](const Request& request) {
    Reply reply = good(request);
    reply.cut_after = 5000;
    reply.stall_seconds = 20;
    return reply;
  });
  GetOptions options = from(server);
  options.stall_seconds = 1;
  expect_error(ErrorKind::data, {"connection cut after 5000 of", "5000 bytes are kept"},
               [&] { get(set_, folder_.path(), options); });
}

TEST_F(DownloadTest, BeginsAgainWhenTheServerCannotResume) {
  const LoopbackServer server([&](const Request& request) {
    Reply reply = good(request);
    reply.ranges = false;
    return reply;
  });
  write_file(part(), images_.substr(0, 777));
  get(set_, folder_.path(), from(server));
  EXPECT_EQ(read_file(target()), images_);
  ASSERT_EQ(server.requests().size(), 3u);
  EXPECT_EQ(server.requests()[0].range_from, 777);
  EXPECT_EQ(server.requests()[1].range_from, std::nullopt);
}

TEST_F(DownloadTest, BeginsAgainWhenThePartWasOfAnotherFile) {
  const LoopbackServer server = good_server();
  for (const size_t length : {size_t{500}, images_.size(), images_.size() + 1}) {
    fs::remove(target());
    write_file(part(), std::string(length, 'x'));
    get(set_, folder_.path(), from(server));
    EXPECT_EQ(read_file(target()), images_) << length;
  }
}

TEST_F(DownloadTest, UsesACompletePartWithoutAsking) {
  const LoopbackServer server = good_server();
  write_file(part(), images_);
  get(set_, folder_.path(), from(server));
  EXPECT_EQ(read_file(target()), images_);
  EXPECT_EQ(server.requests().size(), 1u);  // the labels
}

TEST_F(DownloadTest, TriesTheMirrorsInOrder) {
  const LoopbackServer none([](const Request&) { return Reply{.status = 404}; });
  const LoopbackServer cut([&](const Request& request) {
    Reply reply = good(request);
    reply.cut_after = 1000;
    return reply;
  });
  const LoopbackServer server = good_server();
  set_.mirrors = {none.url() + "/a", cut.url() + "/b", server.url() + "/c"};
  get(set_, folder_.path());
  EXPECT_EQ(read_file(target()), images_);
  EXPECT_EQ(none.requests()[0].path, "/a/toy-images.gz");
  EXPECT_EQ(server.requests()[0].path, "/c/toy-images.gz");
  EXPECT_EQ(server.requests()[0].range_from, 1000);  // goes on where the second was cut

  fs::remove_all(folder_ / "toy");
  set_.mirrors = {none.url() + "/a", cut.url() + "/b"};
  expect_error(ErrorKind::data, {"/a/toy-images.gz: HTTP 404", "/b/toy-images.gz: connection cut"},
               [&] { get(set_, folder_.path()); });
}

TEST_F(DownloadTest, FollowsRedirects) {
  const LoopbackServer server = good_server();
  const LoopbackServer pointer([&](const Request& request) {
    return Reply{.status = 302, .location = server.url() + request.path};
  });
  get(set_, folder_.path(), from(pointer));
  EXPECT_EQ(read_file(target()), images_);
  const LoopbackServer to_disk(
      [&](const Request&) { return Reply{.status = 302, .location = "file:///etc/hostname"}; });
  fs::remove_all(folder_ / "toy");
  expect_error(ErrorKind::data, {"toy-images.gz"},
               [&] { get(set_, folder_.path(), from(to_disk)); });
}

TEST_F(DownloadTest, StopsAServerThatSendsTooMuch) {
  const LoopbackServer server(
      [&](const Request&) { return Reply{.body = images_ + std::string(10000000, 'x')}; });
  expect_error(ErrorKind::data,
               {"sends more than the " + std::to_string(images_.size()) + " bytes expected"},
               [&] { get(set_, folder_.path(), from(server)); });
  EXPECT_TRUE(fs::is_empty(folder_ / "toy"));
}

TEST_F(DownloadTest, SaysWhenTheDiskIsFull) {
  const LoopbackServer server = good_server();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{50000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string line = expect_error(ErrorKind::io, {part().string(), "write error"},
                                        [&] { get(set_, folder_.path(), from(server)); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(DownloadTest, RefusesBadDestinationsAndMirrors) {
  const LoopbackServer server = good_server();
  const fs::path file = write_file(folder_ / "file", "x");
  expect_error(ErrorKind::io, {(file / "toy").string(), "cannot be made"},
               [&] { get(set_, file, from(server)); });
  for (const char* mirror : {"file:///etc", "ftp://127.0.0.1", "127.0.0.1", "/data"}) {
    expect_error(ErrorKind::usage, {"--mirror", mirror, "http://"},
                 [&] { get(set_, folder_.path(), {.mirror = mirror}); });
    const ScopedEnv variable("RIDGELINE_MIRROR", mirror);
    expect_error(ErrorKind::usage, {"$RIDGELINE_MIRROR", mirror}, [&] { get(set_); });
  }
  const ScopedEnv home("HOME", std::nullopt), cache("XDG_CACHE_HOME", std::nullopt);
  expect_error(ErrorKind::usage, {"no folder to download to", "--data"},
               [&] { get(set_, {}, from(server)); });
}

TEST_F(DownloadTest, OneProcessAFolder) {
  const LoopbackServer server = good_server();
  fs::create_directories(folder_ / "toy");
  const FolderLock lock(folder_ / "toy");
  expect_error(ErrorKind::io, {"another process is downloading"},
               [&] { get(set_, folder_.path(), from(server)); });
}

TEST_F(DownloadTest, GetsTheRealSetsFromAMirror) {
  RIDGELINE_NEEDS_DATA();
  const SetInfo& mnist = set_info("mnist");
  const fs::path source = find_set(mnist, real_data());
  int asked = 0;
  const LoopbackServer server([&](const Request& request) {
    Reply reply{.body = read_file(source / fs::path(request.path).filename())};
    if (asked++ == 0) reply.cut_after = 1000000;
    return reply;
  });
  expect_error(ErrorKind::data, {"connection cut after 1000000 of 9912422 bytes"},
               [&] { get(mnist, folder_.path(), from(server)); });
  EXPECT_EQ(get(mnist, folder_.path(), from(server)), folder_ / "mnist");
  const CheckReport report = check(mnist, folder_.path());
  ASSERT_EQ(report.files.size(), 4u);
  for (const FileCheck& file : report.files) EXPECT_EQ(file.state, FileState::ok) << file.note;
}

}  // namespace
}  // namespace ridgeline::data
