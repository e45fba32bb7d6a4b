#include "ridgeline/engine/machine.h"

#include "ridgeline/engine/progress.h"
#include "ridgeline/prof/gpu_ceilings.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

std::filesystem::path ceilings_file(Device device) {
  if (device.kind == DeviceKind::cpu) return cache_folder() / "ceilings.json";
  return cache_folder() / fmt::format("ceilings-cuda-{}.json", device.index);
}

// The device of a run, fit for its precision.
Device device_for(const RunConfig& run) {
  const Device device = choose_device(run.device);
  if (!has_precision(device, run.precision)) {
    throw_error(ErrorKind::usage, "precision {} is not available on {}; use {}",
                name(run.precision), to_string(device),
                device.kind == DeviceKind::cpu ? "fp32 or fp64" : "fp32, tf32 or fp64");
  }
  if (run.device == "auto" && device.kind == DeviceKind::cpu) {
    const GpuSupport support = gpu_support();
    if (support.expected) Progress().warning("using the CPU: " + support.refusal);
  }
  return device;
}

}  // namespace

Device choose_device(const std::string& text) {
  if (text != "auto") return parse_device(text);
  for (const Device& device : devices()) {
    if (device.kind != DeviceKind::cpu) return device;
  }
  return Device{};
}

bool has_precision(Device device, Precision precision) {
  return precision == Precision::fp64 || precision == Precision::fp32 ||
         (precision == Precision::tf32 && device.kind == DeviceKind::cuda);
}

Machine::Machine(const RunConfig& run)
    : threads_(resolve_threads(run.threads)),
      runtime_(make_runtime(device_for(run), threads_)),
      rows_(all_rows()) {
  options_.tune = run.tune;
  options_.deterministic = run.deterministic;
  for (const std::string& pattern : run.rows) {
    if (pattern.starts_with("!")) {
      options_.except.push_back(pattern.substr(1));
    } else {
      options_.only.push_back(pattern);
    }
  }
  if (run.tune) cache_.emplace(TuningCache::standard(runtime_->fingerprint()));
}

Machine Machine::reference() {
  RunConfig run;
  run.device = "cpu";
  run.threads = 1;
  run.tune = false;
  Machine machine(run);
  std::erase_if(machine.rows_, [](const Impl& row) { return !row.name.ends_with(".reference"); });
  return machine;
}

std::optional<prof::Ceilings> Machine::ceilings(bool again) {
  if (device().kind != DeviceKind::cpu) {
    const auto copy = [this](void* to, const void* from, size_t bytes) {
      copy_on_gpu(*runtime_, to, from, bytes);
    };
    return prof::gpu_ceilings_of(*runtime_, rows_, copy, ceilings_file(device()), again);
  }
  ThreadPool pool(threads_);  // its own: the runtime's stays out of sight
  return prof::ceilings_of(pool, runtime_->fingerprint(), ceilings_file(device()), again);
}

std::optional<prof::Ceilings> Machine::kept_ceilings() const {
  return prof::read_ceilings(ceilings_file(device()), runtime_->fingerprint());
}

}  // namespace ridgeline::engine
