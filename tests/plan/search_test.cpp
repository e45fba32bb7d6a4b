// Compares the planner's search with brute force, on random small programs with random kernels,
// formats and conversions. The brute force shares no code with the search.
#include "ridgeline/plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <random>

namespace ridgeline {
namespace {

using Random = std::mt19937_64;

int64_t draw(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

constexpr size_t kFormatBytes = 16;  // of a value in a format

// A random problem: ops in a chain with a second, arbitrary earlier operand each.
struct Problem {
  Program program;
  std::deque<Kernel> kernels;  // stable addresses
  Options options;
  std::map<std::tuple<const Kernel*, size_t, ValueId, Format, Format>, double> seconds;

  double cost(const Choice& c) const {
    // Whoever measures a conversion allocates its operands.
    EXPECT_EQ(c.from_bytes, c.from.empty() ? 0u : kFormatBytes);
    EXPECT_EQ(c.to_bytes, c.to.empty() ? 0u : kFormatBytes);
    return seconds.at({c.kernel, c.converted < 0 ? c.begin : 0, c.converted, c.from, c.to});
  }
};

const Format kFormats[] = {"", "a", "b"};

// Mostly plain, because otherwise hardly any problem would have a solution.
Format draw_format(Random& random) { return kFormats[std::max<int64_t>(0, draw(random, -4, 2))]; }

void add_program(Problem& problem, Random& random) {
  Program& program = problem.program;
  Values made{program.add_value("in", DType::fp32, {4}, Role::input)};
  const int64_t count = draw(random, 1, 6);
  for (int64_t i = 0; i < count; ++i) {
    const Value other = made[size_t(draw(random, 0, int64_t(made.size()) - 1))];
    const Role role = i + 1 == count || draw(random, 0, 3) == 0 ? Role::output : Role::temp;
    const Value out = program.add_value("v" + std::to_string(i), DType::fp32, {4}, role);
    program.add(ActivationGrad{ActivationKind::relu, other, made.back(), out});
    made.push_back(out);
  }
}

void add_candidate(Problem& problem, Random& random, size_t position) {
  const size_t left = problem.program.ops.size() - position;
  const size_t length = size_t(draw(random, 1, std::min<int64_t>(3, int64_t(left))));
  problem.kernels.push_back({"kernel", DeviceKind::cpu, {}, {}, {}, {}});
  Candidate candidate{&problem.kernels.back(), position, Cover::of(length), -1, false};
  for (size_t op = position; op < position + length; ++op) {
    for (const Value& value : reads(problem.program.ops[op])) {
      const Format format = draw_format(random);
      if (!format.empty()) candidate.cover.reads.push_back({value.id, format, kFormatBytes});
    }
    for (const Value& value : writes(problem.program.ops[op])) {
      const Format format = draw_format(random);
      if (!format.empty()) candidate.cover.writes.push_back({value.id, format, kFormatBytes});
    }
  }
  const double seconds = double(draw(random, 1, 20));
  problem.seconds[{candidate.kernel, position, -1, {}, {}}] = seconds;
  problem.options.at[position].push_back(candidate);
}

void add_conversions(Problem& problem, Random& random) {
  for (int64_t n = draw(random, 0, 5); n > 0; --n) {
    const Format from = kFormats[draw(random, 0, 2)], to = kFormats[draw(random, 0, 2)];
    problem.kernels.push_back({"convert",
                               DeviceKind::cpu,
                               {},
                               {},
                               {},
                               [=](const Value&, const Format& f, const Format& t) {
                                 return f == from && t == to && f != t;
                               }});
    const Kernel* kernel = &problem.kernels.back();
    problem.options.conversions.push_back(kernel);
    for (const ValueInfo& info : problem.program.values) {
      problem.seconds[{kernel, 0, info.value.id, from, to}] = double(draw(random, 0, 6));
    }
  }
}

void fill(Problem& problem, uint64_t seed) {
  Random random(seed);
  add_program(problem, random);
  problem.options.at.resize(problem.program.ops.size());
  for (size_t i = 0; i < problem.program.ops.size(); ++i) {
    for (int64_t n = draw(random, 0, 5); n > 0; --n) add_candidate(problem, random, i);
  }
  add_conversions(problem, random);
}

// Every way to continue from here, depth first; collects the totals.
class BruteForce {
 public:
  explicit BruteForce(const Problem& problem) : problem_(problem) {}

  std::vector<double> totals() {
    std::map<ValueId, std::set<Format>> held;
    held[0] = {""};
    walk(0, held, 0);
    std::sort(totals_.begin(), totals_.end());
    return totals_;
  }

 private:
  using Held = std::map<ValueId, std::set<Format>>;
  using Next = std::function<void(Held, double)>;

  static Format wanted(const std::vector<FormatUse>& uses, ValueId id) {
    for (const FormatUse& use : uses) {
      if (use.value == id) return use.format;
    }
    return "";
  }

  // Makes each (value, format) of `needs` from the i-th on available in the cheapest way, then
  // continues. The cheapest suffices, because the source format makes no difference afterwards.
  void supply(const std::vector<std::pair<ValueId, Format>>& needs, size_t i, Held held,
              double seconds, const Next& next) {
    if (i == needs.size()) return next(held, seconds);
    const auto& [id, format] = needs[i];
    if (!held[id].contains(format)) {
      double best = std::numeric_limits<double>::infinity();
      for (const Format& from : held[id]) {
        for (const Kernel* kernel : problem_.options.conversions) {
          const Value& value = problem_.program.info(id).value;
          if (!kernel->converts(value, from, format)) continue;
          best = std::min(best, problem_.seconds.at({kernel, 0, id, from, format}));
        }
      }
      if (best == std::numeric_limits<double>::infinity()) return;
      held[id].insert(format);
      seconds += best;
    }
    supply(needs, i + 1, held, seconds, next);
  }

  void walk(size_t position, const Held& held, double seconds) {
    const Program& program = problem_.program;
    if (position == program.ops.size()) {
      std::vector<std::pair<ValueId, Format>> needs;
      for (const ValueInfo& info : program.values) {
        if (info.role == Role::output) needs.push_back({info.value.id, ""});
      }
      return supply(needs, 0, held, seconds, [&](const Held&, double s) { totals_.push_back(s); });
    }
    for (const Candidate& candidate : problem_.options.at[position]) {
      const size_t end = position + candidate.cover.ops;
      std::vector<std::pair<ValueId, Format>> needs;
      std::set<ValueId> written;
      for (size_t op = position; op < end; ++op) {
        for (const Value& v : reads(program.ops[op])) {
          if (!written.contains(v.id)) needs.push_back({v.id, wanted(candidate.cover.reads, v.id)});
        }
        for (const Value& v : writes(program.ops[op])) written.insert(v.id);
      }
      const double own = problem_.seconds.at({candidate.kernel, position, -1, {}, {}});
      supply(needs, 0, held, seconds, [&](Held now, double s) {
        for (const ValueId id : written) now[id] = {wanted(candidate.cover.writes, id)};
        walk(end, now, s + own);
      });
    }
  }

  const Problem& problem_;
  std::vector<double> totals_;
};

double total(const Choices& choices) {
  double seconds = 0;
  for (const Choice& choice : choices) seconds += choice.seconds;
  return seconds;
}

TEST(Search, FindsWhatBruteForceFinds) {
  int solvable = 0, with_conversions = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Problem problem;
    fill(problem, seed);
    const std::vector<double> want = BruteForce(problem).totals();
    const auto got = cheapest_covers(
        problem.program, problem.options, [&](const Choice& c) { return problem.cost(c); }, 1);
    ASSERT_EQ(got.empty(), want.empty()) << "seed " << seed;
    ASSERT_EQ(first_cover(problem.program, problem.options).empty(), want.empty()) << seed;
    if (want.empty()) continue;
    ++solvable;
    EXPECT_DOUBLE_EQ(total(got.front()), want.front()) << "seed " << seed;
    for (const Choice& choice : got.front()) with_conversions += choice.converted >= 0;
  }
  // The generator must make interesting problems; otherwise the test shows nothing.
  EXPECT_GT(solvable, 500);
  EXPECT_GT(with_conversions, 200);
}

TEST(Search, ShortlistHoldsTheCheapestInOrder) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    Problem problem;
    fill(problem, seed);
    const std::vector<double> want = BruteForce(problem).totals();
    const auto got = cheapest_covers(
        problem.program, problem.options, [&](const Choice& c) { return problem.cost(c); }, 3);
    ASSERT_EQ(got.size(), std::min<size_t>(3, want.size())) << "seed " << seed;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_DOUBLE_EQ(total(got[i]), want[i]) << "seed " << seed << " place " << i;
    }
    compared += got.size() == 3;
  }
  EXPECT_GT(compared, 200);
}

TEST(Search, NamedCoverReproducesAChoiceAndRefusesAStrangeOne) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Problem problem;
    fill(problem, seed);
    size_t number = 0;
    for (Kernel& kernel : problem.kernels) kernel.name = "kernel" + std::to_string(number++);
    const auto got = cheapest_covers(
        problem.program, problem.options, [&](const Choice& c) { return problem.cost(c); }, 1);
    if (got.empty()) continue;
    std::vector<std::string> names;
    for (const Choice& choice : got.front()) {
      if (choice.converted < 0) names.push_back(choice.kernel->name);
    }
    const Choices again = named_cover(problem.program, problem.options, names);
    std::vector<std::string> repeated;
    for (const Choice& choice : again) {
      if (choice.converted < 0) repeated.push_back(choice.kernel->name);
    }
    EXPECT_EQ(repeated, names) << "seed " << seed;
    names.back() = "no such kernel";
    EXPECT_TRUE(named_cover(problem.program, problem.options, names).empty());
  }
}

}  // namespace
}  // namespace ridgeline
