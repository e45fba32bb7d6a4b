#include "tests/support/kernel_memory.h"

#include <algorithm>
#include <limits>

#include "tests/support/arrays.h"

namespace ridgeline::test {
namespace {

constexpr std::byte kGuardByte{0xa5}, kPoison{0xff};

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

Tensor elements(std::span<const std::byte> bytes, DType dtype) {
  const auto count = int64_t(bytes.size() / size_of(dtype));
  return {const_cast<std::byte*>(bytes.data()), dtype, {count}, {}};
}

}  // namespace

Guarded::Guarded(Runtime& runtime, size_t bytes)
    : runtime_(&runtime), bytes_(bytes), buffer_(runtime, bytes + 2 * kGuard) {
  std::vector<std::byte> fill(buffer_.size(), kGuardByte);
  std::fill_n(fill.begin() + kGuard, bytes, kPoison);
  runtime.upload(buffer_.data(), fill.data(), fill.size());
}

bool Guarded::intact() const {
  std::vector<std::byte> all(buffer_.size());
  runtime_->download(all.data(), buffer_.data(), all.size());
  const auto guard = [](std::byte byte) { return byte == kGuardByte; };
  return std::all_of(all.begin(), all.begin() + kGuard, guard) &&
         std::all_of(all.end() - kGuard, all.end(), guard);
}

Tensor KernelMemory::get(ValueId id, const Format& format, size_t bytes) {
  auto found = buffers_.find({id, format});
  if (found == buffers_.end()) {
    found = buffers_.emplace(Instance{id, format}, Guarded(runtime_, bytes)).first;
  }
  const Value& value = program_.info(id).value;
  return {found->second.data(), value.dtype, value.shape, runtime_.device()};
}

Tensor KernelMemory::plain(ValueId id) {
  return get(id, {}, size_t(size_of(program_.info(id).value)));
}

std::vector<std::byte> KernelMemory::bytes(const FormatUse& use) {
  std::vector<std::byte> host(use.bytes);
  runtime_.download(host.data(), get(use).data, host.size());
  return host;
}

void KernelMemory::upload(const FormatUse& use, std::span<const std::byte> bytes) {
  runtime_.upload(get(use).data, bytes.data(), bytes.size());
}

std::string KernelMemory::convert(const KernelTable& table, ValueId id, const Format& from,
                                  const Format& to) {
  const Value& value = program_.info(id).value;
  for (const Kernel& kernel : table) {
    if (kernel.target != runtime_.device().kind || !kernel.converts ||
        !kernel.converts(value, from, to)) {
      continue;
    }
    const ConversionBinding binding(runtime_, value, get(id, from, 0), get(id, to, 0), from, to);
    kernel.prepare({program_, 0, 0}, binding)->run();
    return kernel.name;
  }
  return {};
}

std::vector<std::string> KernelMemory::overruns() const {
  std::vector<std::string> names;
  for (const auto& [instance, buffer] : buffers_) {
    if (!buffer.intact()) names.push_back(program_.info(instance.first).name + instance.second);
  }
  return names;
}

std::vector<size_t> padding_of(const FormatUse& use, const Program& program, Runtime& runtime,
                               const KernelTable& table) {
  const Value& value = program.info(use.value).value;
  if (use.bytes == size_t(size_of(value))) return {};
  KernelMemory memory(runtime, program);
  HostTensor ones(value.dtype, value.shape);
  for (int64_t i = 0; i < ones.view().numel(); ++i) set_element(ones.view(), i, 1);
  runtime.upload(memory.plain(use.value).data, ones.view().data, ones.view().bytes());
  memory.get(use);
  memory.convert(table, use.value, {}, use.format);
  const std::vector<std::byte> made = memory.bytes(use);
  std::vector<size_t> padding;
  for (size_t i = 0; i < made.size() / size_of(value.dtype); ++i) {
    if (get_element(elements(made, value.dtype), int64_t(i)) != 1) padding.push_back(i);
  }
  const size_t live = made.size() / size_of(value.dtype) - padding.size();
  if (live != size_t(value.shape.numel())) {
    throw_error(ErrorKind::usage, "a conversion of {} elements to {} gives {}", value.shape.numel(),
                use.format, live);
  }
  return padding;
}

bool all_zero(std::span<const std::byte> bytes, DType dtype, const std::vector<size_t>& places) {
  const Tensor all = elements(bytes, dtype);
  return std::ranges::all_of(places, [&](size_t i) { return get_element(all, int64_t(i)) == 0; });
}

void poison(std::span<std::byte> bytes, DType dtype, const std::vector<size_t>& places) {
  const Tensor all = elements(bytes, dtype);
  for (const size_t i : places) {
    set_element(all, int64_t(i), std::numeric_limits<double>::quiet_NaN());
  }
}

}  // namespace ridgeline::test
