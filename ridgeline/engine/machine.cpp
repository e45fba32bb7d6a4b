#include "ridgeline/engine/machine.h"

#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

std::filesystem::path ceilings_file() { return cache_folder() / "ceilings.json"; }

}  // namespace

Device choose_device(const std::string& text) {
  if (text != "auto") return parse_device(text);
  for (const Device& device : devices()) {
    if (device.kind != DeviceKind::cpu) return device;
  }
  return Device{};
}

Machine::Machine(const RunConfig& run)
    : threads_(resolve_threads(run.threads)),
      runtime_(make_runtime(choose_device(run.device), threads_)),
      rows_(all_rows()) {
  options_.tune = run.tune;
  options_.deterministic = run.deterministic;
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
  if (device().kind != DeviceKind::cpu) return std::nullopt;
  ThreadPool pool(threads_);  // its own: the runtime's stays out of sight
  return prof::ceilings_of(pool, runtime_->fingerprint(), ceilings_file(), again);
}

std::optional<prof::Ceilings> Machine::kept_ceilings() const {
  return prof::read_ceilings(ceilings_file(), runtime_->fingerprint());
}

}  // namespace ridgeline::engine
