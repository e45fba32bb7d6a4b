#include <fmt/format.h>

#include <algorithm>

#include "ridgeline/engine/profile/profile.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/prof/cost.h"

// Advice on what to try next, from the numbers of a profile alone.
namespace ridgeline::engine {
namespace {

constexpr size_t kMost = 2;  // sentences

// The time that fusing two neighbours would save.
struct Fusion {
  size_t first = 0;
  double bytes = 0, seconds = 0;
};

Fusion best_fusion(const Profile& profile, const Program& program) {
  Fusion best;
  for (size_t i = 0; i + 1 < profile.kernels.size(); ++i) {
    const KernelProfile &a = profile.kernels[i], &b = profile.kernels[i + 1];
    if (a.end != b.begin || a.begin == a.end || b.begin == b.end) continue;  // a conversion
    const double joined = prof::span_bytes(program, a.begin, b.end);
    const double saved = a.work.bytes + b.work.bytes - joined;
    if (saved <= 0 || !profile.ceilings) continue;
    const double rate = profile.ceilings->bandwidth((a.work.bytes + b.work.bytes) / 2);
    const double seconds = rate > 0 ? saved / rate : 0;
    if (seconds > best.seconds) best = {i, saved, seconds};
  }
  return best;
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string micros(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.3g} us", 1e6 * seconds)
                        : fmt::format("{:.3g} ms", 1e3 * seconds);
}

void advise_quiet(const Profile& profile, std::vector<std::string>& advice) {
  const double share = profile.total.median > 0 ? profile.interrupted / profile.total.median : 0;
  if (share < 0.1) return;
  advice.push_back(
      fmt::format("Other processes took {} of the time: profile again on a machine that has "
                  "nothing else to do.",
                  percent(share)));
}

// Kernels skip work (zeros after a ReLU), find operands in caches and convolve with fewer
// multiplications (by a factor of 2.8 at most), but no arithmetic is three times as fast as the
// fastest measured, and no launch or barrier takes half the time of an empty one.
void advise_ceilings(const Profile& profile, std::vector<std::string>& advice) {
  constexpr double kTooMuch = 1.5, kTooMuchArithmetic = 3, kNoticed = 0.05;
  for (const size_t i : profile.heaviest()) {
    const KernelProfile& kernel = profile.kernels[i];
    const prof::Roof roof = kernel.roofs.binding();
    const bool proves =
        roof == prof::Roof::compute || roof == prof::Roof::launch || roof == prof::Roof::barrier;
    const double most = roof == prof::Roof::compute ? kTooMuchArithmetic : kTooMuch;
    if (!proves || kernel.fraction < most || kernel.share < kNoticed) continue;
    advice.push_back(fmt::format(
        "{} reaches {} of its {} roof: the ceilings of {} are too low, as on a machine that was "
        "busy then; measure them again with ridgeline info --measure.",
        kernel.name, percent(kernel.fraction), prof::name(roof), profile.ceilings->date));
    return;
  }
}

void advise_launches(const Profile& profile, std::vector<std::string>& advice) {
  double bound = 0;
  size_t count = 0;
  for (const KernelProfile& kernel : profile.kernels) {
    // A kernel far above that roof has another bottleneck, however low the other roofs are.
    if (kernel.roofs.binding() != prof::Roof::launch || kernel.fraction < 0.5) continue;
    bound += kernel.share;
    ++count;
  }
  if (bound < 0.3) return;
  advice.push_back(fmt::format(
      "{} of the kernels' time is in {} launch-bound kernel{}: no launch gets shorter than {} "
      "here, "
      "so fewer, larger ones help: a larger train.batch, or a kernel that fuses them.",
      percent(bound), count, count == 1 ? "" : "s", micros(profile.ceilings->launch_seconds)));
}

void advise_ranks(const Profile& profile, std::vector<std::string>& advice) {
  if (!profile.ranks || profile.total.median <= 0) return;
  const RankUse& ranks = *profile.ranks;
  const double share = ranks.waited / profile.total.median;
  if (share < 0.2) return;
  advice.push_back(fmt::format(
      "{} of a step ({}) waits for other ranks, where the network alone should take {}: {}.",
      percent(share), micros(ranks.waited), micros(ranks.predicted),
      ranks.predicted > 0.5 * ranks.waited
          ? "a larger train.batch, or run.reduce=bf16, sends less for the same work"
          : "ranks that share cores or a GPU wait for their turn, and all for the slowest"));
}

// Advises on copies between host and GPU by their memory, their size and what runs at the same
// time.
void advise_copies(const Profile& profile, std::vector<std::string>& advice) {
  constexpr double kNoticed = 0.1, kSlow = 0.7;
  constexpr int64_t kSmall = 64 << 10, kMany = 100;
  if (profile.device_use && profile.device_use->copy_share > kNoticed &&
      profile.device_use->overlap < 0.5) {
    advice.push_back(fmt::format(
        "Copies take {} of a step's time, {} of it beside no launch: data that stay on the device "
        "(data.resident), or a second plan (--device cuda:0,0), hide them.",
        percent(profile.device_use->copy_share), percent(1 - profile.device_use->overlap)));
    return;
  }
  const double roof = profile.ceilings ? profile.ceilings->host_bandwidth : 0;
  for (const CopyUse& use : profile.copies) {
    if (use.kind != "to the GPU" && use.kind != "to the host") continue;
    if (use.seconds < kNoticed * profile.recorded_seconds) continue;
    if (use.count >= kMany && use.bytes / use.count < kSmall) {
      advice.push_back(
          fmt::format("{} copies {} move {}B each on average: joined into fewer, "
                      "they would spend less time on their starts.",
                      use.count, use.kind, engineering(double(use.bytes / use.count))));
      return;
    }
    if (use.pageable_bytes > use.bytes / 2 && roof > 0 && use.rate() < kSlow * roof) {
      advice.push_back(
          fmt::format("Copies {} come at {}B/s, where pinned memory reaches {}B/s: the host's side "
                      "is pageable.",
                      use.kind, engineering(use.rate()), engineering(roof)));
      return;
    }
  }
}

void advise_gaps(const Profile& profile, std::vector<std::string>& advice) {
  // If the ranks of a GPU communicate through the host, their waiting time is also between the
  // kernels.
  const bool sends = profile.ranks && profile.device != "cpu";
  const double gaps = profile.gaps - (sends ? profile.ranks->waited : 0);
  const double share = profile.total.median > 0 ? gaps / profile.total.median : 0;
  if (share < 0.1) return;
  advice.push_back(
      fmt::format("{} of a step ({}) lies between the kernels: {}.", percent(share), micros(gaps),
                  profile.device == "cpu"
                      ? "the host hands over from kernel to kernel; kernels that cover more ops "
                        "leave fewer seams"
                      : "capture more steps in a graph, or take kernels that cover more ops"));
}

void advise_threads(const Profile& profile, std::vector<std::string>& advice) {
  for (const size_t i : profile.heaviest()) {
    const KernelProfile& kernel = profile.kernels[i];
    if (!kernel.balance || kernel.share < 0.1 || *kernel.balance > 0.85) continue;
    advice.push_back(fmt::format(
        "The threads share {} unevenly (mean over busiest {:.2f}): try another --threads, or a "
        "batch and layer sizes that divide by it.",
        kernel.name, *kernel.balance));
    return;
  }
}

void advise_heaviest(const Profile& profile, const Program& program,
                     std::vector<std::string>& advice) {
  const auto heaviest = profile.heaviest();
  if (heaviest.empty() || !profile.ceilings) return;
  const KernelProfile& kernel = profile.kernels[heaviest.front()];
  const prof::Roof roof = kernel.roofs.binding();
  const std::string head =
      fmt::format("{} ({}) takes {} and reaches {} of its {} roof: ", kernel.name, kernel.what,
                  percent(kernel.share), percent(kernel.fraction), prof::name(roof));
  constexpr double kNear = 0.8;
  if (kernel.fraction >= kNear && roof == prof::Roof::compute) {
    advice.push_back(head + "only less arithmetic or a lower precision makes it shorter.");
  } else if (kernel.fraction >= kNear && roof == prof::Roof::memory) {
    advice.push_back(head + "only moving fewer bytes makes it shorter.");
  } else if (roof == prof::Roof::compute) {
    advice.push_back(head +
                     "the time is in its arithmetic; a larger batch or multiples of the vector "
                     "width in the layer sizes may suit it better.");
  } else if (roof == prof::Roof::launch && kernel.fraction < 0.5) {
    advice.push_back(head +
                     "its launches are far longer than the shortest there are; a larger batch "
                     "fills the GPU better.");
  } else if (roof == prof::Roof::memory || roof == prof::Roof::barrier) {
    advice.push_back(head +
                     (roof == prof::Roof::memory
                          ? "its operands come from memory slower than a copy would."
                          : "it is too short to share out; fewer --threads may do as well."));
  }
  const Fusion fusion = best_fusion(profile, program);
  if (fusion.seconds > 0.02 * profile.total.median) {
    advice.push_back(
        fmt::format("Fusing {} with {} would keep {}B on chip and save up to {} a step ({}).",
                    profile.kernels[fusion.first].name, profile.kernels[fusion.first + 1].name,
                    engineering(fusion.bytes), micros(fusion.seconds),
                    percent(fusion.seconds / profile.total.median)));
  }
}

}  // namespace

std::vector<std::string> advise(const Profile& profile, const Program& program) {
  std::vector<std::string> advice;
  advise_quiet(profile, advice);
  if (profile.ceilings) advise_ceilings(profile, advice);
  advise_ranks(profile, advice);
  advise_copies(profile, advice);
  advise_gaps(profile, advice);
  if (profile.ceilings) advise_launches(profile, advice);
  advise_heaviest(profile, program, advice);
  advise_threads(profile, advice);
  if (advice.size() > kMost) advice.resize(kMost);
  if (advice.empty()) advice.push_back("Nothing stands out: every kernel is near its roof.");
  return advice;
}

}  // namespace ridgeline::engine
