#include "ridgeline/plan/search.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ridgeline/plan/held_formats.h"

namespace ridgeline {
namespace {

const FormatUse* find_use(const std::vector<FormatUse>& uses, ValueId id) {
  const auto found =
      std::find_if(uses.begin(), uses.end(), [&](const FormatUse& use) { return use.value == id; });
  return found == uses.end() ? nullptr : &*found;
}

// A path through the search: a linked list whose beginning is shared by other paths. A node is a
// candidate or a conversion.
struct Path {
  std::shared_ptr<Path> before;
  const Candidate* candidate = nullptr;
  std::shared_ptr<const Choice> conversion;
  double own_seconds = 0;
  double seconds = 0;  // up to here

  Path(std::shared_ptr<Path> path, const Candidate* taken, std::shared_ptr<const Choice> converted,
       double own)
      : before(std::move(path)),
        candidate(taken),
        conversion(std::move(converted)),
        own_seconds(own),
        seconds((before ? before->seconds : 0.0) + own) {}
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
  // A list of many ops would overflow the stack if each node's destructor called the next one's.
  ~Path() {
    while (before && before.use_count() == 1) before = std::exchange(before->before, nullptr);
  }
};
using PathRef = std::shared_ptr<Path>;

double seconds_of(const PathRef& path) { return path ? path->seconds : 0.0; }

Choice choice_of(const Candidate& candidate) {
  return {candidate.kernel,
          candidate.begin,
          candidate.begin + candidate.cover.ops,
          candidate.cover,
          0,
          -1,
          {},
          {},
          0};
}

Choices unroll(const PathRef& path) {
  Choices choices;
  for (const Path* p = path.get(); p != nullptr; p = p->before.get()) {
    choices.push_back(p->conversion ? *p->conversion : choice_of(*p->candidate));
    choices.back().seconds = p->own_seconds;
  }
  std::reverse(choices.begin(), choices.end());
  return choices;
}

// One step of a path: a candidate (none at the end of the program) after the conversions it needs.
struct Move {
  std::vector<std::shared_ptr<const Choice>> conversions;
  const Candidate* candidate = nullptr;
  double seconds = 0;  // of the candidate
  HeldFormats after;

  PathRef append_to(PathRef path) const {
    for (const auto& conversion : conversions) {
      path = std::make_shared<Path>(path, nullptr, conversion, conversion->seconds);
    }
    if (candidate == nullptr) return path;
    return std::make_shared<Path>(path, candidate, nullptr, seconds);
  }
};

class Walker {
 public:
  Walker(const Program& program, const Options& options, Cost cost)
      : program_(program), options_(options), cost_(std::move(cost)) {
    for (const ValueInfo& info : program.values) {
      last_read_.push_back(info.role == Role::temp ? program.last_read(info.value.id)
                                                   : int64_t(program.ops.size()));
    }
    for (const Op& op : program.ops) {
      reads_.push_back(reads(op));
      writes_.push_back(writes(op));
    }
    for (const auto& candidates : options.at) {
      for (const Candidate& candidate : candidates) {
        // A conversion may read a format that only another conversion writes, for a reader.
        for (const auto* uses : {&candidate.cover.reads, &candidate.cover.writes}) {
          for (const FormatUse& use : *uses) format_bytes_[{use.value, use.format}] = use.bytes;
        }
      }
    }
  }

  // Returns the move that takes the candidate with values held in these formats; nothing if a
  // conversion that it needs is missing.
  std::optional<Move> take(const Candidate& candidate, const HeldFormats& held) {
    const size_t end = candidate.begin + candidate.cover.ops;
    if (options_.walked != nullptr) *options_.walked += candidate.cover.ops;
    Move move{{}, &candidate, 0, held};
    std::set<ValueId> written, touched;
    for (size_t op = candidate.begin; op < end; ++op) {
      for (const Value& value : reads_[op]) {
        if (written.contains(value.id)) continue;
        touched.insert(value.id);
        if (!convert(move, value, find_use(candidate.cover.reads, value.id))) return std::nullopt;
      }
      for (const Value& value : writes_[op]) written.insert(value.id);
    }
    move.seconds = seconds_of(candidate);
    for (const ValueId id : written) {
      const FormatUse* use = find_use(candidate.cover.writes, id);
      if (use != nullptr) {
        move.after.set(id, {use->format});
      } else {
        move.after.forget(id);
      }
    }
    // Only these values can have been read for the last time.
    touched.merge(written);
    for (const ValueId id : touched) {
      if (last_read_[size_t(id)] < int64_t(end)) move.after.forget(id);
    }
    return move;
  }

  // At the end every external value must be held in plain format.
  std::optional<Move> finish(const HeldFormats& held) {
    Move move{{}, nullptr, 0, held};
    bool possible = true;
    held.each([&](ValueId id, const HeldFormats::Set&) {
      possible = possible && convert(move, program_.info(id).value, nullptr);
    });
    return possible ? std::optional(std::move(move)) : std::nullopt;
  }

 private:
  // Adds the cheapest conversion that makes `value` available as `use` asks, if it is not yet.
  bool convert(Move& move, const Value& value, const FormatUse* use) {
    const Format wanted = use != nullptr ? use->format : Format{};
    const HeldFormats::Set& held = move.after.of(value.id);
    if (held.contains(wanted)) return true;
    std::shared_ptr<const Choice> best;
    for (const Format& from : held) {
      for (const Kernel* kernel : options_.conversions) {
        if (!kernel->converts(value, from, wanted)) continue;
        Choice choice{kernel, 0, 0, {}, 0, value.id, from, wanted, use != nullptr ? use->bytes : 0};
        if (!from.empty()) choice.from_bytes = format_bytes_.at({value.id, from});
        choice.seconds = seconds_of(choice);
        if (!best || choice.seconds < best->seconds) {
          best = std::make_shared<const Choice>(std::move(choice));
        }
      }
    }
    if (!best) return false;
    HeldFormats::Set now = held;
    now.insert(wanted);
    move.after.set(value.id, std::move(now));
    move.conversions.push_back(std::move(best));
    return true;
  }

  // Asks for the cost of each distinct choice once.
  double seconds_of(const Candidate& candidate) {
    const auto found = candidate_seconds_.find(&candidate);
    if (found != candidate_seconds_.end()) return found->second;
    return candidate_seconds_.emplace(&candidate, cost_(choice_of(candidate))).first->second;
  }
  double seconds_of(const Choice& conversion) {
    const Conversion key{conversion.kernel, conversion.converted, conversion.from, conversion.to};
    const auto found = conversion_seconds_.find(key);
    if (found != conversion_seconds_.end()) return found->second;
    return conversion_seconds_.emplace(key, cost_(conversion)).first->second;
  }

  const Program& program_;
  const Options& options_;
  Cost cost_;
  std::vector<int64_t> last_read_;
  std::vector<Values> reads_, writes_;  // by op
  std::map<std::pair<ValueId, Format>, size_t> format_bytes_;
  std::unordered_map<const Candidate*, double> candidate_seconds_;
  using Conversion = std::tuple<const Kernel*, ValueId, Format, Format>;
  std::map<Conversion, double> conversion_seconds_;
};

struct HashOf {
  size_t operator()(const HeldFormats& held) const { return held.hash(); }
};

// The cheapest paths to a position for each combination of held formats, in the order in which
// these were first found.
struct States {
  struct State {
    HeldFormats held;
    std::vector<PathRef> paths;
  };
  std::vector<State> all;
  std::unordered_map<HeldFormats, size_t, HashOf> index;

  std::vector<PathRef>& at(const HeldFormats& held) {
    const auto [entry, fresh] = index.emplace(held, all.size());
    if (fresh) all.push_back({held, {}});
    return all[entry->second].paths;
  }
  void keep_best();
};

// Keeps the `count` cheapest paths, in order; equal ones in order of arrival.
void keep_best(std::vector<PathRef>& paths, PathRef path, size_t count) {
  const auto at =
      std::upper_bound(paths.begin(), paths.end(), path,
                       [](const auto& a, const auto& b) { return seconds_of(a) < seconds_of(b); });
  if (size_t(at - paths.begin()) >= count) return;
  paths.insert(at, std::move(path));
  if (paths.size() > count) paths.pop_back();
}

void States::keep_best() {
  index.clear();  // no more paths reach this position
  if (all.size() <= kMostStates) return;
  std::stable_sort(all.begin(), all.end(), [](const State& a, const State& b) {
    return seconds_of(a.paths.front()) < seconds_of(b.paths.front());
  });
  all.resize(kMostStates);
}

}  // namespace

std::vector<Choices> cheapest_covers(const Program& program, const Options& options,
                                     const Cost& cost, size_t count) {
  const size_t size = program.ops.size();
  Walker walker(program, options, cost);
  std::vector<States> states(size + 1);
  states[0].at({}) = {nullptr};
  for (size_t position = 0; position < size; ++position) {
    States here = std::exchange(states[position], {});
    here.keep_best();
    for (const auto& [held, paths] : here.all) {
      for (const Candidate& candidate : options.at[position]) {
        const std::optional<Move> move = walker.take(candidate, held);
        if (!move) continue;
        std::vector<PathRef>& kept = states[position + candidate.cover.ops].at(move->after);
        for (const PathRef& path : paths) keep_best(kept, move->append_to(path), count);
      }
    }
  }
  std::vector<PathRef> best;
  for (const auto& [held, paths] : states[size].all) {
    const std::optional<Move> move = walker.finish(held);
    if (!move) continue;
    for (const PathRef& path : paths) keep_best(best, move->append_to(path), count);
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
      HeldFormats held;
      PathRef path;
      size_t next = 0;  // candidate to try
    };
    std::vector<Frame> stack{{0, {}, nullptr, 0}};
    while (!stack.empty()) {
      Frame& frame = stack.back();
      deepest_ = std::max(deepest_, frame.position);
      if (frame.position == size_) {
        if (size_ == 0) return {};
        if (const auto last = walker_.finish(frame.held)) {
          return unroll(last->append_to(frame.path));
        }
        stack.pop_back();
        continue;
      }
      const auto& candidates = options_.at[frame.position];
      if (frame.next == candidates.size()) {
        dead_[frame.position].insert(frame.held);
        stack.pop_back();
        continue;
      }
      const Candidate& candidate = candidates[frame.next++];
      if (!allowed_(candidate, stack.size() - 1)) continue;
      const auto move = walker_.take(candidate, frame.held);
      const size_t position = frame.position + candidate.cover.ops;
      if (!move || dead_[position].contains(move->after)) continue;
      stack.push_back({position, move->after, move->append_to(frame.path), 0});
    }
    return {};
  }

  size_t deepest() const { return deepest_; }

 private:
  const Options& options_;
  size_t size_;
  Walker walker_;
  Allowed allowed_;
  std::map<size_t, std::unordered_set<HeldFormats, HashOf>> dead_;  // by position
  size_t deepest_ = 0;
};

}  // namespace

Choices first_cover(const Program& program, const Options& options) {
  return FirstPath(program, options, [](const Candidate&, size_t) { return true; }).find();
}

Choices named_cover(const Program& program, const Options& options,
                    const std::vector<std::string>& names) {
  Choices choices = FirstPath(program, options, [&](const Candidate& candidate, size_t depth) {
                      return depth < names.size() && candidate.kernel->name == names[depth];
                    }).find();
  const auto kernels = std::count_if(choices.begin(), choices.end(),
                                     [](const Choice& choice) { return choice.converted < 0; });
  return size_t(kernels) == names.size() ? choices : Choices{};
}

size_t stuck_at(const Program& program, const Options& options) {
  FirstPath path(program, options, [](const Candidate&, size_t) { return true; });
  path.find();
  return path.deepest();
}

}  // namespace ridgeline
