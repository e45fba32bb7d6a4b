#include "ridgeline/engine/stream/writer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>
#include <vector>

#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using testing::slurp;
using testing::TempFolder;

// Its thread may begin before finish() or after it; it is late if other processes have the cores.
TEST(ResultWriter, OfNoResultsWritesItsHeader) {
  const TempFolder folder;
  std::vector<std::jthread> others;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    others.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) continue;
    });
  }
  WriterOptions options;
  options.outputs = 2;
  for (int i = 0; i < 200; ++i) {
    Event event;
    OutputFile output(folder / "labels.csv", is_infer_output);
    {
      ResultWriter writer(output, options, event);
      writer.finish(0);
      output.finish();
    }
    ASSERT_EQ(slurp(folder / "labels.csv"), "index,label,p0,p1\n") << i;
  }
}

TEST(OutputFile, OfAnotherWriterIsRefusedUntilThatHasEnded) {
  const TempFolder folder;
  {
    OutputFile first(folder / "labels.csv", is_infer_output);
    first.write("index,label\nfirst\n");
    EXPECT_THROW(OutputFile(folder / "labels.csv", is_infer_output), Error);
    first.finish();
    EXPECT_EQ(slurp(folder / "labels.csv"), "index,label\nfirst\n");
  }
  {
    OutputFile left(folder / "labels.csv", is_infer_output);
    left.write("index,label\na part that stays, as after a kill\n");
    left.keep();
  }
  OutputFile second(folder / "labels.csv", is_infer_output);
  second.write("second\n");
  second.finish();
  EXPECT_EQ(slurp(folder / "labels.csv"), "second\n");
}

TEST(OutputFile, SparesFilesThatAreNoOutputs) {
  const TempFolder folder;
  const auto refused = [&](const char* name, const std::string& text, auto ours) {
    std::ofstream(folder / name) << text;
    EXPECT_THROW(OutputFile(folder / "labels.csv", ours), Error) << text;
    EXPECT_EQ(slurp(folder / name), text);
    std::filesystem::remove(folder / name);
  };
  for (const char* name : {"labels.csv", "labels.csv.part"}) {
    refused(name, "label,text\n1,a\n", is_infer_output);
    refused(name, "1,2\n", is_infer_output);
    refused(name, "a user's own", is_infer_part);
    refused(name, ",1", is_infer_part);
    refused(name, "1,x", is_infer_part);
  }
  for (const char* text : {"", "index,label,p0\n", "{\"index\":0", "17,3\n", "0,1,0.25"}) {
    std::ofstream(folder / "labels.csv") << text;
    OutputFile(folder / "labels.csv", is_infer_part);
  }
}

}  // namespace
}  // namespace ridgeline::engine
