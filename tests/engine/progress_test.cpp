#include "ridgeline/engine/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

namespace ridgeline::engine {
namespace {

std::string said(const std::function<void()>& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

TEST(StartNotice, SpeaksAfterHalfASecondAndNotAtEveryCall) {
  EXPECT_EQ(said([] {
              StartNotice notice(Progress::Style::automatic);
              notice.say("tuning 0/9 kernels");
              notice.clear();
            }),
            "");
  EXPECT_EQ(said([] {
              StartNotice notice(Progress::Style::automatic), quiet(Progress::Style::none);
              std::this_thread::sleep_for(std::chrono::milliseconds(550));
              quiet.say("nothing");
              for (int i = 1; i < 9; ++i) notice.say("tuning: " + std::to_string(i) + " of 9");
            }),
            "tuning: 1 of 9\n");
}

}  // namespace
}  // namespace ridgeline::engine
