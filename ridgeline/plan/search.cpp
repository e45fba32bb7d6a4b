#include "ridgeline/plan/search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>

namespace ridgeline {
namespace {

const std::set<Format> kPlain{Format{}};

const std::set<Format>& formats_of(const Formats& formats, ValueId id) {
  const auto found = formats.find(id);
  return found == formats.end() ? kPlain : found->second;
}

const FormatUse* find_use(const std::vector<FormatUse>& uses, ValueId id) {
  const auto found =
      std::find_if(uses.begin(), uses.end(), [&](const FormatUse& use) { return use.value == id; });
  return found == uses.end() ? nullptr : &*found;
}

// A path through the search: a linked list, shared by all paths that begin alike.
struct Path {
  std::shared_ptr<const Path> before;
  Choice choice;
  double seconds = 0;  // up to here
};
using PathRef = std::shared_ptr<const Path>;

double seconds_of(const PathRef& path) { return path ? path->seconds : 0.0; }

PathRef extend(const PathRef& before, const Choice& choice) {
  return std::make_shared<const Path>(Path{before, choice, seconds_of(before) + choice.seconds});
}

Choices unroll(const PathRef& path) {
  Choices choices;
  for (const Path* p = path.get(); p != nullptr; p = p->before.get()) choices.push_back(p->choice);
  std::reverse(choices.begin(), choices.end());
  return choices;
}

class Walker {
 public:
  Walker(const Program& program, const Options& options, Cost cost)
      : program_(program), options_(options), cost_(std::move(cost)) {
    for (const ValueInfo& info : program.values) {
      last_read_.push_back(info.role == Role::temp ? last_read(program, info.value.id)
                                                   : int64_t(program.ops.size()));
    }
    for (const auto& candidates : options.at) {
      for (const Candidate& candidate : candidates) {
        for (const FormatUse& use : candidate.cover.writes) {
          written_bytes_[{use.value, use.format}] = use.bytes;
        }
      }
    }
  }

  // `path` with the candidate appended, after the conversions it needs; null when one is missing.
  // `formats` becomes what holds after it.
  PathRef take(PathRef path, const Candidate& candidate, Formats& formats) const {
    const size_t end = candidate.begin + candidate.cover.ops;
    std::set<ValueId> written;
    for (size_t op = candidate.begin; op < end; ++op) {
      for (const Value& value : reads(program_.ops[op])) {
        if (written.contains(value.id)) continue;
        const FormatUse* use = find_use(candidate.cover.reads, value.id);
        path = converted(path, value, use, formats);
        if (!path && failed_) return nullptr;
      }
      for (const Value& value : writes(program_.ops[op])) written.insert(value.id);
    }
    Choice choice{candidate.row, candidate.begin, end, candidate.cover, 0, -1, {}, {}, 0};
    choice.seconds = cost_(choice);
    for (const ValueId id : written) {
      const FormatUse* use = find_use(candidate.cover.writes, id);
      if (use != nullptr) {
        formats[id] = {use->format};
      } else {
        formats.erase(id);
      }
    }
    std::erase_if(formats, [&](const auto& entry) {
      return last_read_[size_t(entry.first)] < int64_t(end) || entry.second == kPlain;
    });
    return extend(path, choice);
  }

  // At the end every outside value must hold its contents in plain form.
  PathRef finish(PathRef path, Formats formats) const {
    const Formats at_end = formats;
    for (const auto& [id, held] : at_end) {
      path = converted(path, program_.info(id).value, nullptr, formats);
      if (!path && failed_) return nullptr;
    }
    return path;
  }

 private:
  // Appends the cheapest conversion that makes `value` available as `use` wants it.
  PathRef converted(const PathRef& path, const Value& value, const FormatUse* use,
                    Formats& formats) const {
    failed_ = false;
    const Format wanted = use != nullptr ? use->format : Format{};
    const std::set<Format> held = formats_of(formats, value.id);
    if (held.contains(wanted)) return path;
    std::optional<Choice> best;
    for (const Format& from : held) {
      for (const Impl* row : options_.conversions) {
        if (!row->converts(value, from, wanted)) continue;
        Choice choice{row, 0, 0, {}, 0, value.id, from, wanted, use != nullptr ? use->bytes : 0};
        const auto written = written_bytes_.find({value.id, from});
        choice.from_bytes = written == written_bytes_.end() ? 0 : written->second;
        choice.seconds = cost_(choice);
        if (!best || choice.seconds < best->seconds) best = choice;
      }
    }
    failed_ = !best;
    if (failed_) return nullptr;
    std::set<Format> now = held;
    now.insert(wanted);
    formats[value.id] = now;
    return extend(path, *best);
  }

  const Program& program_;
  const Options& options_;
  Cost cost_;
  std::vector<int64_t> last_read_;
  std::map<std::pair<ValueId, Format>, size_t> written_bytes_;  // what formats of a value take
  mutable bool failed_ = false;
};

// Calls each distinct choice's cost once.
Cost remember(const Cost& cost) {
  using Key = std::tuple<const Impl*, size_t, size_t, ValueId, Format, Format>;
  auto known = std::make_shared<std::map<Key, double>>();
  return [known, cost](const Choice& c) {
    const Key key{c.row, c.begin, c.end, c.converted, c.from, c.to};
    const auto found = known->find(key);
    if (found != known->end()) return found->second;
    return known->emplace(key, cost(c)).first->second;
  };
}

// Keeps the `count` cheapest paths, in order; equal ones in order of arrival.
void keep_best(std::vector<PathRef>& paths, PathRef path, size_t count) {
  const auto at =
      std::upper_bound(paths.begin(), paths.end(), path,
                       [](const auto& a, const auto& b) { return seconds_of(a) < seconds_of(b); });
  if (size_t(at - paths.begin()) >= count) return;
  paths.insert(at, std::move(path));
  if (paths.size() > count) paths.pop_back();
}

void keep_best_states(std::map<Formats, std::vector<PathRef>>& states) {
  while (states.size() > kMostStates) {
    const auto worst =
        std::max_element(states.begin(), states.end(), [](const auto& a, const auto& b) {
          return seconds_of(a.second.front()) < seconds_of(b.second.front());
        });
    states.erase(worst);
  }
}

}  // namespace

std::vector<Choices> cheapest_covers(const Program& program, const Options& options,
                                     const Cost& cost, size_t count) {
  const size_t size = program.ops.size();
  const Walker walker(program, options, remember(cost));
  std::vector<std::map<Formats, std::vector<PathRef>>> states(size + 1);
  states[0][{}] = {nullptr};
  for (size_t position = 0; position < size; ++position) {
    keep_best_states(states[position]);
    for (const auto& [formats, paths] : states[position]) {
      for (const Candidate& candidate : options.at[position]) {
        for (const PathRef& path : paths) {
          Formats next = formats;
          PathRef longer = walker.take(path, candidate, next);
          if (!longer) break;  // the formats are the same for all of them
          keep_best(states[position + candidate.cover.ops][next], std::move(longer), count);
        }
      }
    }
    states[position].clear();
  }
  std::vector<PathRef> best;
  for (const auto& [formats, paths] : states[size]) {
    for (const PathRef& path : paths) {
      if (PathRef done = walker.finish(path, formats)) keep_best(best, std::move(done), count);
    }
  }
  std::vector<Choices> covers;
  for (const PathRef& path : best) covers.push_back(unroll(path));
  return covers;
}

namespace {

// Depth first, candidates in the order `allowed` gives at each depth; remembers dead ends.
class FirstPath {
 public:
  using Allowed = std::function<bool(const Candidate&, size_t depth)>;
  FirstPath(const Program& program, const Options& options, Allowed allowed)
      : options_(options),
        size_(program.ops.size()),
        walker_(program, options, [](const Choice&) { return 0.0; }),
        allowed_(std::move(allowed)) {}

  Choices find() {
    struct Frame {
      size_t position;
      Formats formats;
      PathRef path;
      size_t next = 0;  // candidate to try
    };
    std::vector<Frame> stack{{0, {}, nullptr, 0}};
    while (!stack.empty()) {
      Frame& frame = stack.back();
      deepest_ = std::max(deepest_, frame.position);
      if (frame.position == size_) {
        if (size_ == 0) return {};
        if (const PathRef done = walker_.finish(frame.path, frame.formats)) return unroll(done);
        stack.pop_back();
        continue;
      }
      const auto& candidates = options_.at[frame.position];
      if (frame.next == candidates.size()) {
        dead_.insert({frame.position, frame.formats});
        stack.pop_back();
        continue;
      }
      const Candidate& candidate = candidates[frame.next++];
      if (!allowed_(candidate, stack.size() - 1)) continue;
      Formats formats = frame.formats;
      const PathRef path = walker_.take(frame.path, candidate, formats);
      const size_t position = frame.position + candidate.cover.ops;
      if (!path || dead_.contains({position, formats})) continue;
      stack.push_back({position, std::move(formats), path, 0});
    }
    return {};
  }

  size_t deepest() const { return deepest_; }

 private:
  const Options& options_;
  size_t size_;
  Walker walker_;
  Allowed allowed_;
  std::set<std::pair<size_t, Formats>> dead_;
  size_t deepest_ = 0;
};

}  // namespace

Choices first_cover(const Program& program, const Options& options) {
  return FirstPath(program, options, [](const Candidate&, size_t) { return true; }).find();
}

Choices named_cover(const Program& program, const Options& options,
                    const std::vector<std::string>& names) {
  Choices choices = FirstPath(program, options, [&](const Candidate& candidate, size_t depth) {
                      return depth < names.size() && candidate.row->name == names[depth];
                    }).find();
  const auto rows = std::count_if(choices.begin(), choices.end(),
                                  [](const Choice& choice) { return choice.converted < 0; });
  return size_t(rows) == names.size() ? choices : Choices{};
}

size_t stuck_at(const Program& program, const Options& options) {
  FirstPath path(program, options, [](const Candidate&, size_t) { return true; });
  path.find();
  return path.deepest();
}

}  // namespace ridgeline
