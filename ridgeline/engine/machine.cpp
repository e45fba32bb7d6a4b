#include "ridgeline/engine/machine.h"

#include <algorithm>
#include <atomic>

#include "ridgeline/core/cache_file.h"
#include "ridgeline/core/machine_limits.h"
#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/plan/kernel_patterns.h"
#include "ridgeline/prof/gpu_ceilings.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

// Runs with other numbers of threads have their own ceilings, beside these.
std::filesystem::path ceilings_file(Device device, int threads = 0) {
  if (device.is_host()) {
    return cache_file(fmt::format("ceilings-{}.json", threads));
  }
  return cache_file(fmt::format("ceilings-cuda-{}.json", device.index));
}

// With several ranks, "auto" and "cuda" give each rank one GPU in turn.
Device device_of_rank(const RunConfig& run, const Communicator* ranks) {
  Device device = choose_device(run.device);
  const bool any = run.device == "auto" || run.device == "cuda";
  if (ranks == nullptr || device.is_host() || !any) return device;
  const std::vector<Device> all = gpus();
  return all.empty() ? device : all[size_t(ranks->local_rank()) % all.size()];
}

// Returns the device of a run, which must support its precision.
Device device_for(RunConfig run, const Communicator* ranks) {
  Device device = device_of_rank(run, ranks);
  if (run.device == "auto" && device.is_host()) settle_device(run);  // reports why
  if (!has_precision(device, run.precision)) {
    throw_error(ErrorKind::usage, "precision {} is not available on {}; use one of {}",
                name(run.precision), to_string(device), to_string(precisions_of(device)));
  }
  if (run.accumulate == Precision::fp16 && device.is_host()) {
    throw_error(ErrorKind::usage,
                "run.accumulate fp16: products are summed in fp16 on GPUs only, not on {}; use "
                "fp32",
                to_string(device));
  }
  return device;
}

// A pattern of --kernels that no kernel matches is a typing error.
void check_fits_one(const std::string& pattern, const KernelTable& kernels) {
  std::vector<std::string_view> names;
  const KernelTable peers = peer_kernels();  // which `bench` can be asked for
  for (const KernelTable* table : {&kernels, &peers}) {
    for (const Kernel& kernel : *table) {
      if (fits_any(kernel.name, {pattern})) return;
      names.push_back(kernel.name);
    }
  }
  const std::string near = nearest(pattern, names);
  throw_error(ErrorKind::usage, "--kernels {}: no kernel of this build has such a name; {}",
              quote(pattern),
              near.empty() ? "`ridgeline plan CONFIG` lists them" : "did you mean " + near + "?");
}

// Opens the runtime of a device, with `threads` reduced to what the system allows. The reduction is
// reported once: a command may open its device many times.
std::unique_ptr<Runtime> open_device(Device device, int& threads) {
  if (device.is_host()) {
    const int wanted = threads;
    threads = affordable_threads(wanted);
    static std::atomic<bool> said = false;
    if (threads < wanted && !said.exchange(true)) {
      Progress().warning(fmt::format(
          "the system gives no more threads (ulimit -u, ulimit -v, pids.max): computing "
          "with {} instead of {}",
          threads, wanted));
    }
  }
  return make_runtime(device, threads);
}

// "tuning 12/38 kernels, about 8 s left"
std::string tuning_text(size_t done, size_t all, double seconds) {
  std::string text = fmt::format("tuning {}/{} kernels", done, all);
  if (done == 0 || done >= all) return text;
  const double left = seconds / double(done) * double(all - done);
  return text + fmt::format(", about {} left", duration(std::max(1.0, left)));
}

// Clears the notice when the work that it describes is done.
struct ClearNotice {
  StartNotice& notice;
  ~ClearNotice() { notice.clear(); }
};

}  // namespace

Device choose_device(const std::string& text) {
  if (text != "auto") return parse_device(text);
  const std::vector<Device> all = gpus();
  return all.empty() ? Device{} : all.front();
}

void settle_device(RunConfig& run) {
  if (run.device != "auto") return;
  const Device device = choose_device(run.device);
  run.device = to_string(device);
  if (!device.is_host()) return;
  const DeviceSupport support = gpu_support();
  if (support.expected) Progress().warning("using the CPU: " + support.refusal);
}

bool has_precision(Device device, Precision precision) {
  return precisions_of(device).has(precision);
}

Machine::Machine(const RunConfig& run, Communicator* ranks)
    : threads_(run.threads == 0 && ranks != nullptr && ranks->size() > 1
                   ? threads_of_rank(*ranks)
                   : resolve_threads(run.threads)),
      notice_(std::make_unique<StartNotice>(run.quiet || (ranks != nullptr && !ranks->is_root())
                                                ? Progress::Style::none
                                                : Progress::Style::automatic)),
      runtime_(open_device(device_for(run, ranks), threads_)),
      kernels_(all_kernels()),
      inference_kernels_(ridgeline::inference_kernels()) {
  inference_kernels_.insert(inference_kernels_.end(), kernels_.begin(), kernels_.end());
  if (ranks != nullptr && ranks->size() > 1) {
    const auto kind = int32_t(device().kind);
    if (ranks->reduce(kind, Reduce::min) != ranks->reduce(kind, Reduce::max)) {
      throw_error(ErrorKind::comm,
                  "some ranks would use a GPU and some the CPU: give --device cpu or cuda");
    }
    runtime_->set_ranks(ranks);
    runtime_->connect_ranks();
  }
  constexpr double kTuningOfShortRuns = 0.8;  // seconds, so that a perceptron starts in 3 s
  if (runtime_->device().is_host()) options_.least_tuning = kTuningOfShortRuns;
  options_.tune = run.tune;
  options_.deterministic = run.deterministic;
  options_.measuring = [notice = notice_.get(), clock = Clock(), begin = 0.0](size_t done,
                                                                              size_t all) mutable {
    if (done == 0) begin = clock.seconds();  // the first kernel of another plan
    notice->say(tuning_text(done, all, clock.seconds() - begin));
  };
  for (const std::string& pattern : run.kernels) {
    if (pattern.starts_with("!")) {
      options_.except.push_back(pattern.substr(1));
    } else {
      check_fits_one(pattern, inference_kernels_);
      options_.only.push_back(pattern);
    }
  }
  if (options_.measures()) cache_.emplace(TuningCache::standard(runtime_->fingerprint()));
}

Machine Machine::reference() {
  RunConfig run;
  run.device = "cpu";
  run.threads = 1;
  run.tune = false;
  Machine machine(run);
  machine.except([](const Kernel& kernel) { return !kernel.traits.fallback; });
  return machine;
}

void Machine::planned(const Explanation& explanation) {
  notice_->clear();
  constexpr double kSecondTry = 0.5, kLeastOfAPlan = 0.2;
  double& least = options_.least_tuning;
  if (explanation.cut_short) options_.busy_seconds = kSecondTry;
  if (runtime_->device().is_host()) {
    // The plans of a run (full batches, the last one, evaluation) share the seconds that measuring
    // may take however short the run is.
    least = std::max(kLeastOfAPlan, least - explanation.tuning_seconds);
  } else if (explanation.cut_short) {
    least = kSecondTry;
  }
}

std::optional<prof::Ceilings> Machine::ceilings(bool again) {
  const ClearNotice cleared{*notice_};
  if (ThreadPool* pool = runtime_->thread_pool()) {
    return prof::ceilings_of(*pool, runtime_->fingerprint(), ceilings_file(device(), threads_),
                             again, [this] { notice_->say("measuring this machine's ceilings"); });
  }
  return prof::gpu_ceilings_of(*runtime_, kernels_, ceilings_file(device()), again);
}

bool Machine::keeps_ceilings(Device gpu) { return std::filesystem::exists(ceilings_file(gpu)); }

std::optional<prof::Ceilings> Machine::kept_ceilings() const {
  return prof::read_ceilings(ceilings_file(device(), threads_), runtime_->fingerprint());
}

}  // namespace ridgeline::engine
