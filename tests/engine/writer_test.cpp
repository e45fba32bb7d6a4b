#include "ridgeline/engine/stream/writer.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using testing::slurp;
using testing::TempFolder;

// Its thread begins before finish() or after it: late where others have the cores.
TEST(ResultWriter, OfNoResultsWritesItsHeader) {
  const TempFolder folder;
  std::vector<std::jthread> others;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    others.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) continue;
    });
  }
  WriterOptions options;
  options.classes = 2;
  for (int i = 0; i < 200; ++i) {
    Bell bell;
    OutputFile output(folder / "labels.csv");
    {
      ResultWriter writer(output, options, bell);
      writer.finish(0);
      output.finish();
    }
    ASSERT_EQ(slurp(folder / "labels.csv"), "index,label,p0,p1\n") << i;
  }
}

TEST(OutputFile, OfAnotherWriterIsRefusedUntilThatHasEnded) {
  const TempFolder folder;
  {
    OutputFile first(folder / "labels.csv");
    first.write("first\n");
    EXPECT_THROW(OutputFile(folder / "labels.csv"), Error);
    first.finish();
    EXPECT_EQ(slurp(folder / "labels.csv"), "first\n");
  }
  {
    OutputFile left(folder / "labels.csv");
    left.write("a part that stays, as after a kill\n");
    left.keep();
  }
  OutputFile second(folder / "labels.csv");
  second.write("second\n");
  second.finish();
  EXPECT_EQ(slurp(folder / "labels.csv"), "second\n");
}

}  // namespace
}  // namespace ridgeline::engine
