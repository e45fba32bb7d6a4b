#include "ridgeline/data/locate.h"

#include <set>

#include "ridgeline/data/scaling.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// A set of our own with the usual file names; this machine's data is not visible.
class LocateTest : public ::testing::Test {
 protected:
  LocateTest() {
    write_image_folder(folder_ / "model", 6, 4, 2);
    set_ = {.name = "toy",
            .classes = 2,
            .folders = {"toy", "dataset-toy"},
            .files = {
                info("train-images-idx3-ubyte.gz", true), info("train-labels-idx1-ubyte.gz", false),
                info("t10k-images-idx3-ubyte.gz", true), info("t10k-labels-idx1-ubyte.gz", false)}};
  }
  // Mirrors serve every file packed; the model folder keeps the labels plain.
  FileInfo info(const std::string& name, bool packed) const {
    const auto path = find_spelling(folder_ / "model", name);
    const std::string stored = read_file(*path);
    std::string payload = stored;
    if (packed) {
      const bool train = name.starts_with("train");
      payload = idx_header(8, {train ? 6u : 4u, 3, 2});
      for (int i = 0; i < (train ? 6 : 4); ++i) {
        for (int pixel = 0; pixel < 6; ++pixel) payload += char(7 * i + pixel);
      }
    }
    const std::string served = packed ? stored : gzip(stored);
    return {name, int64_t(served.size()), sha256_of(served), sha256_of(payload)};
  }
  fs::path put(std::string_view where) {
    fs::create_directories((folder_ / where).parent_path());
    fs::copy(folder_ / "model", folder_ / where);
    return folder_ / where;
  }

  TempFolder folder_;
  SetInfo set_;
  ScopedEnv data_{"RIDGELINE_DATA", std::nullopt};
  ScopedEnv cache_{"XDG_CACHE_HOME", (folder_ / "cache").string()};
};

TEST_F(LocateTest, LooksInOrder) {
  const fs::path cached = put("cache/ridgeline/data/toy");
  EXPECT_EQ(find_set(set_), cached);
  const fs::path variable = put("variable/dataset-toy");
  const ScopedEnv data("RIDGELINE_DATA", (folder_ / "variable").string());
  EXPECT_EQ(find_set(set_), variable);
  const fs::path flag = put("flag/toy");
  EXPECT_EQ(find_set(set_, folder_ / "flag"), flag);
  fs::create_directories(folder_ / "bare");
  EXPECT_EQ(find_set(set_, folder_ / "bare"), variable);  // looks on
}

TEST_F(LocateTest, TakesTheSetsOwnFolderByNameOrByContents) {
  const fs::path named = put("place/toy");
  write_file(named / "t10k-labels-idx1-ubyte", "damaged");
  EXPECT_EQ(find_set(set_, named), named);
  EXPECT_EQ(find_set(set_, named / ""), named / "");
  const fs::path other = put("place2/mine");
  EXPECT_EQ(find_set(set_, other), other);  // its labels say what it is
}

TEST_F(LocateTest, DoesNotTakeAnotherSetsFolder) {
  write_image_folder(folder_ / "others", 6, 4, 3);
  expect_error(ErrorKind::data,
               {"--data " + (folder_ / "others").string() + " (holds another set)"},
               [&] { (void)find_set(set_, folder_ / "others"); });
}

TEST_F(LocateTest, SaysWhereItLookedAndWhatToDo) {
  const fs::path partial = put("flag/toy");
  fs::remove(partial / "t10k-labels-idx1-ubyte");
  const ScopedEnv data("RIDGELINE_DATA", "/nowhere");
  expect_error(
      ErrorKind::data,
      {"toy: data set not found", "--data " + (folder_ / "flag").string(),
       partial.string() + " lacks t10k-labels-idx1-ubyte",
       "$RIDGELINE_DATA /nowhere (no such folder)", (folder_ / "cache/ridgeline/data").string(),
       "/usr/share/datasets", "ridgeline data get toy"},
      [&] { (void)find_set(set_, folder_ / "flag"); });
  EXPECT_EQ(find_set(set_, folder_ / "flag", {Part::train}), partial);
  expect_error(ErrorKind::data, {"--data /nowhere/at/all: no such folder"},
               [&] { (void)find_set(set_, "/nowhere/at/all"); });
}

TEST_F(LocateTest, PlacesFollowTheEnvironment) {
  const ScopedEnv home("HOME", "/home/me");
  const ScopedEnv relative("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(user_data_folder(), "/home/me/.cache/ridgeline/data");
  const ScopedEnv none("HOME", std::nullopt);
  EXPECT_EQ(user_data_folder(), "");
  ASSERT_EQ(search_places("").size(), 1u);
  EXPECT_EQ(search_places("")[0].folder, "/usr/share/datasets");
}

TEST_F(LocateTest, ChecksEveryFile) {
  const fs::path place = put("flag/toy");
  const CheckReport good = check(set_, folder_ / "flag");
  EXPECT_TRUE(good.good());
  EXPECT_EQ(good.folder, place);
  EXPECT_EQ(good.files[0].state, FileState::ok);
  EXPECT_EQ(good.files[1].state, FileState::repacked);  // plain

  std::string images = read_file(place / "train-images-idx3-ubyte.gz");
  write_file(place / "train-images-idx3-ubyte.gz", images.substr(0, images.size() - 2));
  write_file(place / "train-labels-idx1-ubyte", "other");
  fs::remove(place / "t10k-images-idx3-ubyte.gz");
  const CheckReport bad = check(set_, folder_ / "flag");
  EXPECT_FALSE(bad.good());
  EXPECT_EQ(bad.files[0].state, FileState::damaged);
  EXPECT_NE(bad.files[0].note.find("truncated gzip"), std::string::npos) << bad.files[0].note;
  EXPECT_EQ(bad.files[1].state, FileState::differs);
  EXPECT_EQ(bad.files[1].found, sha256_of("other"));
  EXPECT_NE(bad.files[1].note.find(set_.files[1].sha256), std::string::npos);
  EXPECT_EQ(bad.files[2].state, FileState::missing);
  EXPECT_EQ(bad.files[3].state, FileState::repacked);
}

TEST_F(LocateTest, CheckFindsTheSetItselfOrSaysWhereItLooked) {
  expect_error(ErrorKind::data, {"toy: data set not found", "ridgeline data get toy"},
               [&] { (void)check(set_); });
  const fs::path cached = put("cache/ridgeline/data/toy");
  EXPECT_EQ(check(set_).folder, cached);
}

TEST_F(LocateTest, LoadsFoldersByPath) {
  const std::string folder = (folder_ / "model").string();
  EXPECT_EQ(load(folder).train.size(), 6);
  EXPECT_EQ(load(folder).train.name, folder);
  EXPECT_EQ(load_part(folder, Part::test).size(), 4);
  EXPECT_EQ(load_part(folder, Part::test, {}, 5).classes, 5);
  expect_error(ErrorKind::usage,
               {"'mnits' is no known data set", "did you mean 'mnist'?", "mnist, fashion-mnist"},
               [&] { (void)load("mnits"); });
  expect_error(ErrorKind::data, {"../mnist: no such data folder or file"},
               [&] { (void)load_part("../mnist", Part::test); });
}

TEST(KnownSets, AreWellFormed) {
  std::set<std::string> sums;
  for (const SetInfo& set : known_sets()) {
    EXPECT_EQ(&set_info(set.name), &set);
    EXPECT_EQ(set.files.size(), set.text || set.records ? 1u : 4u);
    EXPECT_FALSE(set.mirrors.empty());
    EXPECT_EQ(set.folders[0], set.name);  // where `get` puts it, the search looks first
    for (const FileInfo& file : set.files) {
      sums.insert(file.sha256);
      sums.insert(file.payload_sha256);
      EXPECT_EQ(file.sha256.size(), 64u);
      EXPECT_EQ(file.payload_sha256.size(), 64u);
    }
  }
  // Four packed files of two sets, and two plain texts; a third set is another view of the first.
  EXPECT_EQ(sums.size(), 2 * 8 + 2u);
}

TEST_F(LocateTest, FindsRecordsUnderAnyOfTheirNames) {
  const SetInfo& set = set_info("ag-news");
  const fs::path own = folder_ / "data" / "ag_news";
  write_file(own / "test.csv", "1,a,b\n");
  EXPECT_EQ(find_records(set, Part::test, folder_ / "data"), own / "test.csv");
  expect_error(ErrorKind::data, {"ag-news: no training file", "train.csv or train_partial.csv"},
               [&] { (void)find_records(set, Part::train, folder_ / "data"); });
  write_file(own / "train_partial.csv.gz", gzip("1,a,b\n"));
  EXPECT_EQ(find_records(set, Part::train, folder_ / "data"), own / "train_partial.csv.gz");
  write_file(own / "train.csv", "1,a,b\n");
  EXPECT_EQ(find_records(set, Part::train, own), own / "train.csv");
}

TEST(RealData, LoadsWhole) {
  RIDGELINE_NEEDS_DATA();
  for (const char* name : {"mnist", "fashion-mnist"}) {
    const DataSet set = load(name);
    EXPECT_EQ(set.train.inputs.view().shape, (Shape{60000, 28, 28}));
    EXPECT_EQ(set.test.inputs.view().shape, (Shape{10000, 28, 28}));
    EXPECT_EQ(set.train.targets.view().shape, (Shape{60000}));
    EXPECT_EQ(set.train.classes, 10);
    EXPECT_EQ(set.train.name, name);
    EXPECT_EQ(load_part(name, Part::test).hash, set.test.hash);
    EXPECT_NE(set.train.hash, set.test.hash);
  }
}

TEST(RealData, HasTheKnownLabelsAndMoments) {
  RIDGELINE_NEEDS_DATA();
  const SampleSet mnist = load_part("mnist", Part::train);
  const auto labels = mnist.targets.span<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(labels.begin(), labels.begin() + 8),
            (std::vector<int32_t>{5, 0, 4, 1, 9, 2, 1, 3}));
  // The moments everyone uses: mean 0.1307, deviation 0.3081 of pixels from 0 to 1.
  const Scaling scaling = make_scaling(ScaleKind::standard, mnist.inputs.span<uint8_t>());
  EXPECT_NEAR(1 / scaling.scale / 255, 0.3081, 5e-5);
  EXPECT_NEAR(-scaling.shift / scaling.scale / 255, 0.1307, 5e-5);
}

TEST(RealData, PassesItsCheck) {
  RIDGELINE_NEEDS_DATA();
  for (const SetInfo& set : known_sets()) {
    const CheckReport report = check(set);
    EXPECT_EQ(report.files.size(), set.files.size());
    for (const FileCheck& file : report.files) EXPECT_TRUE(file.good()) << file.note;
  }
}

// The distribution's packing differs from the mirrors'; its contents do not.
TEST(RealData, AcceptsFilesPackedOtherwise) {
  RIDGELINE_NEEDS_DATA();
  const SetInfo& set = set_info("fashion-mnist");
  const fs::path source = find_set(set);
  const TempFolder folder;
  for (const FileInfo& file : set.files) {
    const auto path = find_spelling(source, file.name);
    ASSERT_TRUE(path);
    std::string bytes = read_file(*path);
    bytes[4] = char(bytes[4] ^ 1);  // gzip's time stamp
    write_file(folder / "fm" / fs::path(file.name).string(), bytes);
  }
  const CheckReport report = check(set, folder / "fm");
  for (const FileCheck& file : report.files)
    EXPECT_EQ(file.state, FileState::repacked) << file.note;
  EXPECT_EQ(find_set(set, folder / "fm"), folder / "fm");
}

}  // namespace
}  // namespace ridgeline::data
