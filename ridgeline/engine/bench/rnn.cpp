#include "ridgeline/engine/bench/rnn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ridgeline/core/json.h"
#include "ridgeline/core/philox.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/report/chart.h"
#include "ridgeline/plan/fill.h"
#include "ridgeline/plan/stopwatch.h"
#include "ridgeline/prof/limit.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

struct Work {
  CellKind cell;
  int64_t hidden, batch, steps, layers;
  bool training;
};

RnnWeights weights(Program& program, const RnnShape& s, const std::string& name, Role role) {
  const DType dtype = storage(program.precision);
  return {program.add_value(name + "w_ih", dtype, s.w_ih(), role),
          program.add_value(name + "w_hh", dtype, s.w_hh(), role),
          program.add_value(name + "b_ih", dtype, s.bias(), role),
          program.add_value(name + "b_hh", dtype, s.bias(), role)};
}

// The ops of a stack as nn lowers them, with the gradient of the top layer given.
Program recurrent_program(const Work& work, Precision precision) {
  Program program;
  program.precision = precision;
  const DType dtype = storage(precision);
  const RnnShape s{work.cell, Direction::forward, work.steps, work.batch, work.hidden, work.hidden};
  const bool saves = work.training && saved_vectors(s.cell) > 0;
  Values xs{program.add_value("x", dtype, s.x(), Role::input)}, reserves;
  std::vector<RnnDirections> all;
  for (int64_t layer = 0; layer < work.layers; ++layer) {
    const std::string name = fmt::format("{}.", layer);
    RnnDirections w;
    w[0] = weights(program, s, name, Role::param);
    const bool last = layer + 1 == work.layers;
    const Value y = program.add_value(name + "y", dtype, s.y(), last ? Role::output : Role::temp);
    const Value reserve = saves ? program.add_value(name + "reserve", dtype, s.reserve()) : Value{};
    program.add(Rnn{s, xs.back(), w, {}, {}, {}, y, {}, {}, reserve});
    xs.push_back(y);
    reserves.push_back(reserve);
    all.push_back(w);
  }
  if (!work.training) return program;
  Value dy = program.add_value("dy", dtype, s.y(), Role::input);
  for (int64_t layer = work.layers; layer-- > 0;) {
    const std::string name = fmt::format("{}.d", layer);
    const size_t l = size_t(layer);
    const Value gates = program.add_value(name + "gates", dtype, s.gate_gradients());
    program.add(RnnGrad{s, xs[l + 1], reserves[l], all[l], {}, {}, {}, dy, {}, {}, gates, {}, {}});
    const Value dx =
        program.add_value(name + "x", dtype, s.x(), layer > 0 ? Role::temp : Role::output);
    program.add(RnnGradX{s, gates, all[l], dx});
    RnnDirections grads;
    grads[0] = weights(program, s, name, Role::output);
    program.add(RnnGradW{s, xs[l], xs[l + 1], {}, {}, gates, grads});
    dy = dx;
  }
  return program;
}

// The count of random numbers drawn for a value; a longer value repeats them, which suffices for
// timing.
constexpr int64_t kDrawn = (int64_t{1} << 16) + 7;

// Memory for external values, filled with small random numbers.
class ExternalValues {
 public:
  ExternalValues(Runtime& runtime, const Program& program) {
    for (const ValueInfo& info : program.values) {
      if (info.role == Role::temp) continue;
      const Value& value = info.value;
      HostTensor drawn(value.dtype, Shape{std::min(value.shape.numel(), kDrawn)});
      const Philox random{uint64_t(value.id), streams::kSample};
      dispatch_float(value.dtype, [&](auto zero) {
        using T = decltype(zero);
        T* to = drawn.view().as<T>();
        for (int64_t i = 0; i < drawn.view().shape.numel(); ++i) {
          to[i] = T(0.2f * (random.uniform(uint64_t(i)) - 0.5f));
        }
      });
      const auto bytes = size_t(size_of(value));
      memory_.emplace_back(runtime, bytes);
      fill_repeating(runtime, memory_.back().data(), bytes,
                     {static_cast<const std::byte*>(drawn.view().data), drawn.view().bytes()});
      externals_[value.id] = {memory_.back().data(), value.dtype, value.shape, runtime.device()};
    }
  }
  const Externals& externals() const { return externals_; }

 private:
  std::vector<DeviceBuffer> memory_;
  Externals externals_;
};

RnnBenchLine time_plan(const Work& work, const Program& program, Planned planned,
                       const ExternalValues& outside, Runtime& runtime, double seconds) {
  RnnBenchLine line{name(work.cell),
                    work.hidden,
                    work.batch,
                    work.steps,
                    work.layers,
                    work.training,
                    {},
                    0,
                    0,
                    0,
                    0,
                    {}};
  for (const Choice& choice : planned.choices) line.kernels.push_back(choice.kernel->name);
  line.kernel = line.kernels.front();
  Plan plan(runtime, program, std::move(planned.choices), outside.externals());
  // Uses one graph on a GPU, also for a plan of one step: a loop of launches would measure the
  // host.
  const std::function<void()> run = runtime.capture([&plan] { plan.run(); }, 1);
  const auto seconds_of = [&](int64_t calls) {
    const Clock clock;
    for (int64_t i = 0; i < calls; ++i) run();
    runtime.synchronize();
    return clock.seconds() / double(calls);
  };
  seconds_of(1);
  const double once = seconds_of(1);
  // Calls queue up for two milliseconds per measurement, so that the host's time to start one and
  // to learn of its end is not counted.
  const int64_t calls = std::clamp<int64_t>(int64_t(2e-3 / once), 1, 16);
  // A median needs a few measurements, unless a single one already takes too long.
  const size_t fewest = once > seconds ? 2 : 5;
  std::vector<double> us;
  const Clock total;
  while (total.seconds() < seconds || us.size() < fewest) {
    us.push_back(1e6 * seconds_of(calls) / double(work.steps));
  }
  std::ranges::sort(us);
  line.min_us = us.front();
  line.median_us = us[us.size() / 2];
  line.flops_per_second = program.flops() / (line.median_us * 1e-6 * double(work.steps));
  return line;
}

// Whether a kernel computes a loop over the timesteps, and not only a product after it.
bool takes_loop(const Kernel& kernel, const Program& program, const Runtime& runtime) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (!std::holds_alternative<Rnn>(op) && !std::holds_alternative<RnnGrad>(op)) continue;
    if (kernel.covers && offer(kernel, {program, i, runtime}).ops > 0) return true;
  }
  return false;
}

// Whether a kernel is selected by a part of its name, which those that take no loop need not be.
bool asked_for(const Kernel& kernel, const RnnBenchOptions& options, const Program& program,
               const Runtime& runtime) {
  const auto named = [&](const std::string& part) {
    return kernel.name.find(part) != std::string::npos;
  };
  return options.kernels.empty() || std::ranges::any_of(options.kernels, named) ||
         !takes_loop(kernel, program, runtime);
}

// Returns the kernels that can begin the program, except references.
std::vector<std::string> first_kernels(const Program& program, const KernelTable& all,
                                       Machine& machine) {
  std::vector<std::string> names;
  for (const Kernel& kernel : all) {
    if (!kernel.covers || kernel.traits.fallback) continue;
    if (offer(kernel, {program, 0, machine.runtime()}).ops > 0) names.push_back(kernel.name);
  }
  return names;
}

// Plans over the table of a run, kept for other runs, or over parts of it. The cache identifies a
// plan by its program alone, so that of a part must not get there; times of kernels are valid for
// every table. Times measured more quickly than a run's own stay here.
class Planner {
 public:
  Planner(const Program& program, Machine& machine, double seconds)
      : program_(program), machine_(machine), options_(machine.plan_options()) {
    hasty_ = seconds < options_.seconds_per_kernel;
    if (hasty_) options_.seconds_per_kernel = seconds;
  }
  Planned whole() {
    if (hasty_) return part(machine_.kernels());
    return plan_program(program_, machine_.kernels(), machine_.runtime(), options_,
                        machine_.cache());
  }
  Planned part(const KernelTable& table) {
    DeviceStopwatch stopwatch(program_, machine_.runtime(), options_.seconds_per_kernel,
                              hasty_ ? &own_ : machine_.cache());
    PlanOptions options = options_;
    options.demonstrations = true;
    return plan_program(program_, table, machine_.runtime(), options, stopwatch);
  }

 private:
  const Program& program_;
  Machine& machine_;
  PlanOptions options_;
  bool hasty_ = false;
  TuningCache own_{{}, {}};  // without a file, and never saved
};

void run_one(const Work& work, const RnnBenchOptions& options, Machine& machine,
             std::vector<RnnBenchLine>& lines) {
  const Program program = recurrent_program(work, options.run.precision);
  const ExternalValues outside(machine.runtime(), program);
  Planner planner(program, machine, options.seconds);
  const auto ceilings = machine.ceilings();
  const double limit = ceilings ? prof::limit_of(program, *ceilings).seconds() : 0;
  const auto time_table = [&](const KernelTable* part) {  // null: all kernels, as in a run
    Planned planned;
    try {
      planned = part == nullptr ? planner.whole() : planner.part(*part);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      return;  // the kernel begins the program, so it, or what follows, was not asked for
    }
    lines.push_back(
        time_plan(work, program, std::move(planned), outside, machine.runtime(), options.seconds));
    if (limit > 0)
      lines.back().limit_fraction = limit / (1e-6 * lines.back().median_us * double(work.steps));
    if (part == nullptr) lines.back().kernel = "plan: " + lines.back().kernel;
    if (options.each) options.each(lines.back());
  };
  // The planner chooses among all kernels: the backward pass may take one that was not selected.
  if (std::ranges::find(options.kernels, "plan") != options.kernels.end()) {
    time_table(nullptr);
  }
  KernelTable all = machine.kernels(), peers = peer_kernels();
  std::ranges::move(peers, std::back_inserter(all));
  std::erase_if(all, [&](const Kernel& kernel) {
    return !asked_for(kernel, options, program, machine.runtime());
  });
  const std::vector<std::string> kernels = first_kernels(program, all, machine);
  for (const std::string& kernel : kernels) {
    KernelTable table;  // without the other kernels that could take the first op
    for (const Kernel& each : all) {
      if (each.name == kernel || std::ranges::find(kernels, each.name) == kernels.end()) {
        table.push_back(each);
      }
    }
    time_table(&table);
  }
}

}  // namespace

std::vector<RnnBenchLine> bench_rnn(const RnnBenchOptions& options) {
  Machine machine(options.run);
  return bench_rnn(options, machine);
}

std::vector<RnnBenchLine> bench_rnn(const RnnBenchOptions& options, Machine& machine) {
  std::vector<RnnBenchLine> lines;
  for (const CellKind cell : options.cells) {
    for (const int64_t hidden : options.hidden) {
      for (const int64_t batch : options.batch) {
        for (const bool training : {false, true}) {
          run_one({cell, hidden, batch, options.steps, options.layers, training}, options, machine,
                  lines);
        }
      }
    }
  }
  if (lines.empty()) {
    throw_error(
        ErrorKind::usage,
        "bench: no kernel of a recurrent layer is left; see --only, --kernels, --precision");
  }
  return lines;
}

std::string rnn_bench_csv(const std::vector<RnnBenchLine>& lines) {
  std::string text =
      "cell,hidden,batch,steps,layers,pass,kernel,us_min,us_median,flops_per_second\n";
  for (const RnnBenchLine& line : lines) {
    text += fmt::format("{},{},{},{},{},{},{},{:.6g},{:.6g},{:.6g}\n", line.cell, line.hidden,
                        line.batch, line.steps, line.layers, line.training ? "training" : "forward",
                        line.kernel, line.min_us, line.median_us, line.flops_per_second);
  }
  return text;
}

std::string rnn_bench_json(const std::vector<RnnBenchLine>& lines, const RunConfig& run) {
  nlohmann::json all = nlohmann::json::array();
  for (const RnnBenchLine& line : lines) {
    all.push_back({{"cell", line.cell},
                   {"hidden", line.hidden},
                   {"batch", line.batch},
                   {"steps", line.steps},
                   {"layers", line.layers},
                   {"pass", line.training ? "training" : "forward"},
                   {"kernel", line.kernel},
                   {"us_min", line.min_us},
                   {"us_median", line.median_us},
                   {"flops_per_second", line.flops_per_second},
                   {"limit_fraction", line.limit_fraction},
                   {"precision", std::string(name(run.precision))},
                   {"threads", resolve_threads(run.threads)},
                   {"kernels", line.kernels}});
  }
  return dump_json(all, 2) + "\n";
}

std::string rnn_bench_svg(const std::vector<RnnBenchLine>& lines) {
  std::set<int64_t> hidden, batch;
  for (const RnnBenchLine& line : lines) {
    hidden.insert(line.hidden);
    batch.insert(line.batch);
  }
  const bool by_batch = batch.size() > 1;
  const std::set<int64_t>& places = by_batch ? batch : hidden;
  std::map<std::string, std::map<int64_t, double>> series;
  for (const RnnBenchLine& line : lines) {
    std::string title = fmt::format("{} {} {}", line.cell, line.kernel,
                                    line.training ? "forward + backward" : "forward");
    if (by_batch && hidden.size() > 1) title += fmt::format(" H={}", line.hidden);
    series[title][by_batch ? line.batch : line.hidden] = line.median_us;
  }
  Chart chart;
  chart.title = "recurrent layers";
  chart.x_title = by_batch ? "batch" : "hidden units";
  chart.y_title = "us a time step";
  for (const int64_t place : places) chart.x.push_back(fmt::format("{}", place));
  for (const auto& [title, points] : series) {
    Chart::Series one{title, {}};
    for (const int64_t place : places) {
      const auto found = points.find(place);
      one.y.push_back(found != points.end() ? found->second
                                            : std::numeric_limits<double>::quiet_NaN());
    }
    chart.series.push_back(std::move(one));
  }
  return to_svg(chart);
}

}  // namespace ridgeline::engine
