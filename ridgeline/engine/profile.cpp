#include "ridgeline/engine/profile.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>

#include "ridgeline/core/thread_trace.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/device_use.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/predict.h"
#include "ridgeline/engine/trainer.h"
#include "ridgeline/prof/cost.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

constexpr int kTracedPasses = 20;  // for the threads' balance
constexpr int kTimelineSteps = 3;
constexpr size_t kFewest = 5;  // quantiles of less mean nothing

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

// Takes one plan's measurements, each kind in passes of its own.
class Profiler {
 public:
  Profiler(Machine& machine, Runner& runner, Profile& profile, DeviceTracer* tracer)
      : runtime_(machine.runtime()),
        runner_(runner),
        plan_(runner.plan()),
        profile_(profile),
        tracer_(tracer),
        gpu_(machine.device().kind != DeviceKind::cpu),
        // A CPU's steps cost the same however many a launch makes.
        steps_(gpu_ ? runner.repeats() : 1),
        rates_(runner.lowered().lr ? size_t(runner.repeats()) : 0) {}

  void run(const ProfileOptions& options) {
    describe_rows();
    collect_calls();  // those of the start-up
    if (tracer_ != nullptr) tracer_->pause(true);
    time_rows(options);
    if (tracer_ != nullptr) tracer_->pause(false);
    if (gpu_) {
      watch_device();
    } else {
      watch_threads();
    }
    settle();
  }

 private:
  // Rates of zero: the weights stay what they are, however many passes are made.
  void reset() { runner_.set_inputs(0, 0, rates_); }

  void describe_rows() {
    const Program& program = plan_.program();
    for (const Choice& choice : plan_.choices()) {
      RowProfile row;
      row.row = choice.row->name;
      row.what = ops_text(program, choice);
      row.begin = choice.begin;
      row.end = choice.end;
      row.work.precision = program.precision;
      row.work.launches = gpu_ ? 1 : 0;
      if (choice.converted >= 0) {
        row.work.bytes = size_of(program.info(choice.converted).value) + double(choice.to_bytes);
      } else {
        row.work.flops = prof::span_flops(program, choice.begin, choice.end);
        row.work.bytes = prof::span_bytes(program, choice.begin, choice.end);
      }
      profile_.rows.push_back(std::move(row));
    }
  }

  // One pass over the rows; a plan of one row makes its steps at once, as in a run.
  std::vector<double> row_pass() {
    if (gpu_) {  // keeps the GPU busy while the host gets ahead of it
      reset();
      plan_.run(steps_);
    }
    reset();
    const size_t count = profile_.rows.size();
    if (count == 1) {
      auto seconds = time_each(runtime_, 1, [&](size_t) { plan_.run(steps_); });
      seconds.front() /= double(steps_);
      return seconds;
    }
    return time_each(runtime_, count, [&](size_t i) { plan_.run_choice(i); });
  }

  // What the clock itself takes between two rows; nothing to speak of but on a GPU.
  double clock_seconds() {
    if (!gpu_ || profile_.rows.size() == 1) return 0;
    reset();
    plan_.run(steps_);
    return quantiles(time_each(runtime_, 64, [](size_t) {})).median;
  }

  void time_rows(const ProfileOptions& options) {
    std::vector<double> totals, sums;
    std::vector<std::vector<double>> times(profile_.rows.size());
    for (int i = 0; i < 2; ++i) {  // warm
      reset();
      plan_.run(steps_);
      row_pass();
    }
    const double clock = clock_seconds();
    const Clock spent;
    // Total and rows by turns, so that a machine which slows down meanwhile does so for both.
    while (totals.size() < kFewest ||
           (int64_t(totals.size()) < options.steps && spent.seconds() < options.seconds)) {
      const auto whole = time_each(runtime_, 1, [&](size_t) {
        reset();
        plan_.run(steps_);
      });
      totals.push_back(whole.front() / double(steps_));
      const auto pass = row_pass();
      sums.push_back(0);
      for (size_t i = 0; i < pass.size(); ++i) {
        times[i].push_back(std::max(0.0, pass[i] - clock));
        sums.back() += times[i].back();
      }
    }
    profile_.total = quantiles(totals);
    profile_.passes = int64_t(totals.size());
    for (size_t i = 0; i < times.size(); ++i) profile_.rows[i].seconds = quantiles(times[i]);
    const double pass = quantiles(sums).median;
    profile_.interrupted = pass - profile_.row_seconds();
    profile_.gaps = profile_.total.median - pass;
  }

  void watch_threads() {
    ThreadTrace trace;
    reset();
    for (size_t i = 0; i < profile_.rows.size(); ++i) {
      trace.take();
      // A row that counts steps would run past its tables: it starts anew each time.
      for (int pass = 0; pass < kTracedPasses; ++pass) {
        reset();
        plan_.run_choice(i);
      }
      add_balance(profile_.rows[i], trace.take());
    }
    record_timeline(trace);
  }

  void add_balance(RowProfile& row, const std::vector<ThreadSpan>& spans) {
    if (spans.empty()) return;
    std::vector<double> busy(size_t(std::max(1, profile_.threads)));
    double all = 0, waited = 0;
    for (const ThreadSpan& span : spans) {
      busy[size_t(span.thread)] += double(span.end - span.begin - span.waited);
      all += double(span.end - span.begin);
      waited += double(span.waited);
      if (span.thread == 0) row.work.regions += 1.0 / kTracedPasses;
    }
    const double most = *std::max_element(busy.begin(), busy.end());
    const double sum = std::accumulate(busy.begin(), busy.end(), 0.0);
    if (most > 0) row.balance = sum / double(busy.size()) / most;
    if (all > 0) row.waiting = waited / all;
  }

  void record_timeline(ThreadTrace& trace) {
    prof::Timeline& timeline = profile_.timeline;
    const auto steps = timeline.lane(0, "steps"), rows = timeline.lane(0, "rows");
    trace.take();
    reset();
    const int64_t zero = nanoseconds();
    const auto since = [&](int64_t ns) { return 1e-9 * double(ns - zero); };
    for (int step = 0; step < std::min<int64_t>(kTimelineSteps, runner_.repeats()); ++step) {
      const int64_t begin = nanoseconds();
      for (size_t i = 0; i < profile_.rows.size(); ++i) {
        const RowProfile& row = profile_.rows[i];
        const int64_t from = nanoseconds();
        plan_.run_choice(i);
        const int64_t to = nanoseconds();
        timeline.add({rows,
                      row.row,
                      "row",
                      since(from),
                      1e-9 * double(to - from),
                      {{"flops", row.work.flops}, {"bytes", row.work.bytes}}});
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

  void collect_calls() {
    if (tracer_ == nullptr) return;
    for (ApiRecord& call : tracer_->take().calls) calls_.push_back(std::move(call));
  }

  void watch_device() {
    if (tracer_ == nullptr) {
      record_rows_alone();
      return;
    }
    collect_calls();
    for (size_t i = 0; i < profile_.rows.size(); ++i) {
      reset();
      collect_calls();
      plan_.run_choice(i);
      DeviceTrace trace = tracer_->take();
      profile_.rows[i].kernels = group_kernels(trace.kernels);
      profile_.rows[i].work.launches = double(trace.kernels.size() + trace.copies.size());
      calls_.insert(calls_.end(), trace.calls.begin(), trace.calls.end());
    }
    for (int launch = 0; launch < kTimelineSteps; ++launch) {
      reset();
      plan_.run(steps_);
    }
    runtime_.synchronize();
    const DeviceTrace trace = tracer_->take();
    profile_.device_use = device_use(trace);
    calls_.insert(calls_.end(), trace.calls.begin(), trace.calls.end());
    add_to_timeline(trace, profile_.timeline);
    profile_.api = heaviest_calls(calls_);
  }

  // Without a tracer: the rows' times one after the other.
  void record_rows_alone() {
    const auto lane = profile_.timeline.lane(0, "rows");
    double at = 0;
    for (const RowProfile& row : profile_.rows) {
      profile_.timeline.add({lane, row.row, "row", at, row.seconds.median, {}});
      at += row.seconds.median;
    }
  }

  void settle() {
    const double sum = profile_.row_seconds();
    for (RowProfile& row : profile_.rows) {
      row.share = sum > 0 ? row.seconds.median / sum : 0;
      if (!profile_.ceilings) continue;
      row.roofs = prof::roof_times(row.work, *profile_.ceilings);
      if (row.seconds.median > 0) row.fraction = row.roofs.least() / row.seconds.median;
    }
    profile_.advice = advise(profile_, plan_.program());
  }

  Runtime& runtime_;
  Runner& runner_;
  Plan& plan_;
  Profile& profile_;
  DeviceTracer* tracer_;
  const bool gpu_;
  const int64_t steps_;  // a launch
  const std::vector<double> rates_;
  std::vector<ApiRecord> calls_;
};

// What all profiles say, and the measurements.
void measure(Profile& profile, Machine& machine, Runner& runner, const Config& config,
             const ProfileOptions& options, DeviceTracer* tracer) {
  profile.device = to_string(machine.device());
  profile.machine = machine.runtime().fingerprint();
  profile.unit = config.run.precision;
  profile.precision = name(config.run.precision);
  profile.data = config.data.name;
  profile.threads = machine.threads();
  profile.plan_source = runner.explanation().source;
  profile.ceilings = machine.ceilings();
  if (profile.ceilings) {
    profile.limit = prof::limit_of(runner.plan().program(), *profile.ceilings);
  }
  Profiler(machine, runner, profile, tracer).run(options);
}

std::unique_ptr<DeviceTracer> tracer_for(const RunConfig& run, Profile& profile) {
  if (choose_device(run.device).kind == DeviceKind::cpu) return nullptr;
  return trace_gpus(profile.no_device_trace);
}

}  // namespace

Quantiles quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) { return values[size_t(q * double(values.size() - 1) + 0.5)]; };
  return {at(0.1), at(0.5), at(0.9)};
}

double Profile::row_seconds() const {
  double sum = 0;
  for (const RowProfile& row : rows) sum += row.seconds.median;
  return sum;
}

std::vector<size_t> Profile::heaviest() const {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rows[a].share > rows[b].share; });
  double sum = 0;
  size_t count = 0;
  while (count < order.size() && sum < 0.9) sum += rows[order[count++]].share;
  order.resize(count);
  return order;
}

Profile profile_runner(Machine& machine, Runner& runner, const Config& config,
                       const ProfileOptions& options) {
  Profile profile;
  profile.subject = "training step";
  profile.batch = config.train.batch;
  if (machine.device().kind != DeviceKind::cpu) {
    profile.no_device_trace = "`ridgeline profile` records them";
  }
  measure(profile, machine, runner, config, options, nullptr);
  return profile;
}

Profile profile_training(const Config& config, const std::string& name,
                         const ProfileOptions& options) {
  Profile profile;
  profile.subject = "training step of " + name;
  const auto tracer = tracer_for(config.run, profile);
  auto set = options.set;
  if (!set) set = std::make_shared<data::DataSet>(load_data(config, options.data));
  Machine machine(config.run);
  Trainer trainer(machine, config, std::move(set));
  trainer.advance(1);  // puts an epoch's order in place
  trainer.losses();
  profile.batch = trainer.batches().full_size();
  measure(profile, machine, trainer.runner(), config, options, tracer.get());
  return profile;
}

Profile profile_model(const std::filesystem::path& file, const ModelOptions& model,
                      const ProfileOptions& options) {
  LoadedModel loaded = load_model(file, model);
  Profile profile;
  profile.subject = "inference call of " + file.string();
  const auto tracer = tracer_for(loaded.config.run, profile);
  Machine machine(loaded.config.run);
  Predictor predictor(machine, loaded.config, loaded.model, loaded.scaling, loaded.classes,
                      options.batch);
  const std::vector<uint8_t> items(size_t(options.batch * loaded.model.input().numel()), 127);
  predictor.run(items);
  profile.batch = options.batch;
  measure(profile, machine, predictor.runner(), loaded.config, options, tracer.get());
  return profile;
}

}  // namespace ridgeline::engine
