#include "ridgeline/engine/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ridgeline/core/file.h"
#include "ridgeline/core/philox.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/engine/verify/summed_terms.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

// A run's weights and losses.
struct TrainedState {
  Snapshot state;
  std::vector<double> losses;
};

Snapshot clone(const Snapshot& snapshot) {
  Snapshot copy;
  for (const Snapshot::Item& item : snapshot.items) {
    const Tensor& from = item.value.view();
    HostTensor to(from.dtype, from.shape);
    std::memcpy(to.view().data, from.data, from.bytes());
    copy.items.push_back({item.name, std::move(to)});
  }
  return copy;
}

double roundoff(Precision precision) {
  if (precision == Precision::tf32) return 0x1p-11;
  if (precision == Precision::fp32x3) return 0x1p-22;  // a factor is two tf32 numbers
  return unit_roundoff(storage(precision));
}

// The error that rounding alone explains. A step changes a weight by little and rounds it once, and
// the roundings of K steps are nearly independent: they add up like a random walk, to about sqrt(K)
// u. A correct run may be off by twice that, plus two initial roundings; a gradient that lacks one
// sample of a batch of thousands is already off by far more. What the steps have changed, a share
// of the weight (all of it, if it began at zero), is a sum of gradients only, whose own relative
// error, as sums of n terms that partly cancel, is about sqrt(n) u.
double bound_of(Precision precision, int64_t steps, double changed = 0, int64_t terms = 1) {
  const double walk = 2 * roundoff(precision) * (1 + std::sqrt(double(steps)));
  return walk * std::max(1.0, changed * std::sqrt(double(terms)) / 4);
}

// A control run measures how much training itself amplifies a rounding. An error within this many
// times the control's is due to the problem, not the implementation.
constexpr double kControlFactor = 20;

Config with(const Config& config, Precision precision, const std::string& device) {
  Config changed = config;
  changed.run.precision = precision;
  changed.run.device = device;
  return changed;
}

// Moves each weight by one rounding, up or down.
void disturb(Snapshot& state, Precision precision) {
  const Philox random{7, streams::kSample};
  uint64_t at = 0;
  const double u = roundoff(precision);
  for (Snapshot::Item& item : state.items) {
    const Tensor& view = item.value.view();
    if (!is_float(view.dtype)) continue;
    dispatch_float(view.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (T& value : view.span<T>()) {
        const double sign = (random.word(at++) & 1) != 0 ? 1 : -1;
        if constexpr (sizeof(T) >= 4) value = T(double(value) * (1 + 2 * sign * u));
      }
    });
  }
}

TrainedState make(Trainer& trainer, int64_t steps) {
  TrainedState made;
  while (trainer.step() < steps) {
    trainer.advance(steps - trainer.step());
    const auto losses = trainer.losses();
    made.losses.insert(made.losses.end(), losses.begin(), losses.end());
  }
  made.state = trainer.snapshot();
  return made;
}

using SetPtr = std::shared_ptr<const data::DataSet>;

TrainedState make(const Config& config, const SetPtr& set, int64_t steps,
                  Communicator* ranks = nullptr, bool disturbed = false) {
  Machine machine(config.run, ranks);
  Trainer trainer(machine, config, set);
  if (disturbed) {
    Snapshot state = trainer.snapshot();
    disturb(state, config.run.precision);
    trainer.restore(state, 0);
  }
  return make(trainer, steps);
}

struct Norms {
  double max = 0, two = 0;
};

// Returns the norms of a - b, or of a.
Norms norms(const Tensor& a, const Tensor* b) {
  Norms all;
  const auto number = [](const Tensor& tensor, int64_t i) {
    return dispatch_float(tensor.dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_same_v<T, double>) {
        return tensor.as<double>()[i];
      } else {
        return double(float(tensor.as<T>()[i]));
      }
    });
  };
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double value = number(a, i) - (b != nullptr ? number(*b, i) : 0.0);
    all.max = std::isnan(value) ? value : std::max(all.max, std::abs(value));
    all.two += value * value;
  }
  all.two = std::sqrt(all.two);
  return all;
}

double ratio(double part, double whole) { return part == 0 ? 0 : whole > 0 ? part / whole : 1; }

Verdict judge(double error, double bound, double control) {
  if (error <= bound) return Verdict::pass;
  return error <= kControlFactor * control ? Verdict::amplified : Verdict::fail;
}

struct Base {
  Precision precision = Precision::fp32;
  std::unordered_map<std::string, int64_t> terms;  // summed_terms()
  Snapshot start;
  TrainedState made, control;
};

Comparison compare(std::string what, Precision precision, int64_t batch, const Base& base,
                   const TrainedState& made) {
  Comparison all;
  all.what = std::move(what);
  all.precision = precision;
  all.base = base.precision;
  all.steps = int64_t(made.losses.size());
  for (size_t i = 0; i < base.made.state.items.size(); ++i) {
    const Snapshot::Item& item = base.made.state.items[i];
    const Tensor& want = item.value.view();
    if (!is_float(want.dtype)) continue;
    const Norms size = norms(want, nullptr);
    const Norms off = norms(made.state.items[i].value.view(), &want);
    Comparison::Tensor tensor;
    tensor.name = item.name;
    tensor.max_norm = ratio(off.max, size.max);
    tensor.two_norm = ratio(off.two, size.two);
    const Norms change = norms(base.start.items[i].value.view(), &want);
    const auto terms = base.terms.find(item.name);
    tensor.bound =
        bound_of(precision, all.steps,
                 std::min(1.0, std::max(ratio(change.max, size.max), ratio(change.two, size.two))),
                 terms == base.terms.end() ? batch : terms->second);
    const Norms drift = norms(base.control.state.items[i].value.view(), &want);
    tensor.control_max = ratio(drift.max, size.max);
    tensor.control = ratio(drift.two, size.two);
    // Each norm is compared with the control's own: Adam makes a whole step from a gradient that is
    // only rounding, so a few elements may stray far while the whole does not.
    tensor.verdict = std::max(judge(tensor.two_norm, tensor.bound, tensor.control),
                              judge(tensor.max_norm, tensor.bound, tensor.control_max));
    all.verdict = std::max(all.verdict, tensor.verdict);
    all.tensors.push_back(tensor);
  }
  // A loss accumulates the rounding of every weight that it depends on: it may err ten times as
  // much as a weight. A loss near zero is a difference of large logits, so its error does not
  // shrink with it: it is compared with a hundredth of the largest.
  all.loss_bound = 10 * bound_of(precision, all.steps);
  double control = 0, largest = 0;
  for (const double loss : base.made.losses) largest = std::max(largest, std::abs(loss));
  for (size_t i = 0; i < made.losses.size(); ++i) {
    const double want = base.made.losses[i], scale = std::max(std::abs(want), 0.01 * largest);
    all.losses.push_back(ratio(std::abs(made.losses[i] - want), scale));
    control = std::max(control, ratio(std::abs(base.control.losses[i] - want), scale));
    if (!(all.losses.back() <= all.worst_loss)) all.worst_loss = all.losses.back();
  }
  all.verdict = std::max(all.verdict, judge(all.worst_loss, all.loss_bound, control));
  return all;
}

// The base of comparisons with runs in `precision`: the control's initial weights are off by one
// rounding in it.
Base make_base(const Config& config, const SetPtr& set, int64_t steps, Precision precision) {
  Base base;
  base.precision = config.run.precision;
  Machine machine(config.run);
  Trainer trainer(machine, config, set);
  base.terms = summed_terms(trainer.runner().lowered().program);
  base.start = trainer.snapshot();
  base.made = make(trainer, steps);
  Snapshot state = clone(base.start);
  disturb(state, precision);
  trainer.restore(state, 0);
  base.control = make(trainer, steps);
  return base;
}

// Makes as many steps as fit into the time, estimated from the first.
TrainedState make_reference(const Config& config, const SetPtr& set, int64_t steps,
                            double seconds) {
  Machine machine = Machine::reference();
  Trainer trainer(machine, config, set);
  const Clock clock;
  TrainedState made = make(trainer, 1);
  const double fit = seconds / std::max(clock.seconds(), 1e-9);
  if (fit >= 2 && steps > 1) {
    TrainedState more = make(trainer, fit < double(steps) ? int64_t(fit) : steps);
    more.losses.insert(more.losses.begin(), made.losses.begin(), made.losses.end());
    made = std::move(more);
  }
  return made;
}

std::string prefix(Precision precision) { return std::string(name(precision)) + "/"; }

TrainedState read_part(const nn::TensorFile& file, Precision precision, const Snapshot& like) {
  TrainedState made;
  made.state = clone(like);
  const auto find = [&](const std::string& name) -> const nn::TensorEntry& {
    const nn::TensorEntry* entry = file.find(prefix(precision) + name);
    if (entry == nullptr) {
      throw_error(ErrorKind::comm, "{}: has no {}{}", file.origin(), prefix(precision), name);
    }
    return *entry;
  };
  for (Snapshot::Item& item : made.state.items) {
    const nn::TensorEntry& entry = find(item.name);
    if (entry.data.size() != item.value.view().bytes()) {
      throw_error(ErrorKind::comm, "{}: {} is of another size", file.origin(), item.name);
    }
    std::memcpy(item.value.view().data, entry.data.data(), entry.data.size());
  }
  const nn::TensorEntry& losses = find("losses");
  made.losses.resize(losses.data.size() / sizeof(double));
  std::memcpy(made.losses.data(), losses.data.data(), losses.data.size());
  return made;
}

SetPtr load_set(const Config& config, const VerifyOptions& options) {
  if (options.set) return options.set;
  return std::make_shared<data::DataSet>(load_data(config, options.data));
}

int64_t steps_of(const Config& config, const data::DataSet& set, const VerifyOptions& options) {
  const data::BatchPlan batches(set.train.size(), std::min(config.train.batch, set.train.size()),
                                config.train.drop_last);
  return options.steps > 0 ? options.steps : batches.batches();
}

// Returns a config whose run does not end before the requested steps.
Config long_enough(Config config, int64_t steps) {
  config.train.max_steps = 0;
  config.train.epochs = std::max(config.train.epochs, steps);
  return config;
}

}  // namespace

const char* name(Verdict verdict) {
  return verdict == Verdict::pass ? "pass" : verdict == Verdict::amplified ? "amplified" : "FAIL";
}

bool VerifyReport::good() const {
  return std::none_of(comparisons.begin(), comparisons.end(),
                      [](const Comparison& c) { return c.verdict == Verdict::fail; });
}

CpuSide cpu_side(Precision precision, bool others) {
  if (has_precision(Device{}, precision)) return {precision, true};
  if (!others) {
    throw_error(
        ErrorKind::usage,
        "--precision {}: only a GPU computes in it, and there is none ({}); use fp64, fp32, "
        "bf16 or fp16",
        name(precision), gpu_support().refusal);
  }
  return {Precision::fp32, false};
}

VerifyReport verify(const Config& given, const VerifyOptions& options) {
  const SetPtr set = load_set(given, options);
  const int64_t steps = steps_of(given, *set, options);
  const Config config = long_enough(given, steps);
  Communicator* ranks =
      options.ranks != nullptr && options.ranks->size() > 1 ? options.ranks : nullptr;
  const bool root = ranks == nullptr || ranks->is_root();
  if (ranks != nullptr) check_alike(*ranks, config, *set);
  VerifyReport report;
  report.steps = steps;
  report.batch = std::min(config.train.batch, set->train.size());
  report.data = config.data.name;
  const std::vector<Device> gpus = root ? ridgeline::gpus() : std::vector<Device>{};
  if (root && gpus.empty()) report.notes.push_back("no GPU: " + gpu_support().refusal);
  std::vector<Snapshot> finals;
  const bool others = !gpus.empty() || ranks != nullptr || !options.part.empty();
  for (const Precision precision : options.precisions) {
    TrainedState together;
    const bool gpu_ranks = given.run.device != "cpu" && given.run.device != "auto";
    if (ranks != nullptr) {
      const std::string device = gpu_ranks ? given.run.device : "cpu";
      together = make(with(config, precision, device), set, steps, ranks);
      check_replicas(*ranks, together.state, steps);
    }
    if (!root) continue;
    const CpuSide cpu = cpu_side(precision, others);
    const Config on_cpu = with(config, cpu.base, "cpu");
    const Base base = make_base(on_cpu, set, steps, precision);
    const auto add = [&](const std::string& what, const Base& from, const TrainedState& made) {
      report.comparisons.push_back(compare(what, precision, report.batch, from, made));
    };
    if (cpu.reference_kernels) {
      const TrainedState reference = make_reference(on_cpu, set, steps, options.reference_seconds);
      const auto made_steps = int64_t(reference.losses.size());
      if (made_steps < steps) {
        add("cpu reference kernels", make_base(on_cpu, set, made_steps, precision), reference);
      } else {
        add("cpu reference kernels", base, reference);
      }
    } else {
      report.notes.push_back(
          fmt::format("the CPU's reference kernels in {}, which the CPU does not "
                      "compute in; --precision {} has them",
                      name(precision), name(cpu.base)));
    }
    if (!gpus.empty()) {
      add(to_string(gpus.front()), base,
          make(with(config, precision, to_string(gpus.front())), set, steps));
    }
    if (ranks != nullptr) add(fmt::format("{} ranks", ranks->size()), base, together);
    if (!options.part.empty()) {
      add(fmt::format("{} ranks", options.part_ranks), base,
          read_part(nn::TensorFile::read(options.part), precision, base.made.state));
    }
    finals.push_back(clone(base.made.state));
  }
  if (finals.size() == 2 && finals[0].items.size() == finals[1].items.size()) {
    for (size_t i = 0; i < finals[0].items.size(); ++i) {
      const Tensor &a = finals[0].items[i].value.view(), &b = finals[1].items[i].value.view();
      if (!is_float(a.dtype)) continue;
      report.between_precisions =
          std::max(report.between_precisions, ratio(norms(b, &a).two, norms(a, nullptr).two));
    }
  }
  return report;
}

void write_part(const Config& given, const VerifyOptions& options,
                const std::filesystem::path& file) {
  const SetPtr set = load_set(given, options);
  const int64_t steps = steps_of(given, *set, options);
  const Config config = long_enough(given, steps);
  check_alike(*options.ranks, config, *set);
  std::vector<TrainedState> all;
  std::vector<nn::TensorEntry> tensors;
  std::vector<HostTensor> losses;
  all.reserve(options.precisions.size());
  losses.reserve(options.precisions.size());
  for (const Precision precision : options.precisions) {
    const std::string device = given.run.device == "auto" ? "cpu" : given.run.device;
    all.push_back(make(with(config, precision, device), set, steps, options.ranks));
    check_replicas(*options.ranks, all.back().state, steps);
    for (const Snapshot::Item& item : all.back().state.items) {
      tensors.push_back(nn::entry(prefix(precision) + item.name, item.value.view()));
    }
    losses.emplace_back(DType::fp64, Shape{int64_t(all.back().losses.size())});
    std::ranges::copy(all.back().losses, losses.back().span<double>().begin());
    tensors.push_back(nn::entry(prefix(precision) + "losses", losses.back().view()));
  }
  if (options.ranks->is_root()) write_file_atomic(file, nn::to_safetensors(tensors, {}));
}

}  // namespace ridgeline::engine
