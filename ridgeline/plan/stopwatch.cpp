#include "ridgeline/plan/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ridgeline/core/philox.h"
#include "ridgeline/plan/busy_clock.h"
#include "ridgeline/plan/cover_lookup.h"
#include "ridgeline/plan/fill.h"

namespace ridgeline {
namespace {

// Returns contents on which a kernel can be timed, or the part of them that fill_repeating()
// repeats: floats in (-0.5, 0.5), integers below their bound; nothing if zeros will do, as for
// state, rates and counters.
std::vector<std::byte> sample(const ValueInfo& info) {
  const bool weights =
      info.role == Role::param || info.role == Role::copy || info.role == Role::temp;
  if (is_float(info.value.dtype) && !weights) return {};

  // The size of a block of random numbers that is repeated: filling large sets one by one takes
  // long.
  constexpr int64_t kBlock = 65'536 + 7;
  const int64_t count = std::min(info.value.shape.numel(), kBlock);
  const size_t width = size_of(info.value.dtype);
  std::vector<std::byte> bytes(size_t(count) * width);
  const Philox random{uint64_t(info.value.id), streams::kSample};
  for (int64_t i = 0; i < count; ++i) {
    std::byte* at = bytes.data() + size_t(i) * width;
    const float value = random.uniform(uint64_t(i)) - 0.5f;
    const uint64_t integer = random.below(uint64_t(std::max<int64_t>(1, info.below)), uint64_t(i));
    const auto put = [&](auto number) { std::memcpy(at, &number, sizeof(number)); };
    switch (info.value.dtype) {
      case DType::fp64:
        put(double(value));
        break;
      case DType::fp32:
        put(value);
        break;
      case DType::bf16:
        put(Bf16(value));
        break;
      case DType::fp16:
        put(Fp16(value));
        break;
      case DType::int32:
        put(int32_t(integer));
        break;
      case DType::int64:
        put(int64_t(integer));
        break;
      case DType::uint8:
        put(uint8_t(integer));
        break;
    }
  }
  return bytes;
}

class ScratchBinding final : public Binding {
 public:
  using Find = std::function<Tensor(const Value&, bool reading)>;
  ScratchBinding(Runtime& runtime, const Program& program, const Choice& choice,
                 std::byte* workspace, Find find)
      : runtime_(runtime),
        program_(program),
        choice_(choice),
        workspace_(workspace),
        find_(std::move(find)) {}
  Runtime& runtime() const override { return runtime_; }
  Tensor read(const Value& value) const override { return find_(value, true); }
  Tensor write(const Value& value) const override { return find_(value, false); }
  std::byte* workspace() const override { return workspace_; }
  Value converted() const override {
    return choice_.converted < 0 ? Value{} : program_.info(choice_.converted).value;
  }
  Format from() const override { return choice_.from; }
  Format to() const override { return choice_.to; }

 private:
  Runtime& runtime_;
  const Program& program_;
  const Choice& choice_;
  std::byte* workspace_;
  Find find_;
};

}  // namespace

DeviceStopwatch::DeviceStopwatch(const Program& program, Runtime& runtime,
                                 double seconds_per_kernel, TuningCache* cache)
    : program_(program), runtime_(runtime), seconds_(seconds_per_kernel), cache_(cache) {}

Tensor DeviceStopwatch::scratch(const Value& value, const Format& format, size_t bytes) {
  auto found = memory_.find({value.id, format});
  if (found == memory_.end()) {
    DeviceBuffer buffer(runtime_, std::max<size_t>(1, bytes));
    std::vector<std::byte> content;
    if (format.empty()) content = sample(program_.info(value.id));
    // Zeros are written too: unwritten pages all map to one zero page, which is always in a cache.
    if (content.empty()) content.resize(4096);
    fill_repeating(runtime_, buffer.data(), buffer.size(), content);
    found = memory_.emplace(std::pair(value.id, format), std::move(buffer)).first;
  }
  return {found->second.data(), value.dtype, value.shape, runtime_.device()};
}

// Returns the step counters that the ops [begin, end) would change.
std::vector<Tensor> DeviceStopwatch::ticks(size_t begin, size_t end) {
  std::vector<Tensor> counters;
  for (size_t i = begin; i < end; ++i) {
    if (const auto* tick = std::get_if<Tick>(&program_.ops[i])) {
      counters.push_back(scratch(tick->tick, {}, size_t(size_of(tick->tick))));
    }
  }
  return counters;
}

double DeviceStopwatch::time(const std::function<void()>& run, double budget, bool together) {
  Communicator* ranks = runtime_.ranks();
  if (!together || ranks == nullptr || ranks->size() == 1) return runtime_.time(run, budget);
  using Clock = std::chrono::steady_clock;
  // Times from a common start to the slowest rank's end; the end of a sum that was only started is
  // not timed.
  const auto once = [&] {
    ranks->barrier();
    const auto begin = Clock::now();
    run();
    runtime_.synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return ranks->reduce(seconds, Reduce::max);
  };
  once();
  const double about = std::max(once(), 1e-7);
  const size_t count = size_t(std::clamp(budget / about, 5.0, 200.0));
  std::vector<double> seconds;
  for (size_t i = 0; i < count; ++i) seconds.push_back(once());
  std::nth_element(seconds.begin(), seconds.begin() + int64_t(count / 2), seconds.end());
  return seconds[count / 2];
}

// Runs before each run and after the last: the next measurement must not gather past the end of the
// order.
void DeviceStopwatch::clear(const std::vector<Tensor>& counters) {
  for (const Tensor& counter : counters) runtime_.clear(counter.data, counter.bytes());
}

double DeviceStopwatch::kernel(const Choice& choice) {
  const std::string work = choice.converted < 0
                               ? signature(program_, choice.begin, choice.end)
                               : fmt::format("{}{} {} to {}", name(program_.precision),
                                             to_string(program_.info(choice.converted).value.shape),
                                             choice.from, choice.to);
  const std::string key = choice.kernel->name + " | " + work;
  const bool together = has_collectives(program_, choice.begin, choice.end);
  // Layers that are alike are measured once, even without the cache's times.
  const auto before = measured_.find(key);
  if (before != measured_.end() && !together) return before->second;
  if (cache_ != nullptr && !anew_) {
    if (const auto known = cache_->kernel_seconds(key)) return *known;
  }
  const CoverLookup cover(choice.cover);
  const DeviceBuffer workspace(runtime_, choice.cover.workspace);
  const auto find = [&](const Value& value, bool reading) {
    if (!value) return Tensor{nullptr, value.dtype, value.shape, {}};
    if (value.id == choice.converted) {
      const size_t bytes = reading ? choice.from_bytes : choice.to_bytes;
      return scratch(value, reading ? choice.from : choice.to,
                     std::max(bytes, size_t(size_of(value))));
    }
    if (cover.skips(value.id)) return Tensor{nullptr, value.dtype, value.shape, {}};
    const FormatUse* use = reading ? cover.read(value.id) : cover.write(value.id);
    if (use != nullptr) return scratch(value, use->format, use->bytes);
    return scratch(value, {}, size_t(size_of(value)));
  };
  const ScratchBinding binding(runtime_, program_, choice, workspace.data(), find);
  const auto step = choice.kernel->prepare(Span{program_, choice.begin, choice.end}, binding);
  const std::vector<Tensor> counters = ticks(choice.begin, choice.end);
  // A kernel of whole programs makes many steps per launch, as in a run: its cost per launch
  // (fetching weights) is not the cost of a step.
  const bool whole = choice.begin == 0 && choice.end == program_.ops.size();
  const auto time_of = [&](int64_t steps) {
    const auto run = [&] {
      clear(counters);
      steps > 1 ? step->run_many(steps) : step->run();
    };
    return time(run, seconds_, together) / double(steps);
  };
  double seconds = time_of(1);
  if (const int64_t steps = whole ? steps_for(seconds) : 1; steps > 1) seconds = time_of(steps);
  clear(counters);
  if (cache_ != nullptr) cache_->set_kernel_seconds(key, seconds);
  measured_[key] = seconds;
  return seconds;
}

// Returns how many steps of a launch to time if one takes this long: as many as a launch makes,
// within the budget of a measurement.
int64_t DeviceStopwatch::steps_for(double seconds) const {
  const double fit = seconds > 0 ? seconds_ / seconds : 1;
  return std::clamp<int64_t>(int64_t(std::min(fit, 1e6)), 1, program_.repeats);
}

Externals DeviceStopwatch::externals() {
  Externals all;
  for (const ValueInfo& info : program_.values) {
    if (info.role == Role::temp) continue;
    all[info.value.id] = scratch(info.value, {}, size_t(size_of(info.value)));
  }
  return all;
}

double DeviceStopwatch::time_plan(const Choices& choices, double budget) {
  Plan plan(runtime_, program_, choices, externals());
  const std::vector<Tensor> counters = ticks(0, program_.ops.size());
  const bool together = has_collectives(program_);
  const auto time_of = [&](int64_t steps) {
    const auto run = [&] {
      clear(counters);
      plan.run(steps);
    };
    return time(run, budget, together) / double(steps);
  };
  // A few steps per launch, as in a run, without a long measurement; as many as kernel() takes if
  // one kernel makes them all.
  int64_t few = std::min<int64_t>(program_.repeats, 4);
  if (runtime_.device().is_host() && !together) {
    // If a step takes seconds, several steps per launch would take minutes.
    constexpr double kLong = 5;
    const auto once = [&] {
      clear(counters);
      const BusyClock clock;
      plan.run(1);
      const double seconds = clock.seconds();
      clear(counters);
      return seconds;
    };
    const double first = once();
    if (first > 10 * budget) return first > kLong ? first : std::min(first, once());
    // The launches that time() makes at least fit into the budget.
    constexpr double kLaunches = 4;
    if (first * kLaunches > budget) few = 1;
  }
  double seconds = time_of(few);
  const int64_t steps = choices.size() == 1 ? steps_for(seconds) : few;
  if (steps > few) seconds = time_of(steps);
  clear(counters);
  return seconds;
}

}  // namespace ridgeline
