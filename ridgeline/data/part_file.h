#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace ridgeline::data {

// FILE.part beside FILE: the downloaded bytes so far. Every disk failure throws Error(io).
class PartFile {
 public:
  explicit PartFile(const std::filesystem::path& target);
  ~PartFile();  // removes the part if it is empty
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }

  void append(std::span<const std::byte> bytes);
  void clear();
  void publish();  // syncs, renames to the target, syncs the folder

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path target_, path_;
  int fd_ = -1;
  int64_t size_ = 0;
  bool published_ = false;
};

// Locks a folder for this process while it lives, so that two downloads do not write one part.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);  // throws io if another holds it
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace ridgeline::data
