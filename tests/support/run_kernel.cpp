#include "tests/support/run_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ridgeline/plan/padding.h"

namespace ridgeline::test {
namespace {

const FormatUse* find_use(const std::vector<FormatUse>& uses, ValueId id) {
  for (const FormatUse& use : uses) {
    if (use.value == id) return &use;
  }
  return nullptr;
}

class KernelBinding final : public Binding {
 public:
  KernelBinding(Runtime& runtime, KernelMemory& memory, const Cover& cover, std::byte* workspace)
      : runtime_(runtime), memory_(memory), cover_(cover), workspace_(workspace) {}

  Runtime& runtime() const override { return runtime_; }
  Tensor read(const Value& value) const override { return get(value, cover_.reads); }
  Tensor write(const Value& value) const override { return get(value, cover_.writes); }
  std::byte* workspace() const override { return workspace_; }

 private:
  Tensor get(const Value& value, const std::vector<FormatUse>& uses) const {
    const bool skipped = std::ranges::count(cover_.skips, value.id) > 0;
    if (!value || skipped) return {nullptr, value.dtype, value.shape, {}};
    const FormatUse* use = find_use(uses, value.id);
    return use != nullptr ? memory_.get(*use) : memory_.plain(value.id);
  }

  Runtime& runtime_;
  KernelMemory& memory_;
  const Cover& cover_;
  std::byte* workspace_;
};

// One run_kernel(): the values in formats that are not plain, before and after the kernel runs.
class FormattedValues {
 public:
  FormattedValues(const Program& program, Runtime& runtime, const KernelTable& table,
                  KernelMemory& memory, KernelResult& result)
      : program_(program), runtime_(runtime), table_(table), memory_(memory), result_(result) {}

  void put(const FormatUse& use, const Formatted& given) {
    memory_.get(use);
    if (const auto found = given.find({use.value, use.format}); found != given.end()) {
      memory_.upload(use, found->second);
    } else {
      check_padding(use, made_from(use, given));
    }
    poison_padding(use);
    before_[{use.value, use.format}] = memory_.bytes(use);
  }

  // Checks a value that the kernel was not allowed to write.
  void check_unchanged(const FormatUse& use) {
    if (memory_.bytes(use) == before_[{use.value, use.format}]) return;
    fault(use, "is only read, and changed");
  }

  void take(const FormatUse& use, const std::string& kernel) {
    check_padding(use, kernel);
    result_.formatted[{use.value, use.format}] = memory_.bytes(use);
    memory_.plain(use.value);
    convert(use, use.format, {});
  }

 private:
  // Returns the name of the kernel that made it.
  std::string made_from(const FormatUse& use, const Formatted& given) {
    for (const auto& [instance, bytes] : given) {
      const auto& [id, format] = instance;
      if (id != use.value) continue;
      memory_.upload({id, format, bytes.size()}, bytes);
      const std::string kernel = memory_.convert(table_, id, format, use.format);
      if (kernel.empty()) continue;
      result_.converted.push_back(kernel);
      return kernel;
    }
    return convert(use, {}, use.format);
  }

  std::string convert(const FormatUse& use, const Format& from, const Format& to) {
    const std::string kernel = memory_.convert(table_, use.value, from, to);
    if (kernel.empty()) {
      throw_error(ErrorKind::usage, "no kernel converts {} from '{}' to '{}'",
                  program_.info(use.value).name, from, to);
    }
    result_.converted.push_back(kernel);
    return kernel;
  }

  // Checks a value that `kernel` has just written.
  void check_padding(const FormatUse& use, const std::string& kernel) {
    if (padding(use.format) == Padding::anything) return;
    const std::vector<size_t> places = padding_of(use, program_, runtime_, table_);
    if (all_zero(memory_.bytes(use), dtype(use), places)) return;
    fault(use, fmt::format("has padding that {} leaves other than zero", kernel));
  }

  // Poisons a value that is about to be read.
  void poison_padding(const FormatUse& use) {
    if (padding(use.format) == Padding::zero) return;
    std::vector<std::byte> bytes = memory_.bytes(use);
    poison(bytes, dtype(use), padding_of(use, program_, runtime_, table_));
    memory_.upload(use, bytes);
  }

  DType dtype(const FormatUse& use) const { return program_.info(use.value).value.dtype; }

  void fault(const FormatUse& use, const std::string& what) {
    result_.format_faults.push_back(
        fmt::format("{} in {} {}", program_.info(use.value).name, use.format, what));
  }

  const Program& program_;
  Runtime& runtime_;
  const KernelTable& table_;
  KernelMemory& memory_;
  KernelResult& result_;
  Formatted before_;
};

}  // namespace

KernelResult run_kernel(const Kernel& kernel, const Cover& cover, const Program& program,
                        size_t begin, const Arrays& inputs, Runtime& runtime,
                        const KernelTable& table, int64_t steps, const Formatted& given) {
  KernelResult result{inputs, {}, {}, {}, {}};
  KernelMemory memory(runtime, program);
  for (const ValueInfo& info : program.values) {
    const Tensor& host = inputs[info.value];
    runtime.upload(memory.plain(info.value.id).data, host.data, host.bytes());
  }
  FormattedValues formatted(program, runtime, table, memory, result);
  for (const FormatUse& use : cover.reads) formatted.put(use, given);
  const Guarded workspace(runtime, cover.workspace);
  const KernelBinding binding(runtime, memory, cover,
                              cover.workspace > 0 ? workspace.data() : nullptr);
  const auto step = kernel.prepare({program, begin, begin + cover.ops}, binding);
  if (steps == 1) {
    step->run();
  } else {
    step->run_many(steps);
  }
  runtime.synchronize();
  for (const FormatUse& use : cover.reads) {
    if (find_use(cover.writes, use.value) == nullptr) formatted.check_unchanged(use);
  }
  for (const FormatUse& use : cover.writes) formatted.take(use, kernel.name);
  for (const ValueInfo& info : program.values) {
    const Tensor& host = result.arrays[info.value];
    runtime.download(host.data, memory.plain(info.value.id).data, host.bytes());
  }
  result.overruns = memory.overruns();
  if (!workspace.intact()) result.overruns.push_back("workspace");
  return result;
}

}  // namespace ridgeline::test
