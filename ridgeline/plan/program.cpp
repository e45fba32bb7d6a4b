#include "ridgeline/plan/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace ridgeline {

Value Program::add_value(std::string name, DType dtype, const Shape& shape, Role role,
                         int64_t below) {
  const Value value{ValueId(values.size()), dtype, shape};
  values.push_back({std::move(name), value, role, below});
  return value;
}

void Program::add(Op op) {
  if (indexed_ == ops.size()) {
    const auto uses_of = [this](const Value& value) -> Uses& {
      if (uses_.size() <= size_t(value.id))
        uses_.resize(std::max(values.size(), size_t(value.id) + 1));
      return uses_[size_t(value.id)];
    };
    const auto add_use = [&](const Value& value) {
      std::vector<uint32_t>& those = uses_of(value).ops;
      if (those.empty() || those.back() != ops.size()) those.push_back(uint32_t(ops.size()));
    };
    for (const Value& value : reads(op)) {
      add_use(value);
      uses_of(value).last_read = int64_t(ops.size());
    }
    for (const Value& value : writes(op)) add_use(value);
    ++indexed_;
  }
  ops.push_back(std::move(op));
}

std::vector<size_t> Program::uses(ValueId id) const {
  if (indexed_ == ops.size()) {
    if (size_t(id) >= uses_.size()) return {};
    const std::vector<uint32_t>& those = uses_[size_t(id)].ops;
    return {those.begin(), those.end()};
  }
  std::vector<size_t> found;
  const auto is = [id](const Value& value) { return value.id == id; };
  for (size_t i = 0; i < ops.size(); ++i) {
    if (std::ranges::any_of(reads(ops[i]), is) || std::ranges::any_of(writes(ops[i]), is)) {
      found.push_back(i);
    }
  }
  return found;
}

int64_t Program::last_read(ValueId id) const {
  if (indexed_ == ops.size()) return size_t(id) < uses_.size() ? uses_[size_t(id)].last_read : -1;
  for (size_t i = ops.size(); i-- > 0;) {
    for (const Value& value : reads(ops[i])) {
      if (value.id == id) return int64_t(i);
    }
  }
  return -1;
}

double Program::flops() const {
  double total = 0;
  for (const Op& op : ops) total += ridgeline::flops(op);
  return total;
}

double Program::external_bytes() const {
  std::vector<bool> read(values.size()), written(values.size());
  double total = 0;
  for (const Op& op : ops) {
    if (const auto* gather = std::get_if<Gather>(&op)) {
      total += gather->bytes() - size_of(gather->y);
      continue;
    }
    for (const Value& value : reads(op)) read[size_t(value.id)] = true;
    for (const Value& value : writes(op)) written[size_t(value.id)] = true;
  }
  for (const ValueInfo& info : values) {
    const size_t id = size_t(info.value.id);
    if (info.role == Role::copy) {  // computed from the weight, so it need not be read
      total += size_of(info.value) * double(written[id]);
      continue;
    }
    if (info.role != Role::param && info.role != Role::state && info.role != Role::output) continue;
    total += size_of(info.value) * (double(read[id]) + double(written[id]));
  }
  return total;
}

std::string signature(const Program& program, size_t begin, size_t end) {
  std::unordered_map<ValueId, size_t> numbers;
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  const auto append = [&](const Values& values) {
    for (const Value& value : values) {
      const auto [entry, fresh] = numbers.try_emplace(value.id, numbers.size());
      fmt::format_to(out, " {}", entry->second);
      // A value may be used in several shapes: a layer of every timestep takes [B, T, F] as rows.
      if (fresh || !(program.info(value.id).value.shape == value.shape)) {
        fmt::format_to(out, ":{}{}", name(value.dtype), to_string(value.shape));
      }
    }
  };
  fmt::format_to(out, "{}", name(program.precision));
  if (program.accumulate != Precision::fp32) {
    fmt::format_to(out, " summed in {}", name(program.accumulate));
  }
  for (size_t i = begin; i < end; ++i) {
    const Op& op = program.ops[i];
    fmt::format_to(out, "; {}({})", name(op), attributes(op));
    append(reads(op));
    fmt::format_to(out, " ->");
    append(writes(op));
  }
  return fmt::to_string(text);
}

std::string signature(const Program& program) {
  return fmt::format("x{} {}", program.repeats, signature(program, 0, program.ops.size()));
}

bool has_collectives(const Program& program, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (std::holds_alternative<AllReduceStart>(program.ops[i]) ||
        std::holds_alternative<AllReduceWait>(program.ops[i])) {
      return true;
    }
  }
  return false;
}

bool has_collectives(const Program& program) {
  return has_collectives(program, 0, program.ops.size());
}

}  // namespace ridgeline
