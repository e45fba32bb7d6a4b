#include "ridgeline/engine/profile/profiler.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "ridgeline/core/thread_trace.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/profile/device_use.h"
#include "ridgeline/engine/profile/replay_times.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/prof/cost.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

constexpr int kTracedPasses = 20;  // for the threads' balance
constexpr int kTimelineSteps = 3;
constexpr size_t kFewest = 5;  // quantiles of fewer are meaningless
// Seconds of whole launches with the recording on: enough for quantiles, and few enough to keep.
constexpr double kReplaySeconds = 0.5;
constexpr int64_t kReplaySteps = 320;

int64_t nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::string ops_text(const Program& program, const Choice& choice) {
  if (choice.converted >= 0) return "convert " + program.info(choice.converted).name;
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = choice.begin; i < choice.end; ++i) {
    if (i - choice.begin == kMost && choice.end - choice.begin > kMost + 1) {
      return text + fmt::format(" + {} more", choice.end - i);
    }
    text += fmt::format("{}{}", i > choice.begin ? " + " : "", name(program.ops[i]));
  }
  return text;
}

// Measures one plan, each quantity in passes of its own.
class Profiler {
 public:
  Profiler(Machine& machine, Runner& runner, Profile& profile, DeviceTracer* tracer)
      : runtime_(machine.runtime()),
        ranks_(machine.ranks() != nullptr && machine.ranks()->size() > 1 ? machine.ranks()
                                                                         : nullptr),
        runner_(runner),
        plan_(runner.plan()),
        profile_(profile),
        tracer_(tracer),
        gpu_(!machine.device().is_host()),
        // A step on a CPU costs the same however many steps a launch makes.
        steps_(gpu_ ? runner.repeats() : 1),
        rates_(runner.lowered().lr ? size_t(runner.repeats()) : 0) {}

  void run(const ProfileOptions& options) {
    describe_kernels();
    collect_calls();  // those of the start-up
    if (tracer_ != nullptr) tracer_->pause(true);
    const Clock paused;
    time_kernels(options);
    profile_.paused_seconds += paused.seconds();
    if (tracer_ != nullptr) tracer_->pause(false);
    if (gpu_) {
      watch_device();
    } else {
      watch_threads();
    }
    settle();
  }

 private:
  // Sets learning rates of zero, so that no pass changes the weights.
  void reset() { runner_.set_inputs(0, 0, rates_); }

  void describe_kernels() {
    const Program& program = plan_.program();
    for (size_t i = 0; i < plan_.choices().size(); ++i) {
      const Choice& choice = plan_.choices()[i];
      KernelProfile kernel;
      kernel.name = choice.kernel->name;
      kernel.label = plan_.label(i);
      kernel.what = ops_text(program, choice);
      kernel.begin = choice.begin;
      kernel.end = choice.end;
      kernel.work.precision = program.precision;
      kernel.work.launches = gpu_ ? 1 : 0;
      if (choice.converted >= 0) {
        kernel.work.bytes = size_of(program.info(choice.converted).value) + double(choice.to_bytes);
      } else {
        kernel.work.flops = prof::span_flops(program, choice.begin, choice.end);
        kernel.work.bytes = prof::span_bytes(program, choice.begin, choice.end);
        add_travel(program, choice.kernel->traits.through_host, kernel);
      }
      profile_.kernels.push_back(std::move(kernel));
    }
  }

  // Adds the communication of a kernel with other ranks.
  void add_travel(const Program& program, bool through_host, KernelProfile& kernel) const {
    for (size_t i = kernel.begin; i < kernel.end; ++i) {
      const auto* start = std::get_if<AllReduceStart>(&program.ops[i]);
      if (start == nullptr || ranks_ == nullptr) continue;
      kernel.work.network_bytes += start->network_bytes();
      if (through_host) kernel.work.host_bytes += 2 * size_of(start->grads);
    }
  }

  // Makes one pass over the kernels; a plan of one kernel makes all steps of a launch at once, as
  // in a run.
  std::vector<double> kernel_pass() {
    if (gpu_) {  // keeps the GPU busy while the host gets ahead of it
      reset();
      plan_.run(steps_);
    }
    reset();
    const size_t count = profile_.kernels.size();
    if (count == 1) {
      auto seconds = runtime_.time_each(1, [&](size_t) { plan_.run(steps_); });
      seconds.front() /= double(steps_);
      return seconds;
    }
    return runtime_.time_each(count, [&](size_t i) { plan_.run_choice(i); });
  }

  // Returns the overhead of the clock between two kernels; it matters only on a GPU.
  double clock_seconds() {
    if (!gpu_ || profile_.kernels.size() == 1) return 0;
    reset();
    plan_.run(steps_);
    return quantiles(runtime_.time_each(64, [](size_t) {})).median;
  }

  void time_kernels(const ProfileOptions& options) {
    std::vector<double> totals, sums, waits;
    std::vector<std::vector<double>> times(profile_.kernels.size());
    for (int i = 0; i < 2; ++i) {  // warm up
      reset();
      plan_.run(steps_);
      kernel_pass();
    }
    const double clock = clock_seconds();
    const Clock spent;
    // Alternates between the whole step and single kernels, so that a change of the machine's speed
    // affects both.
    while (agreed(totals.size() < kFewest ||
                  (int64_t(totals.size()) < options.steps && spent.seconds() < options.seconds))) {
      const double waited = ranks_ != nullptr ? ranks_->blocked_seconds() : 0;
      const auto whole = runtime_.time_each(1, [&](size_t) {
        reset();
        plan_.run(steps_);
      });
      totals.push_back(whole.front() / double(steps_));
      if (ranks_ != nullptr) {
        waits.push_back((ranks_->blocked_seconds() - waited) / double(steps_));
      }
      const auto pass = kernel_pass();
      sums.push_back(0);
      for (size_t i = 0; i < pass.size(); ++i) {
        times[i].push_back(std::max(0.0, pass[i] - clock));
        sums.back() += times[i].back();
      }
    }
    profile_.total = quantiles(totals);
    profile_.passes = int64_t(totals.size());
    if (profile_.ranks) profile_.ranks->waited = quantiles(waits).median;
    set_kernel_times(times, sums);
    one_by_one_ = std::move(times);
  }

  // Ranks make as many passes as their root does.
  bool agreed(bool mine) { return ranks_ != nullptr ? ranks_->from_root(mine) : mine; }

  // times[kernel][pass], sums[pass]
  void set_kernel_times(const std::vector<std::vector<double>>& times,
                        const std::vector<double>& sums) {
    for (size_t i = 0; i < times.size(); ++i) profile_.kernels[i].seconds = quantiles(times[i]);
    const double pass = quantiles(sums).median;
    profile_.interrupted = pass - profile_.kernel_seconds();
    profile_.gaps = profile_.total.median - pass;
  }

  void watch_threads() {
    ThreadTrace trace;
    reset();
    for (size_t i = 0; i < profile_.kernels.size(); ++i) {
      // A sum that is waited for must have been started, and vice versa.
      const KernelProfile& kernel = profile_.kernels[i];
      if (has_collectives(plan_.program(), kernel.begin, kernel.end)) continue;
      trace.take();
      // A kernel that counts steps would run past its tables, so it is reset each time.
      for (int pass = 0; pass < kTracedPasses; ++pass) {
        reset();
        plan_.run_choice(i);
      }
      add_balance(profile_.kernels[i], trace.take());
    }
    record_timeline(trace);
  }

  void add_balance(KernelProfile& kernel, const std::vector<ThreadSpan>& spans) {
    if (spans.empty()) return;
    std::vector<double> busy(size_t(std::max(1, profile_.threads)));
    double all = 0, waited = 0;
    for (const ThreadSpan& span : spans) {
      busy[size_t(span.thread)] += double(span.end - span.begin - span.waited);
      all += double(span.end - span.begin);
      waited += double(span.waited);
      if (span.thread == 0) kernel.work.regions += 1.0 / kTracedPasses;
    }
    const double most = *std::max_element(busy.begin(), busy.end());
    const double sum = std::accumulate(busy.begin(), busy.end(), 0.0);
    if (most > 0) kernel.balance = sum / double(busy.size()) / most;
    if (all > 0) kernel.waiting = waited / all;
  }

  void record_timeline(ThreadTrace& trace) {
    prof::Timeline& timeline = profile_.timeline;
    const auto steps = timeline.lane(0, "steps"), kernels = timeline.lane(0, "kernels");
    trace.take();
    reset();
    const int64_t zero = nanoseconds();
    const auto since = [&](int64_t ns) { return 1e-9 * double(ns - zero); };
    for (int step = 0; step < std::min<int64_t>(kTimelineSteps, runner_.repeats()); ++step) {
      const int64_t begin = nanoseconds();
      for (size_t i = 0; i < profile_.kernels.size(); ++i) {
        const KernelProfile& kernel = profile_.kernels[i];
        const int64_t from = nanoseconds();
        plan_.run_choice(i);
        const int64_t to = nanoseconds();
        timeline.add({kernels,
                      kernel.name,
                      "kernel",
                      since(from),
                      1e-9 * double(to - from),
                      {{"flops", kernel.work.flops}, {"bytes", kernel.work.bytes}}});
      }
      timeline.add({steps,
                    fmt::format("step {}", step),
                    "step",
                    since(begin),
                    1e-9 * double(nanoseconds() - begin),
                    {}});
    }
    for (const ThreadSpan& span : trace.take()) {
      timeline.add({timeline.lane(0, fmt::format("thread {}", span.thread)),
                    "region",
                    "thread",
                    since(span.begin),
                    1e-9 * double(span.end - span.begin),
                    {{"waited_us", 1e-3 * double(span.waited)}}});
    }
  }

  // Adds a trace to the totals of the whole program.
  void keep(const DeviceTrace& trace) {
    calls_.insert(calls_.end(), trace.calls.begin(), trace.calls.end());
    copies_.insert(copies_.end(), trace.copies.begin(), trace.copies.end());
    launches_.insert(launches_.end(), trace.launches.begin(), trace.launches.end());
  }

  void collect_calls() {
    if (tracer_ == nullptr) return;
    keep(tracer_->take());
  }

  void watch_device() {
    if (tracer_ == nullptr) {
      record_kernels_alone();
      return;
    }
    collect_calls();
    std::vector<DeviceTrace> alone;
    for (size_t i = 0; i < profile_.kernels.size(); ++i) {
      reset();
      collect_calls();
      plan_.run_choice(i);
      DeviceTrace trace = tracer_->take();
      profile_.kernels[i].launches = group_launches(trace.launches);
      profile_.kernels[i].work.launches = double(trace.launches.size() + trace.copies.size());
      keep(trace);
      alone.push_back(std::move(trace));
    }
    DeviceTrace trace = trace_launches(kTimelineSteps);
    profile_.device_use = device_use(trace);
    add_to_timeline(trace, profile_.timeline);
    time_in_launches(alone);
    profile_.api = heaviest_calls(calls_);
    profile_.functions = heaviest_functions(launches_);
    for (const LaunchRecord& each : launches_) profile_.function_seconds += each.end - each.begin;
    profile_.copies = copies_by_kind(copies_);
    add_up_calls();
  }

  void add_up_calls() {
    if (calls_.empty()) return;
    double first = calls_.front().begin, last = 0;
    for (const ApiRecord& call : calls_) {
      profile_.api_seconds += call.end - call.begin;
      first = std::min(first, call.begin);
      last = std::max(last, call.end);
    }
    profile_.recorded_seconds = last - first - profile_.paused_seconds;
  }

  DeviceTrace trace_launches(int64_t count) {
    for (int64_t launch = 0; launch < count; ++launch) {
      reset();
      plan_.run(steps_);
    }
    runtime_.synchronize();
    DeviceTrace trace = tracer_->take();
    keep(trace);
    return trace;
  }

  // Replaces the times that events measured kernel by kernel with times inside whole steps. A plan
  // of one kernel is its own step already.
  void time_in_launches(const std::vector<DeviceTrace>& alone) {
    if (alone.size() < 2) return;
    const auto fit = int64_t(kReplaySeconds / std::max(1e-9, profile_.total.median));
    int64_t steps = std::clamp<int64_t>(fit, int64_t(kFewest), kReplaySteps);
    if (ranks_ != nullptr) steps = ranks_->from_root(steps);
    auto times = times_in_replay(alone, trace_launches((steps + steps_ - 1) / steps_));
    if (!times) return;
    keep_host_times(*times);
    std::vector<double> sums(times->kernels.front().size());
    for (const auto& kernel : times->kernels) {
      for (size_t step = 0; step < kernel.size(); ++step) sums[step] += kernel[step];
    }
    set_kernel_times(times->kernels, sums);
    profile_.in_launches = true;
  }

  // A kernel between graphs runs mostly on the host, which the device's records do not show, so the
  // times of events around it are kept.
  void keep_host_times(ReplayTimes& times) const {
    for (size_t i = 0; i < times.kernels.size(); ++i) {
      if (!plan_.choices()[i].kernel->traits.between_graphs) continue;
      const std::vector<double>& measured = one_by_one_[i];
      for (size_t k = 0; k < times.kernels[i].size(); ++k) {
        times.kernels[i][k] = measured[k % measured.size()];
      }
    }
  }

  // Without a tracer, adds the kernels' median times one after the other.
  void record_kernels_alone() {
    const auto lane = profile_.timeline.lane(0, "kernels");
    double at = 0;
    for (const KernelProfile& kernel : profile_.kernels) {
      profile_.timeline.add({lane, kernel.name, "kernel", at, kernel.seconds.median, {}});
      at += kernel.seconds.median;
    }
  }

  // Adds the time of its kernels to each pass.
  void add_up_passes() {
    const Program& program = plan_.program();
    const std::vector<prof::Pass> passes = prof::passes_of(program);
    profile_.cost = prof::cost_of(program);
    for (const KernelProfile& kernel : profile_.kernels) {
      if (kernel.begin == kernel.end) continue;  // a conversion
      const auto first = passes.begin() + int64_t(kernel.begin),
                 last = passes.begin() + int64_t(kernel.end);
      const bool one = std::all_of(first, last, [&](prof::Pass pass) { return pass == *first; });
      double& seconds =
          one ? profile_.cost.passes[size_t(*first)].seconds : profile_.cost.joined_seconds;
      seconds += kernel.seconds.median;
      const auto ops = program.ops.begin();
      if (std::any_of(ops + int64_t(kernel.begin), ops + int64_t(kernel.end), prof::is_product)) {
        profile_.cost.product_seconds += kernel.seconds.median;
      }
    }
  }

  void settle() {
    add_up_passes();
    const double sum = profile_.kernel_seconds();
    for (KernelProfile& kernel : profile_.kernels) {
      kernel.share = sum > 0 ? kernel.seconds.median / sum : 0;
      if (!profile_.ceilings) continue;
      kernel.roofs = prof::roof_times(kernel.work, *profile_.ceilings);
      if (kernel.seconds.median > 0) kernel.fraction = kernel.roofs.least() / kernel.seconds.median;
    }
    profile_.advice = advise(profile_, plan_.program());
  }

  Runtime& runtime_;
  Communicator* const ranks_;  // null: alone
  Runner& runner_;
  Plan& plan_;
  Profile& profile_;
  DeviceTracer* tracer_;
  const bool gpu_;
  const int64_t steps_;  // per launch
  const std::vector<double> rates_;
  std::vector<ApiRecord> calls_;
  std::vector<CopyRecord> copies_;
  std::vector<LaunchRecord> launches_;
  std::vector<std::vector<double>> one_by_one_;  // [kernel][pass], by events
};

}  // namespace

void take_profile(Machine& machine, Runner& runner, const ProfileOptions& options,
                  DeviceTracer* tracer, Profile& profile) {
  Profiler(machine, runner, profile, tracer).run(options);
}

}  // namespace ridgeline::engine
