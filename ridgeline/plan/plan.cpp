#include "ridgeline/plan/plan.h"

#include <algorithm>
#include <map>

#include "ridgeline/plan/arena.h"
#include "ridgeline/plan/cover_lookup.h"
#include "ridgeline/plan/out_of_arena.h"
#include "ridgeline/plan/segments.h"

namespace ridgeline {
namespace {

// A value in one format, which is the content of a block of the arena.
using Instance = std::pair<ValueId, Format>;

}  // namespace

struct Plan::Parts {
  Runtime& runtime;
  Program program;
  Choices choices;
  Externals externals;
  MemoryUse memory;
  DeviceBuffer arena;
  std::map<Instance, Tensor> instances;
  std::vector<std::byte*> workspaces;
  std::vector<std::unique_ptr<Step>> steps;
  std::map<int64_t, std::function<void()>> launches;    // by number of steps
  std::vector<std::function<void()>> segment_launches;  // one pass of a plan in several segments

  std::map<Instance, Lifetime> lifetimes() const;
  void lay_out();
  Tensor tensor(const Value& value, const Format& format) const;
  void run_once() { run(0, steps.size()); }
  void run(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) steps[i]->run();
  }
  const std::function<void()>& launch(int64_t count);
  void prepare_segments(const std::vector<Segment>& segments);
};

namespace {

class PlanBinding final : public Binding {
 public:
  using Find = std::function<Tensor(const Value&, const Format&)>;
  PlanBinding(Runtime& runtime, const Program& program, const Choice& choice, std::byte* workspace,
              Find find)
      : runtime_(runtime),
        choice_(choice),
        converted_(choice.converted < 0 ? Value{} : program.info(choice.converted).value),
        cover_(choice.cover),
        workspace_(workspace),
        find_(std::move(find)) {}

  Runtime& runtime() const override { return runtime_; }
  std::byte* workspace() const override { return workspace_; }
  Value converted() const override { return converted_; }
  Format from() const override { return choice_.from; }
  Format to() const override { return choice_.to; }

  Tensor read(const Value& value) const override {
    if (choice_.converted >= 0) return find_(converted(), choice_.from);
    return get(value, cover_.read(value.id));
  }
  Tensor write(const Value& value) const override {
    if (choice_.converted >= 0) return find_(converted(), choice_.to);
    return get(value, cover_.write(value.id));
  }

 private:
  Tensor get(const Value& value, const FormatUse* use) const {
    if (!value || cover_.skips(value.id)) return {nullptr, value.dtype, value.shape, {}};
    return find_(value, use != nullptr ? use->format : Format{});
  }

  Runtime& runtime_;
  const Choice& choice_;
  Value converted_;
  CoverLookup cover_;
  std::byte* workspace_;
  Find find_;
};

struct Arena {
  Packing packing;
  DeviceBuffer memory;
};

// Steps of a GPU's graph run in parallel if they use different memory. A block is therefore not
// reused for a few steps after its last use, unless that takes too much memory.
Arena make_arena(const std::vector<Lifetime>& blocks, Runtime& runtime) {
  constexpr size_t kStepsBeside = 3, kMuch = size_t{256} << 20;
  Packing tight = pack(blocks);
  if (!runtime.device().is_host()) {
    std::vector<Lifetime> longer = blocks;
    for (Lifetime& block : longer) block.last += kStepsBeside;
    Packing spread = pack(longer);
    if (spread.total <= kMuch) {
      try {
        DeviceBuffer memory(runtime, spread.total);
        return {std::move(spread), std::move(memory)};
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::device) throw;
      }
    }
  }
  DeviceBuffer memory(runtime, tight.total);
  return {std::move(tight), std::move(memory)};
}

}  // namespace

// Returns the lifetime, from the first step that touches it to the last, of every temporary and of
// every value that is held in a format that is not plain.
std::map<Instance, Lifetime> Plan::Parts::lifetimes() const {
  std::map<Instance, Lifetime> lives;
  const auto touch = [&](ValueId id, const Format& format, size_t bytes, size_t step) {
    if (format.empty() && program.info(id).role != Role::temp) return;
    const auto [entry, fresh] = lives.try_emplace({id, format}, Lifetime{bytes, step, step});
    entry->second.bytes = std::max(entry->second.bytes, bytes);
    entry->second.last = step;
  };
  const auto plain_bytes = [&](ValueId id) { return size_t(size_of(program.info(id).value)); };
  const auto touch_value = [&](const Value& value, const FormatUse* use, size_t step) {
    touch(value.id, use != nullptr ? use->format : Format{},
          use != nullptr ? use->bytes : plain_bytes(value.id), step);
  };
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    if (choice.converted >= 0) {
      touch(choice.converted, choice.from, 0, i);
      const size_t bytes = choice.to.empty() ? plain_bytes(choice.converted) : choice.to_bytes;
      touch(choice.converted, choice.to, bytes, i);
    }
    const CoverLookup cover(choice.cover);
    for (size_t op = choice.begin; op < choice.end; ++op) {
      for (const Value& value : reads(program.ops[op])) {
        if (!cover.skips(value.id)) touch_value(value, cover.read(value.id), i);
      }
      for (const Value& value : writes(program.ops[op])) {
        if (!cover.skips(value.id)) touch_value(value, cover.write(value.id), i);
      }
    }
  }
  return lives;
}

// Assigns every temporary, converted copy and workspace its place in the arena.
void Plan::Parts::lay_out() {
  const std::map<Instance, Lifetime> lives = lifetimes();
  std::vector<Lifetime> blocks;
  blocks.reserve(lives.size() + choices.size());
  for (const auto& [instance, life] : lives) blocks.push_back(life);
  for (size_t i = 0; i < choices.size(); ++i) {
    blocks.push_back({choices[i].cover.workspace, i, i});
  }
  auto [packing, memory_of_all] = [&] {
    try {
      return make_arena(blocks, runtime);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::device) throw;
      const Peak peak = peak_of(blocks);
      const Choice& most = choices[peak.step];
      throw OutOfArena(
          fmt::format("{}; most memory, {} bytes, is in use at {}{}", error.what(), peak.bytes,
                      most.kernel->name,
                      most.begin < most.end ? ": " + describe(program.ops[most.begin]) : ""),
          most.begin);
    }
  }();
  arena = std::move(memory_of_all);
  memory.arena = packing.total;
  memory.peak_live = peak_of(blocks).bytes;
  for (const Lifetime& block : blocks) memory.sum += block.bytes;

  size_t next = 0;
  for (const auto& [instance, life] : lives) {
    const Value& value = program.info(instance.first).value;
    instances[instance] = {arena.data() + packing.offsets[next++], value.dtype, value.shape,
                           runtime.device()};
  }
  for (const Choice& choice : choices) {
    const bool any = choice.cover.workspace > 0;
    workspaces.push_back(any ? arena.data() + packing.offsets[next] : nullptr);
    ++next;
  }
}

Tensor Plan::Parts::tensor(const Value& value, const Format& format) const {
  if (const auto found = instances.find({value.id, format}); found != instances.end()) {
    return found->second;
  }
  if (const auto found = externals.find(value.id); found != externals.end() && format.empty()) {
    return found->second;
  }
  throw_error(ErrorKind::usage, "value {} ({}) of the program has no memory{}",
              program.info(value.id).name, to_string(value.shape),
              format.empty() ? "" : " in format " + format);
}

void Plan::Parts::prepare_segments(const std::vector<Segment>& segments) {
  for (const auto& [begin, end, graph] : segments) {
    const auto run_these = [this, begin = begin, end = end] { run(begin, end); };
    segment_launches.push_back(graph ? runtime.capture(run_these, 1) : run_these);
  }
}

const std::function<void()>& Plan::Parts::launch(int64_t count) {
  auto& entry = launches[count];
  if (!entry) {
    if (steps.size() == 1) {
      entry = [step = steps.front().get(), count] { step->run_many(count); };
    } else if (const auto segments = segments_of(program, choices);
               segments.size() > 1 || !segments.front().graph) {
      if (segment_launches.empty()) prepare_segments(segments);
      entry = [this, count] {
        for (int64_t i = 0; i < count; ++i) {
          for (const auto& segment : segment_launches) segment();
        }
      };
    } else {
      entry = runtime.capture([this] { run_once(); }, count);
    }
  }
  return entry;
}

Plan::Plan(Runtime& runtime, Program program, Choices choices, const Externals& externals)
    : parts_(new Parts{
          runtime, std::move(program), std::move(choices), externals, {}, {}, {}, {}, {}, {}, {}}) {
  parts_->lay_out();
  for (size_t i = 0; i < parts_->choices.size(); ++i) {
    const Choice& choice = parts_->choices[i];
    const PlanBinding binding(
        runtime, parts_->program, choice, parts_->workspaces[i],
        [this](const Value& value, const Format& format) { return parts_->tensor(value, format); });
    parts_->steps.push_back(
        choice.kernel->prepare(Span{parts_->program, choice.begin, choice.end}, binding));
  }
  // The launch is made in advance, so that the first steps cost the same as all others.
  parts_->launch(1);
  parts_->launch(parts_->program.repeats);
}

std::string Plan::label(size_t index) const {
  const std::string variant = parts_->steps[index]->variant();
  const std::string& name = parts_->choices[index].kernel->name;
  return variant.empty() ? name : fmt::format("{} ({})", name, variant);
}

Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

void Plan::run(int64_t steps) { parts_->launch(steps)(); }
void Plan::run_choice(size_t index) { parts_->steps[index]->run(); }
const Program& Plan::program() const { return parts_->program; }
const Choices& Plan::choices() const { return parts_->choices; }
const MemoryUse& Plan::memory() const { return parts_->memory; }
Runtime& Plan::runtime() const { return parts_->runtime; }

Tensor Plan::peek(ValueId id) const {
  const Value& value = parts_->program.info(id).value;
  const auto found = parts_->instances.find({id, Format{}});
  if (found != parts_->instances.end()) return found->second;
  const auto external = parts_->externals.find(id);
  if (external != parts_->externals.end()) return external->second;
  return {nullptr, value.dtype, value.shape, {}};
}

}  // namespace ridgeline
