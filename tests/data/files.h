#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/core/error.h"

namespace ridgeline::data::testing {

// A temporary folder that is removed with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// An environment variable, set (or unset) while this lives.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::optional<std::string>& value);
  ~ScopedEnv();

 private:
  void set(const std::optional<std::string>& value);
  const char* name_;
  std::optional<std::string> before_;
};

std::filesystem::path write_file(const std::filesystem::path& path, std::string_view bytes);
std::string read_file(const std::filesystem::path& path);
std::string sha256_of(std::string_view bytes);

std::string gzip(std::string_view bytes);
// Compresses by zlib's deflate; window_bits chooses the envelope, as in deflateInit2().
std::string deflated(std::string_view bytes, int level, int window_bits);
std::string big_endian(uint32_t word);
std::string idx_header(uint8_t type, const std::vector<uint32_t>& dims);

// The four files of a small set: `train` + `test` images of 3x2, labels i % classes.
void write_image_folder(const std::filesystem::path& folder, int train, int test, int classes);

// Runs `f`, expects an Error of `kind` whose one line holds all of `parts`, and returns that line.
std::string expect_error(ErrorKind kind, const std::vector<std::string>& parts,
                         const std::function<void()>& f);

// $RIDGELINE_DATA, or empty when it is not set.
std::filesystem::path real_data();
#define RIDGELINE_NEEDS_DATA()                                                 \
  if (::ridgeline::data::testing::real_data().empty()) {                       \
    GTEST_SKIP() << "needs the data sets: set RIDGELINE_DATA to their folder"; \
  }

}  // namespace ridgeline::data::testing
