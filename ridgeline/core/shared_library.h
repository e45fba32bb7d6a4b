#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace ridgeline {

// A library that is looked up at run time, so that a process starts without it, or starts sooner.
// It stays open until the process ends, because it is not safe to close one under a live CUDA
// context or while its threads are exiting.
class SharedLibrary {
 public:
  // Opens the first of `files` that the loader finds; `name` is used in messages.
  SharedLibrary(std::string name, std::initializer_list<const char*> files)
      : name_(std::move(name)) {
    for (const char* file : files) {
      library_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) return;
    }
    refusal_ = fmt::format("{} was not found; put it on LD_LIBRARY_PATH", name_);
  }

  template <typename F>
  void find(F*& function, const char* name) {
    if (library_ == nullptr) return;
    function = reinterpret_cast<F*>(dlsym(library_, name));
    if (function == nullptr && refusal_.empty()) {
      refusal_ = fmt::format("{} has no {}", name_, name);
    }
  }

  // Why it cannot be used: it was not found, or lacks a function that was looked up.
  const std::string& refusal() const { return refusal_; }

 private:
  std::string name_, refusal_;
  void* library_ = nullptr;
};

}  // namespace ridgeline
