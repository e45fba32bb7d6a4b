#include "ridgeline/core/host_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>

#include "ridgeline/core/error.h"
#include "ridgeline/core/temporary.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// A /proc and a /sys/fs/cgroup of our own.
class HostMemory : public ::testing::Test {
 protected:
  void put(const fs::path& file, const std::string& text) {
    const fs::path path = folder_.path() / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void put_v2(const std::string& group, const std::string& most, size_t used,
              const std::string& high = "max") {
    put("cgroup/" + group + "/memory.max", most + "\n");
    put("cgroup/" + group + "/memory.high", high + "\n");
    put("cgroup/" + group + "/memory.current", std::to_string(used) + "\n");
  }
  void put_v1(const std::string& group, size_t most, size_t used) {
    put("cgroup/memory/" + group + "/memory.limit_in_bytes", std::to_string(most) + "\n");
    put("cgroup/memory/" + group + "/memory.usage_in_bytes", std::to_string(used) + "\n");
  }
  size_t free() const {
    return free_host_memory({folder_.path() / "proc", folder_.path() / "cgroup"});
  }

  ScratchFolder folder_{"ridgeline-memory"};
};

TEST_F(HostMemory, NothingKnownIsNoLimit) { EXPECT_EQ(free(), kNoLimit); }

TEST_F(HostMemory, TheMachineHasWhatIsAvailable) {
  put("proc/meminfo", "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:   700 kB\n");
  EXPECT_EQ(free(), 700u * 1024);
  put("proc/self/cgroup", "0::/\n");  // a machine without groups below the root: no files there
  EXPECT_EQ(free(), 700u * 1024);
}

TEST_F(HostMemory, TheLeastOfAllGroupsAboveCounts) {
  put("proc/meminfo", "MemAvailable: 1000000 kB\n");
  put("proc/self/cgroup", "0::/user.slice/job\n");
  put_v2("user.slice", "900", 500);
  put_v2("user.slice/job", "max", 300);
  EXPECT_EQ(free(), 400u);
  put_v2("user.slice/job", "350", 300);
  EXPECT_EQ(free(), 50u);
  put_v2("user.slice/job", "350", 400);  // above its limit, as it may be for a moment
  EXPECT_EQ(free(), 0u);
  put_v2("user.slice/other", "10", 10);  // none of ours
  put_v2("user.slice/job", "max", 300, "330");
  EXPECT_EQ(free(), 30u);
}

TEST_F(HostMemory, FileCacheIsFree) {
  put("proc/self/cgroup", "0::/job\n");
  put_v2("job", "1000", 900);
  put("cgroup/job/memory.stat", "anon 100\nfile 600\nactive_file 200\ninactive_file 400\n");
  EXPECT_EQ(free(), 700u);
}

TEST_F(HostMemory, AContainerSeesItsGroupAtTheTop) {
  put("proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
  put_v2(".", "500", 100);
  EXPECT_EQ(free(), 400u);
  put("proc/self/cgroup", "0::/../other\n");  // moved in from outside of its namespace
  EXPECT_EQ(free(), 400u);
}

TEST_F(HostMemory, VersionOneHasItsOwnFiles) {
  put("proc/self/cgroup",
      "12:cpu,cpuacct:/docker/12\n5:memory:/docker/12\n1:name=systemd:/docker/12\n0::/\n");
  put_v1(".", 9223372036854771712u, 5000);
  EXPECT_GT(free(), size_t{1} << 60);
  put_v1("docker/12", 1000, 600);
  EXPECT_EQ(free(), 400u);
  put("cgroup/memory/docker/12/memory.stat",
      "active_file 1\ntotal_active_file 50\ntotal_inactive_file 30\n");
  EXPECT_EQ(free(), 480u);
  put_v1("docker", 700, 650);
  EXPECT_EQ(free(), 50u);
}

TEST(RequireHostMemory, RefusesWhatIsNotThere) {
  require_host_memory(0);
  require_host_memory(size_t{1} << 20);
  try {
    require_host_memory(size_t{1} << 60, "use less");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string(error.what()).find("use less"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ridgeline
