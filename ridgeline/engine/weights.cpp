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

// Names the weight or state if memory is short; the name begins with the number of its layer.
DeviceBuffer allocate(Runtime& runtime, const std::string& name, const Value& value) {
  try {
    return DeviceBuffer(runtime, size_t(size_of(value)));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    throw_error(error.kind(), "{} (for {} {} of layer {})", error.what(), name,
                to_string(value.shape), name.substr(0, name.find('.')));
  }
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

void convert(const Tensor& from, const Tensor& to) {
  if (from.dtype == to.dtype) {  // counters, too
    std::memcpy(to.data, from.data, to.bytes());
    return;
  }
  dispatch_float(from.dtype, [&]<typename From>(From) {
    dispatch_float(to.dtype, [&]<typename To>(To) {
      // Half types convert from and to float only; a double that is not a float never becomes a
      // half.
      using Wide = std::conditional_t<std::is_same_v<From, double> && std::is_same_v<To, double>,
                                      double, float>;
      const From* source = from.as<const From>();
      To* target = to.as<To>();
      for (int64_t i = 0; i < to.numel(); ++i) target[i] = To(Wide(source[i]));
    });
  });
}

const Snapshot::Item* Snapshot::first_not_finite() const {
  for (const Item& item : items) {
    if (!all_finite(item.value.view())) return &item;
  }
  return nullptr;
}

Weights::Weights(Runtime& runtime, const nn::Model& model, const nn::Lowered& lowered)
    : runtime_(runtime), params_(model.params().size()) {
  const auto add = [&](const std::string& name, const Value& value) {
    index_.emplace(name, items_.size());
    items_.push_back({name, value, allocate(runtime, name, value)});
  };
  for (size_t i = 0; i < params_; ++i) add(model.params()[i].name, lowered.params[i]);
  for (const auto& state : lowered.states) {
    add(state.name, state.value);
    if (state.start == 0) continue;  // device memory starts as zeros
    const std::vector<double> start(size_t(state.value.shape.numel()), state.start);
    HostTensor host(state.value.dtype, state.value.shape);
    convert({const_cast<double*>(start.data()), DType::fp64, state.value.shape, {}}, host.view());
    runtime.upload(items_.back().memory.data(), host.view().data, host.view().bytes());
  }
  if (lowered.clipped) add(kClipped, lowered.clipped);
  for (const auto& copy : lowered.copies) {
    copy_index_.emplace(model.params()[copy.param].name, copies_.size());
    copies_.push_back({model.params()[copy.param].name, copy.value,
                       allocate(runtime, model.params()[copy.param].name, copy.value)});
  }
  for (const auto& each : lowered.carried) {
    const auto item = index_.find(each.name);
    if (item != index_.end()) items_[item->second].carried = true;
  }
  clear_carried();
  upload(model);
}

const Weights::Item& Weights::find(const std::string& name) const {
  const auto found = index_.find(name);
  if (found != index_.end()) return items_[found->second];
  throw_error(ErrorKind::model, "no weight or optimizer state is called '{}'", name);
}

const Weights::Item* Weights::find_copy(const std::string& name) const {
  const auto found = copy_index_.find(name);
  return found == copy_index_.end() ? nullptr : &copies_[found->second];
}

void Weights::bind(const nn::Lowered& lowered, Externals& externals) const {
  const auto add = [&](const Value& value, const Item& item) {
    externals[value.id] = {item.memory.data(), value.dtype, value.shape, runtime_.device()};
  };
  const auto copy_of = [&](const std::string& name) -> const Item& {
    if (const Item* copy = find_copy(name)) return *copy;
    throw_error(ErrorKind::model, "there is no copy of the weight {}", name);
  };
  for (size_t i = 0; i < lowered.params.size(); ++i) {
    const bool as_kept = lowered.params[i].dtype == items_[i].value.dtype;
    add(lowered.params[i], as_kept ? items_[i] : copy_of(items_[i].name));
  }
  for (const auto& copy : lowered.copies) add(copy.value, copy_of(items_[copy.param].name));
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
    fill_copies(to, from.value.view());
  }
}

void Weights::fill_copies(const Item& item, const Tensor& host) {
  const Item* copy = find_copy(item.name);
  if (copy == nullptr) return;
  const HostTensor narrow(copy->value.dtype, copy->value.shape);
  convert(host, narrow.view());
  runtime_.upload(copy->memory.data(), narrow.view().data, narrow.view().bytes());
}

void Weights::upload(const nn::Model& model) {
  for (size_t i = 0; i < params_; ++i) {
    const Tensor& host = model.params()[i].value.view();
    const HostTensor kept(items_[i].value.dtype, items_[i].value.shape);
    convert(host, kept.view());
    runtime_.upload(items_[i].memory.data(), kept.view().data, kept.view().bytes());
    fill_copies(items_[i], kept.view());
  }
}

void Weights::clear_carried() {
  for (const Item& item : items_) {
    if (item.carried) runtime_.clear(item.memory.data(), item.memory.size());
  }
}

void Weights::download_to(nn::Model& model) const {
  for (size_t i = 0; i < params_; ++i) {
    const HostTensor kept(items_[i].value.dtype, items_[i].value.shape);
    runtime_.download(kept.view().data, items_[i].memory.data(), kept.view().bytes());
    convert(kept.view(), model.params()[i].value.view());
  }
}

}  // namespace ridgeline::engine
