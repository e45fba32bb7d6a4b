#include "ridgeline/engine/runner.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_set>

#include "ridgeline/plan/out_of_arena.h"

namespace ridgeline::engine {
namespace {

// Returns the layer of this op; if it has none (a kernel that covers a whole step begins at the
// data), the layer that writes the largest temporaries.
int layer_of_most(const nn::Lowered& lowered, size_t op) {
  if (op < lowered.op_layer.size() && lowered.op_layer[op] >= 0) return lowered.op_layer[op];
  std::map<int, double> bytes;
  for (size_t i = 0; i < lowered.op_layer.size(); ++i) {
    if (lowered.op_layer[i] < 0) continue;
    for (const Value& value : writes(lowered.program.ops[i])) {
      if (!value || lowered.program.info(value.id).role != Role::temp) continue;
      bytes[lowered.op_layer[i]] += double(size_of(value));
    }
  }
  const auto most = std::ranges::max_element(bytes, {}, &std::pair<const int, double>::second);
  return most == bytes.end() ? -1 : most->first;
}

}  // namespace

Runner::Runner(Machine& machine, nn::Lowered lowered, const Externals& shared,
               const std::vector<std::string>& pinned, bool fixed_weights)
    : lowered_(std::move(lowered)) {
  Runtime& runtime = machine.runtime();
  Externals externals = shared;
  const auto block = [&](const Values& values, DeviceBuffer& device, Buffer& host) {
    size_t bytes = 0;
    for (const Value& value : values) {
      if (!value) continue;
      offsets_[value.id] = bytes;
      bytes += align_up(size_t(size_of(value)));
    }
    device = DeviceBuffer(runtime, bytes);
    host = Buffer(bytes);
    for (const Value& value : values) {
      if (!value) continue;
      externals[value.id] = {device.data() + offsets_[value.id], value.dtype, value.shape,
                             runtime.device()};
    }
  };
  block({lowered_.first, lowered_.tick, lowered_.step, lowered_.epoch, lowered_.lr}, control_,
        host_control_);
  block({lowered_.loss, lowered_.correct}, results_, host_results_);
  std::unordered_set<ValueId> carried;
  for (const auto& each : lowered_.carried) carried.insert(each.value.id);
  for (const ValueInfo& info : lowered_.program.values) {
    if (info.role == Role::temp || externals.contains(info.value.id)) continue;
    const Value& value = info.value;
    others_.emplace_back(runtime, size_t(size_of(value)));
    externals[value.id] = {others_.back().data(), value.dtype, value.shape, runtime.device()};
    if (carried.contains(value.id)) carried_.push_back(externals[value.id]);
  }
  for (const auto& [value, numbers] : lowered_.constants) {
    runtime.upload(externals[value.id].data, numbers.data(), numbers.size() * sizeof(double));
  }
  PlanOptions options = machine.plan_options();
  options.pinned = pinned;
  const KernelTable& table = fixed_weights ? machine.inference_kernels() : machine.kernels();
  Planned planned = plan_program(lowered_.program, table, runtime, options, machine.cache());
  machine.planned(planned.explanation);
  explanation_ = std::move(planned.explanation);
  try {
    plan_.emplace(runtime, lowered_.program, std::move(planned.choices), externals);
  } catch (const OutOfArena& error) {
    const int layer = layer_of_most(lowered_, error.op);
    if (layer < 0) throw;
    throw_error(error.kind(), "{} (layer {})", error.what(), layer);
  }
  clear_carried();
}

void Runner::clear_carried() {
  for (const Tensor& state : carried_) plan_->runtime().clear(state.data, state.bytes());
}

void Runner::set_inputs(int64_t first, int64_t done, std::span<const double> lr, int64_t epoch) {
  const auto set = [&](const Value& value, const void* data, size_t bytes) {
    if (value) std::memcpy(host_control_.data() + offsets_[value.id], data, bytes);
  };
  const int32_t tick = 0;
  set(lowered_.first, &first, sizeof first);
  set(lowered_.tick, &tick, sizeof tick);
  set(lowered_.step, &done, sizeof done);
  set(lowered_.epoch, &epoch, sizeof epoch);
  set(lowered_.lr, lr.data(), lr.size_bytes());
  plan_->runtime().upload(control_.data(), host_control_.data(), control_.size());
}

void Runner::launch(int64_t first, int64_t steps, int64_t done, std::span<const double> lr,
                    int64_t epoch) {
  set_inputs(first, done, lr, epoch);
  plan_->run(steps);
  launched_ = steps;
  fetched_ = false;
}

void Runner::fetch_results() {
  if (fetched_) return;
  plan_->runtime().download(host_results_.data(), results_.data(), results_.size());
  fetched_ = true;
}

std::span<const double> Runner::losses() {
  if (!lowered_.loss) return {};
  fetch_results();
  const std::byte* data = host_results_.data() + offsets_[lowered_.loss.id];
  return {reinterpret_cast<const double*>(data), size_t(launched_)};
}

std::span<const int32_t> Runner::corrects() {
  if (!lowered_.correct) return {};
  fetch_results();
  const std::byte* data = host_results_.data() + offsets_[lowered_.correct.id];
  return {reinterpret_cast<const int32_t*>(data), size_t(launched_)};
}

std::vector<std::string> Runner::kernel_names() const {
  std::vector<std::string> names;
  for (const Choice& choice : plan_->choices()) {
    if (choice.converted < 0)
      names.push_back(choice.kernel->name);  // conversions follow from these
  }
  return names;
}

}  // namespace ridgeline::engine
