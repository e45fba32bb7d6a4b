#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ridgeline/core/error.h"

namespace ridgeline::test {

// Calls `f` and expects an Error of this kind, in one line that has all these parts.
template <typename F>
void expect_error(ErrorKind kind, const std::vector<const char*>& parts, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(name(error.kind()), std::string(name(kind))) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const char* part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
    }
    return;
  }
  ADD_FAILURE() << "no error; expected one with: " << parts.front();
}

}  // namespace ridgeline::test
