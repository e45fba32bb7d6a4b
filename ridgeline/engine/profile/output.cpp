#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/engine/profile/profile.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::engine {
namespace {

using nlohmann::json;
using Out = std::back_insert_iterator<std::string>;

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

void put_kernels(Out out, const Profile& profile) {
  size_t wide = 6;
  for (const KernelProfile& kernel : profile.kernels) wide = std::max(wide, kernel.name.size());
  const bool threads =
      std::any_of(profile.kernels.begin(), profile.kernels.end(),
                  [](const KernelProfile& kernel) { return kernel.balance.has_value(); });
  fmt::format_to(out, "{:<{}}  {:>9} {:>9} {:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>6}",
                 "kernel", wide, "us", "p10", "p90", "share", "FLOP", "B", "FLOP/s", "B/s",
                 "FLOP/B", "roof", "of it");
  fmt::format_to(out, "{}\n", threads ? "  threads" : "");
  for (const KernelProfile& kernel : profile.kernels) {
    const double seconds = kernel.seconds.median;
    fmt::format_to(
        out,
        "{:<{}}  {:>9.2f} {:>9.2f} {:>9.2f} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8.2f} {:>8} "
        "{:>6}",
        kernel.name, wide, 1e6 * seconds, 1e6 * kernel.seconds.p10, 1e6 * kernel.seconds.p90,
        percent(kernel.share), engineering(kernel.work.flops), engineering(kernel.work.bytes),
        engineering(rate(kernel.work.flops, seconds)),
        engineering(rate(kernel.work.bytes, seconds)), kernel.intensity(),
        profile.ceilings ? prof::name(kernel.roofs.binding()) : "-",
        profile.ceilings ? percent(kernel.fraction) : "-");
    if (kernel.balance) fmt::format_to(out, "  {:.2f}", *kernel.balance);
    fmt::format_to(out, "\n");
  }
  const auto rest = [&](const char* what, double seconds) {
    fmt::format_to(out, "{:<{}}  {:>9.2f} {:>26}\n", what, wide, 1e6 * seconds,
                   percent(rate(seconds, profile.total.median)) + " of the step");
  };
  rest("interrupted", profile.interrupted);
  rest("gaps", profile.gaps);
  fmt::format_to(out, "{:<{}}  {:>9.2f} {:>9.2f} {:>9.2f}\n", "step, unprofiled", wide,
                 1e6 * profile.total.median, 1e6 * profile.total.p10, 1e6 * profile.total.p90);
}

void put_launches(Out out, const Profile& profile) {
  bool any = false;
  for (const KernelProfile& kernel : profile.kernels) any |= !kernel.launches.empty();
  if (!any) return;
  fmt::format_to(out, "\n{:>9} {:>8} {:>18} {:>14} {:>5} {:>9} {:>10}  GPU function (kernel)\n",
                 "us", "launches", "grid", "block", "regs", "shared B", "occupancy");
  for (const KernelProfile& kernel : profile.kernels) {
    for (const LaunchUse& use : kernel.launches) {
      const LaunchRecord& k = use.launch;
      fmt::format_to(out, "{:>9.2f} {:>8} {:>18} {:>14} {:>5} {:>9} {:>6} {:<3}  {} ({})\n",
                     1e6 * use.seconds, use.count,
                     fmt::format("{}x{}x{}", k.grid[0], k.grid[1], k.grid[2]),
                     fmt::format("{}x{}x{}", k.block[0], k.block[1], k.block[2]), k.registers,
                     k.shared, percent(k.occupancy), std::string(k.occupied_by).substr(0, 3),
                     k.name.substr(0, 90), kernel.name);
    }
  }
}

void put_device(Out out, const Profile& profile) {
  if (profile.device_use) {
    const DeviceUse& use = *profile.device_use;
    fmt::format_to(
        out,
        "\nGPU         busy {} of the time; {:.2f} launches at a time; copies {}B at {}B/s, "
        "{} of their time beside a launch\n",
        percent(use.busy), use.concurrency, engineering(use.copied_bytes),
        engineering(use.copy_rate), percent(use.overlap));
  }
  if (!profile.api.empty()) {
    fmt::format_to(out,
                   "\nhost calls that take 90 % of all calls' time, start-up included: all take "
                   "{:.2f} s, {} of the program\n",
                   profile.api_seconds,
                   percent(rate(profile.api_seconds, profile.recorded_seconds)));
    for (const ApiUse& use : profile.api) {
      fmt::format_to(out, "{:>12.1f} us {:>6} {:>9} x  {}\n", 1e6 * use.seconds, percent(use.share),
                     use.calls, use.name);
    }
  }
  if (!profile.no_device_trace.empty()) {
    fmt::format_to(out, "\nlaunches and host calls are not listed: {}\n", profile.no_device_trace);
  }
}

json quantiles_json(const Quantiles& q) {
  return {{"p10", 1e6 * q.p10}, {"median", 1e6 * q.median}, {"p90", 1e6 * q.p90}};
}

json launch_json(const LaunchUse& use) {
  const LaunchRecord& k = use.launch;
  return {{"name", k.name},
          {"count", use.count},
          {"us", 1e6 * use.seconds},
          {"grid", {k.grid[0], k.grid[1], k.grid[2]}},
          {"block", {k.block[0], k.block[1], k.block[2]}},
          {"registers", k.registers},
          {"shared_bytes", k.shared},
          {"occupancy", k.occupancy},
          {"occupied_by", k.occupied_by}};
}

json ranks_json(const RankUse& use) {
  return {{"count", use.count},
          {"mpi", to_json(use.mpi)},
          {"bandwidth", use.network.bandwidth},
          {"latency_us", 1e6 * use.network.latency},
          {"bytes", use.bytes},
          {"predicted_us", 1e6 * use.predicted},
          {"waited_us", 1e6 * use.waited}};
}

json kernel_json(const KernelProfile& kernel, bool roofs) {
  json entry = {{"kernel", kernel.name},
                {"ops", kernel.what},
                {"begin", kernel.begin},
                {"end", kernel.end},
                {"us", quantiles_json(kernel.seconds)},
                {"share", kernel.share},
                {"flops", kernel.work.flops},
                {"bytes", kernel.work.bytes},
                {"flops_per_second", rate(kernel.work.flops, kernel.seconds.median)},
                {"bytes_per_second", rate(kernel.work.bytes, kernel.seconds.median)},
                {"intensity", kernel.intensity()}};
  if (roofs) {
    entry["roof"] = prof::name(kernel.roofs.binding());
    entry["roof_us"] = 1e6 * kernel.roofs.least();
    entry["fraction"] = kernel.fraction;
  }
  if (kernel.balance) entry["thread_balance"] = *kernel.balance;
  if (kernel.waiting) entry["thread_waiting"] = *kernel.waiting;
  if (kernel.work.regions > 0) entry["regions"] = kernel.work.regions;
  if (kernel.work.network_bytes > 0) entry["network_bytes"] = kernel.work.network_bytes;
  if (kernel.work.host_bytes > 0) entry["host_bytes"] = kernel.work.host_bytes;
  for (const LaunchUse& use : kernel.launches) entry["launches"].push_back(launch_json(use));
  return entry;
}

}  // namespace

std::string to_text(const Profile& profile) {
  std::string text;
  Out out(text);
  fmt::format_to(out, "{}: batch {}, {}, {}, {} thread{}; {} passes over {} kernels (plan: {})\n\n",
                 profile.subject, profile.batch, profile.device, profile.precision, profile.threads,
                 profile.threads == 1 ? "" : "s", profile.passes, profile.kernels.size(),
                 profile.plan_source);
  put_kernels(out, profile);
  std::string names;
  for (const size_t i : profile.heaviest()) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", profile.kernels[i].name,
                         percent(profile.kernels[i].share));
  }
  fmt::format_to(out, "\n90 % of it  {}\n", names);
  if (profile.limit) {
    fmt::format_to(
        out, "limit       {:.2f} us a step, {}-bound: {} reached (ceilings measured {})\n",
        1e6 * profile.limit->seconds(), profile.limit->bound(),
        percent(profile.limit->fraction(profile.total.median)), profile.ceilings->when());
  }
  if (profile.ranks) {
    const RankUse& use = *profile.ranks;
    fmt::format_to(out,
                   "ranks       {}: {}B a step each way over {} ({}): {:.2f} us by the network "
                   "alone, {:.2f} us waited for, {} of the step\n",
                   use.count, engineering(use.bytes), to_string(use.mpi),
                   prof::to_string(use.network), 1e6 * use.predicted, 1e6 * use.waited,
                   percent(rate(use.waited, profile.total.median)));
  }
  put_launches(out, profile);
  put_device(out, profile);
  for (const std::string& line : profile.advice) fmt::format_to(out, "next        {}\n", line);
  return text;
}

std::string to_json_text(const Profile& profile) {
  json kernels = json::array(), heaviest = json::array(), api = json::array();
  for (const KernelProfile& kernel : profile.kernels) {
    kernels.push_back(kernel_json(kernel, profile.ceilings.has_value()));
  }
  for (const size_t i : profile.heaviest()) heaviest.push_back(profile.kernels[i].name);
  for (const ApiUse& use : profile.api) {
    api.push_back({{"name", use.name},
                   {"calls", use.calls},
                   {"us", 1e6 * use.seconds},
                   {"share", use.share}});
  }
  json document = {{"subject", profile.subject},
                   {"device", profile.device},
                   {"machine", profile.machine},
                   {"precision", profile.precision},
                   {"threads", profile.threads},
                   {"batch", profile.batch},
                   {"passes", profile.passes},
                   {"plan_source", profile.plan_source},
                   {"us", quantiles_json(profile.total)},
                   {"interrupted_us", 1e6 * profile.interrupted},
                   {"gaps_us", 1e6 * profile.gaps},
                   {"kernels", kernels},
                   {"heaviest", heaviest},
                   {"kernels_timed_in_launches", profile.in_launches},
                   {"advice", profile.advice},
                   {"host_calls", api}};
  if (!api.empty()) {
    document["host_calls_us"] = 1e6 * profile.api_seconds;
    document["program_us"] = 1e6 * profile.recorded_seconds;
  }
  if (profile.ranks) document["ranks"] = ranks_json(*profile.ranks);
  if (profile.limit) {
    document["limit"] = {{"us", 1e6 * profile.limit->seconds()},
                         {"bound", profile.limit->bound()},
                         {"fraction", profile.limit->fraction(profile.total.median)},
                         {"ceilings_measured", profile.ceilings->date}};
  }
  if (profile.device_use) {
    const DeviceUse& use = *profile.device_use;
    document["gpu"] = {{"busy", use.busy},
                       {"concurrency", use.concurrency},
                       {"copy_overlap", use.overlap},
                       {"copy_rate", use.copy_rate},
                       {"copied_bytes", use.copied_bytes}};
  }
  if (!profile.no_device_trace.empty()) document["no_device_trace"] = profile.no_device_trace;
  return dump_json(document, 2) + "\n";
}

}  // namespace ridgeline::engine
