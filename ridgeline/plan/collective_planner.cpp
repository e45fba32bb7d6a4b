#include "ridgeline/plan/collective_planner.h"

#include <chrono>
#include <limits>
#include <optional>
#include <sstream>

#include "ridgeline/core/device_sums.h"
#include "ridgeline/plan/cache.h"
#include "ridgeline/plan/stopwatch.h"

namespace ridgeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return text;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

// The measurements that the root may ask of the other ranks.
enum class Measurement : int64_t { kernel, conversion, whole, finished };

struct MeasurementRequest {
  Measurement what = Measurement::finished;
  int64_t kernel = 0, begin = 0, end = 0, converted = -1, to_bytes = 0, from_bytes = 0;
};

// One rank's side of the measurements: it looks up the root's `choice` in its own program.
class Bench {
 public:
  Bench(const Program& program, const KernelTable& table, Runtime& runtime,
        const PlanOptions& options, Communicator& ranks)
      : program_(program),
        table_(table),
        runtime_(runtime),
        options_(options),
        ranks_(ranks),
        stopwatch_(program, runtime, options.seconds_per_kernel, nullptr) {}

  // Returns the slowest rank's seconds, or kNever if some rank cannot run it.
  double kernel(const MeasurementRequest& request) {
    const Kernel& kernel = table_[size_t(request.kernel)];
    Choice choice{&kernel, size_t(request.begin), size_t(request.end), {}, 0, -1, {}, {}, 0};
    bool fits = choice.end <= program_.ops.size();
    if (fits) choice.cover = offer(kernel, {program_, choice.begin, runtime_});
    fits = fits && choice.begin + choice.cover.ops == choice.end;
    if (!agreed(fits)) return kNever;
    return ranks_.reduce(stopwatch_.kernel(choice), Reduce::max);
  }

  double conversion(const MeasurementRequest& request, const std::string& from,
                    const std::string& to) {
    const Choice choice{&table_[size_t(request.kernel)],
                        0,
                        0,
                        {},
                        0,
                        ValueId(request.converted),
                        from,
                        to,
                        size_t(request.to_bytes),
                        size_t(request.from_bytes)};
    return ranks_.reduce(stopwatch_.kernel(choice), Reduce::max);
  }

  double whole(const std::vector<std::string>& names) {
    const Choices choices = plan_by_names(program_, table_, runtime_, options_, names).choices;
    if (!agreed(!choices.empty())) return kNever;
    return ranks_.reduce(stopwatch_.whole(choices), Reduce::max);
  }

  bool agreed(bool mine) { return ranks_.reduce(int32_t(mine), Reduce::min) == 1; }

  // The loop of the ranks other than the root while the root searches.
  void serve() {
    for (;;) {
      const MeasurementRequest request = ranks_.from_root(MeasurementRequest{});
      switch (request.what) {
        case Measurement::kernel:
          kernel(request);
          break;
        case Measurement::conversion: {
          const std::string from = ranks_.text_from_root({}), to = ranks_.text_from_root({});
          conversion(request, from, to);
          break;
        }
        case Measurement::whole:
          whole(lines(ranks_.text_from_root({})));
          break;
        case Measurement::finished:
          return;
      }
    }
  }

 private:
  const Program& program_;
  const KernelTable& table_;
  Runtime& runtime_;
  const PlanOptions& options_;
  Communicator& ranks_;
  DeviceStopwatch stopwatch_;
};

// The root's stopwatch, which asks all ranks or its own cache.
class JointStopwatch final : public Stopwatch {
 public:
  JointStopwatch(const Program& program, const KernelTable& table, Bench& bench, TuningCache* cache,
                 Communicator& ranks)
      : program_(program), table_(table), bench_(bench), cache_(cache), ranks_(ranks) {}

  double kernel(const Choice& choice) override {
    const std::string work =
        choice.converted < 0 ? signature(program_, choice.begin, choice.end)
                             : fmt::format("{} {} to {}", choice.converted, choice.from, choice.to);
    const std::string key =
        fmt::format("{} ranks: {} | {}", ranks_.size(), choice.kernel->name, work);
    if (cache_ != nullptr) {
      if (const auto known = cache_->kernel_seconds(key)) return *known;
    }
    MeasurementRequest request{choice.converted < 0 ? Measurement::kernel : Measurement::conversion,
                               choice.kernel - table_.data(),
                               int64_t(choice.begin),
                               int64_t(choice.end),
                               choice.converted,
                               int64_t(choice.to_bytes),
                               int64_t(choice.from_bytes)};
    ranks_.from_root(request);
    double seconds = 0;
    if (choice.converted < 0) {
      seconds = bench_.kernel(request);
    } else {
      ranks_.text_from_root(choice.from);
      ranks_.text_from_root(choice.to);
      seconds = bench_.conversion(request, choice.from, choice.to);
    }
    if (cache_ != nullptr && seconds < kNever) cache_->set_kernel_seconds(key, seconds);
    return seconds;
  }

  double whole(const Choices& choices) override {
    ranks_.from_root(MeasurementRequest{Measurement::whole});
    const std::vector<std::string> names = kernel_names(choices);
    ranks_.text_from_root(joined(names));
    return bench_.whole(names);
  }

 private:
  const Program& program_;
  const KernelTable& table_;
  Bench& bench_;
  TuningCache* cache_;
  Communicator& ranks_;
};

// Refuses every candidate that any rank refuses: ranks may have shares of different sizes.
void keep_common(std::vector<Candidate>& all, Communicator& ranks) {
  std::vector<int64_t> fewest, most;
  for (const Candidate& candidate : all) fewest.push_back(int64_t(candidate.cover.ops));
  most = fewest;
  const auto reduce = [&](std::vector<int64_t>& ops, Reduce how) {
    ranks.all_reduce(ops.data(), ops.data(), int64_t(ops.size()), DType::int64, how, DType::int64);
  };
  reduce(fewest, Reduce::min);
  reduce(most, Reduce::max);
  for (size_t i = 0; i < all.size(); ++i) {
    if (fewest[i] != most[i] && all[i].cover.ops > 0) {
      all[i].cover = Cover::no("does not fit every rank");
    }
  }
}

}  // namespace

Planned plan_collectively(const Program& program, const KernelTable& table, Runtime& runtime,
                          const PlanOptions& options, TuningCache* cache, Communicator& ranks) {
  const auto start = std::chrono::steady_clock::now();
  Bench bench(program, table, runtime, options, ranks);
  std::string key = plan_key(program, options);
  // Another MPI may allow a kernel that the kept plan was never compared with.
  if (takes_device_memory(ranks)) key += " device memory between ranks";
  PlanOptions unpinned = options;
  unpinned.pinned.clear();

  // The kernels may already be known from a checkpoint or the root's cache.
  std::string source, names;
  if (ranks.is_root() && !options.pinned.empty()) {
    names = joined(options.pinned);
    source = "checkpoint";
  } else if (ranks.is_root() && options.measures() && cache != nullptr) {
    if (const auto known = cache->plan(key)) {
      names = joined(known->kernels);
      source = "cache";
    }
  }
  const auto take = [&](const std::string& from) -> std::optional<Planned> {
    names = ranks.text_from_root(names);
    source = ranks.text_from_root(from);
    if (names.empty()) return std::nullopt;
    Planned planned = plan_by_names(program, table, runtime, unpinned, lines(names));
    if (!bench.agreed(!planned.choices.empty())) return std::nullopt;
    planned.explanation.source = source;
    planned.explanation.tuning_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return planned;
  };
  if (auto planned = take(source)) return *planned;

  const auto in_order = [&] {
    return plan_in_order(program, table, runtime, unpinned,
                         [&](std::vector<Candidate>& all) { keep_common(all, ranks); });
  };
  if (!options.measures()) return in_order();

  Explanation explanation;
  names.clear();
  if (ranks.is_root()) {
    JointStopwatch stopwatch(program, table, bench, cache, ranks);
    Planned planned = plan_program(program, table, runtime, unpinned, stopwatch);
    ranks.from_root(MeasurementRequest{Measurement::finished});
    names = joined(kernel_names(planned.choices));
    explanation = std::move(planned.explanation);
  } else {
    bench.serve();
  }
  if (auto planned = take("measured")) {
    if (ranks.is_root()) {
      explanation.tuning_seconds = planned->explanation.tuning_seconds;
      planned->explanation = std::move(explanation);
      if (cache != nullptr && planned->explanation.cut_short) {
        cache->save();
      } else if (cache != nullptr) {
        double seconds = 0;
        for (const Choice& choice : planned->choices) seconds += choice.seconds;
        cache->set_plan(key, {lines(names), seconds});
        cache->save();
      }
    }
    return *planned;
  }
  return in_order();
}

}  // namespace ridgeline
