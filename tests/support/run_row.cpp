#include "tests/support/run_row.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace ridgeline::test {
namespace {

constexpr size_t kGuard = 256;
constexpr std::byte kGuardByte{0xa5};

// Device memory between two guards.
class Guarded {
 public:
  Guarded(Runtime& runtime, size_t bytes)
      : runtime_(&runtime), bytes_(bytes), buffer_(runtime, bytes + 2 * kGuard) {
    const std::vector<std::byte> fill(buffer_.size(), kGuardByte);
    runtime.upload(buffer_.data(), fill.data(), fill.size());
  }

  std::byte* data() const { return buffer_.data() + kGuard; }
  size_t size() const { return bytes_; }
  bool intact() const {
    std::vector<std::byte> all(buffer_.size());
    runtime_->download(all.data(), buffer_.data(), all.size());
    const auto guard = [](std::byte byte) { return byte == kGuardByte; };
    return std::all_of(all.begin(), all.begin() + kGuard, guard) &&
           std::all_of(all.end() - kGuard, all.end(), guard);
  }

 private:
  Runtime* runtime_;
  size_t bytes_;
  DeviceBuffer buffer_;
};

using Instance = std::pair<ValueId, Format>;

class Memory {
 public:
  Memory(Runtime& runtime, const Program& program) : runtime_(runtime), program_(program) {}

  Tensor get(ValueId id, const Format& format, size_t bytes) {
    auto found = pieces_.find({id, format});
    if (found == pieces_.end()) {
      found = pieces_.emplace(Instance{id, format}, Guarded(runtime_, bytes)).first;
    }
    const Value& value = program_.info(id).value;
    return {found->second.data(), value.dtype, value.shape, runtime_.device()};
  }
  Tensor plain(ValueId id) { return get(id, {}, size_t(size_of(program_.info(id).value))); }

  std::vector<std::string> overruns() const {
    std::vector<std::string> names;
    for (const auto& [instance, piece] : pieces_) {
      if (!piece.intact()) names.push_back(program_.info(instance.first).name + instance.second);
    }
    return names;
  }

 private:
  Runtime& runtime_;
  const Program& program_;
  std::map<Instance, Guarded> pieces_;
};

const FormatUse* find_use(const std::vector<FormatUse>& uses, ValueId id) {
  for (const FormatUse& use : uses) {
    if (use.value == id) return &use;
  }
  return nullptr;
}

class RowBinding final : public Binding {
 public:
  RowBinding(Runtime& runtime, Memory& memory, const Cover& cover, std::byte* workspace)
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
    return use != nullptr ? memory_.get(value.id, use->format, use->bytes)
                          : memory_.plain(value.id);
  }

  Runtime& runtime_;
  Memory& memory_;
  const Cover& cover_;
  std::byte* workspace_;
};

// The binding of a conversion: one value, in one format and in another.
class ConversionBinding final : public Binding {
 public:
  ConversionBinding(Runtime& runtime, const Value& value, Tensor from, Tensor to,
                    const Format& from_format, const Format& to_format)
      : runtime_(runtime),
        value_(value),
        from_(from),
        to_(to),
        from_format_(from_format),
        to_format_(to_format) {}
  Runtime& runtime() const override { return runtime_; }
  Tensor read(const Value&) const override { return from_; }
  Tensor write(const Value&) const override { return to_; }
  std::byte* workspace() const override { return nullptr; }
  Value converted() const override { return value_; }
  Format from() const override { return from_format_; }
  Format to() const override { return to_format_; }

 private:
  Runtime& runtime_;
  Value value_;
  Tensor from_, to_;
  Format from_format_, to_format_;
};

std::string convert(const Table& table, Runtime& runtime, const Program& program, Memory& memory,
                    const FormatUse& use, bool to_plain) {
  const Value& value = program.info(use.value).value;
  const Format from = to_plain ? use.format : Format{}, to = to_plain ? Format{} : use.format;
  const Tensor special = memory.get(use.value, use.format, use.bytes);
  const Tensor plain = memory.plain(use.value);
  for (const Impl& row : table) {
    if (row.target != runtime.device().kind || !row.converts || !row.converts(value, from, to)) {
      continue;
    }
    const ConversionBinding binding(runtime, value, to_plain ? special : plain,
                                    to_plain ? plain : special, from, to);
    row.prepare({program, 0, 0}, binding)->run();
    return row.name;
  }
  throw_error(ErrorKind::usage, "no row converts {} from '{}' to '{}'",
              program.info(use.value).name, from, to);
}

}  // namespace

RowResult run_row(const Impl& row, const Cover& cover, const Program& program, size_t begin,
                  const Arrays& inputs, Runtime& runtime, const Table& table, int64_t steps) {
  RowResult result{inputs, {}, {}};
  Memory memory(runtime, program);
  for (const ValueInfo& info : program.values) {
    const Tensor& host = inputs[info.value];
    runtime.upload(memory.plain(info.value.id).data, host.data, host.bytes());
  }
  for (const FormatUse& use : cover.reads) {
    result.converted.push_back(convert(table, runtime, program, memory, use, false));
  }
  const Guarded workspace(runtime, cover.workspace);
  const RowBinding binding(runtime, memory, cover,
                           cover.workspace > 0 ? workspace.data() : nullptr);
  const auto step = row.prepare({program, begin, begin + cover.ops}, binding);
  if (steps == 1) {
    step->run();
  } else {
    step->run_many(steps);
  }
  runtime.synchronize();
  for (const FormatUse& use : cover.writes) {
    result.converted.push_back(convert(table, runtime, program, memory, use, true));
  }
  for (const ValueInfo& info : program.values) {
    const Tensor& host = result.arrays[info.value];
    runtime.download(host.data, memory.plain(info.value.id).data, host.bytes());
  }
  result.overruns = memory.overruns();
  if (!workspace.intact()) result.overruns.push_back("workspace");
  return result;
}

}  // namespace ridgeline::test
