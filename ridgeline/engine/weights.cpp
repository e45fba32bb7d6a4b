#include "ridgeline/engine/weights.h"

#include <cmath>
#include <cstring>

namespace ridgeline::engine {
namespace {

constexpr const char* kClipped = "clipped";

template <typename T>
bool finite_span(std::span<const T> values) {
  for (const T value : values) {
    if (!std::isfinite(double(float(value)))) return false;
  }
  return true;
}

}  // namespace

bool all_finite(const Tensor& host) {
  if (host.dtype == DType::fp64) {
    for (const double value : host.span<double>()) {
      if (!std::isfinite(value)) return false;
    }
    return true;
  }
  if (!is_float(host.dtype)) return true;
  return dispatch_float(host.dtype, [&](auto zero) {
    using T = decltype(zero);
    return finite_span<T>({host.as<T>(), size_t(host.numel())});
  });
}

bool Snapshot::finite() const {
  for (const Item& item : items) {
    if (!all_finite(item.value.view())) return false;
  }
  return true;
}

Weights::Weights(Runtime& runtime, const nn::Model& model, const nn::Lowered& lowered)
    : runtime_(runtime), params_(model.params().size()) {
  const auto add = [&](const std::string& name, const Value& value) {
    items_.push_back({name, value, DeviceBuffer(runtime, size_t(size_of(value)))});
  };
  for (size_t i = 0; i < params_; ++i) add(model.params()[i].name, lowered.params[i]);
  for (const auto& state : lowered.states) add(state.name, state.value);
  if (lowered.clipped) add(kClipped, lowered.clipped);
  for (const auto& each : lowered.carried) {
    for (Item& item : items_) item.carried |= item.name == each.name;
  }
  clear_carried();
  upload(model);
}

const Weights::Item& Weights::find(const std::string& name) const {
  for (const Item& item : items_) {
    if (item.name == name) return item;
  }
  throw_error(ErrorKind::model, "no weight or optimizer state is called '{}'", name);
}

void Weights::bind(const nn::Lowered& lowered, Externals& externals) const {
  const auto add = [&](const Value& value, const Item& item) {
    externals[value.id] = {item.memory.data(), value.dtype, value.shape, runtime_.device()};
  };
  for (size_t i = 0; i < lowered.params.size(); ++i) add(lowered.params[i], items_[i]);
  for (const auto& state : lowered.states) add(state.value, find(state.name));
  if (lowered.clipped) add(lowered.clipped, find(kClipped));
}

Snapshot Weights::download() const {
  Snapshot snapshot;
  for (const Item& item : items_) {
    HostTensor host(item.value.dtype, item.value.shape);
    runtime_.download(host.view().data, item.memory.data(), host.view().bytes());
    snapshot.items.push_back({item.name, std::move(host)});
  }
  return snapshot;
}

void Weights::upload(const Snapshot& snapshot) {
  for (const Snapshot::Item& from : snapshot.items) {
    const Item& to = find(from.name);
    runtime_.upload(to.memory.data(), from.value.view().data, from.value.view().bytes());
  }
}

void Weights::upload(const nn::Model& model) {
  for (size_t i = 0; i < params_; ++i) {
    const Tensor& host = model.params()[i].value.view();
    runtime_.upload(items_[i].memory.data(), host.data, host.bytes());
  }
}

void Weights::clear_carried() {
  for (const Item& item : items_) {
    if (item.carried) runtime_.clear(item.memory.data(), item.memory.size());
  }
}

void Weights::download_to(nn::Model& model) const {
  for (size_t i = 0; i < params_; ++i) {
    const Tensor& host = model.params()[i].value.view();
    runtime_.download(host.data, items_[i].memory.data(), host.bytes());
  }
}

}  // namespace ridgeline::engine
