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
using ProfileOut = std::back_insert_iterator<std::string>;

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

std::string whole_percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

void put_kernels(ProfileOut out, const Profile& profile) {
  size_t wide = 6;
  for (const KernelProfile& kernel : profile.kernels) wide = std::max(wide, kernel.label.size());
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
        kernel.label, wide, 1e6 * seconds, 1e6 * kernel.seconds.p10, 1e6 * kernel.seconds.p90,
        whole_percent(kernel.share), engineering(kernel.work.flops), engineering(kernel.work.bytes),
        engineering(rate(kernel.work.flops, seconds)),
        engineering(rate(kernel.work.bytes, seconds)), kernel.intensity(),
        profile.ceilings ? prof::name(kernel.roofs.binding()) : "-",
        profile.ceilings ? whole_percent(kernel.fraction) : "-");
    if (kernel.balance) fmt::format_to(out, "  {:.2f}", *kernel.balance);
    fmt::format_to(out, "\n");
  }
  const auto rest = [&](const char* what, double seconds) {
    fmt::format_to(out, "{:<{}}  {:>9.2f} {:>26}\n", what, wide, 1e6 * seconds,
                   whole_percent(rate(seconds, profile.total.median)) + " of the step");
  };
  rest("interrupted", profile.interrupted);
  rest("gaps", profile.gaps);
  fmt::format_to(out, "{:<{}}  {:>9.2f} {:>9.2f} {:>9.2f}\n", "step, unprofiled", wide,
                 1e6 * profile.total.median, 1e6 * profile.total.p10, 1e6 * profile.total.p90);
}

// Prints how often each kernel was timed, and a summary of its times.
void put_passes(ProfileOut out, const Profile& profile) {
  size_t wide = 6;
  for (const KernelProfile& kernel : profile.kernels) wide = std::max(wide, kernel.label.size());
  fmt::format_to(out, "\n{:<{}}  {:>6} {:>12} {:>9} {:>9} {:>9}\n", "kernel", wide, "passes",
                 "total us", "mean", "min", "max");
  for (const KernelProfile& kernel : profile.kernels) {
    const Quantiles& q = kernel.seconds;
    fmt::format_to(out, "{:<{}}  {:>6} {:>12.1f} {:>9.2f} {:>9.2f} {:>9.2f}\n", kernel.label, wide,
                   q.count, 1e6 * q.mean * double(q.count), 1e6 * q.mean, 1e6 * q.least,
                   1e6 * q.most);
  }
}

void put_launches(ProfileOut out, const Profile& profile) {
  bool any = false;
  for (const KernelProfile& kernel : profile.kernels) any |= !kernel.launches.empty();
  if (!any) return;
  fmt::format_to(out,
                 "\n{:>9} {:>8} {:>9} {:>9} {:>9} {:>18} {:>14} {:>5} {:>9} {:>10}  GPU function "
                 "(kernel)\n",
                 "us", "launches", "mean", "min", "max", "grid", "block", "regs", "shared B",
                 "occupancy");
  for (const KernelProfile& kernel : profile.kernels) {
    for (const LaunchUse& use : kernel.launches) {
      const LaunchRecord& k = use.launch;
      fmt::format_to(out,
                     "{:>9.2f} {:>8} {:>9.2f} {:>9.2f} {:>9.2f} {:>18} {:>14} {:>5} {:>9} {:>6} "
                     "{:<3}  {} ({})\n",
                     1e6 * use.seconds, use.count, 1e6 * rate(use.seconds, use.count),
                     1e6 * use.least, 1e6 * use.most,
                     fmt::format("{}x{}x{}", k.grid[0], k.grid[1], k.grid[2]),
                     fmt::format("{}x{}x{}", k.block[0], k.block[1], k.block[2]), k.registers,
                     k.shared, whole_percent(k.occupancy), std::string(k.occupied_by).substr(0, 3),
                     k.name.substr(0, 90), kernel.name);
    }
  }
}

void put_uses(ProfileOut out, const std::vector<ApiUse>& uses) {
  fmt::format_to(out, "{:>12} {:>6} {:>9} {:>11} {:>11} {:>11}\n", "total us", "share", "count",
                 "mean", "min", "max");
  for (const ApiUse& use : uses) {
    fmt::format_to(out, "{:>12.1f} {:>6} {:>9} {:>11.2f} {:>11.2f} {:>11.2f}  {}\n",
                   1e6 * use.seconds, whole_percent(use.share), use.calls, 1e6 * use.mean(),
                   1e6 * use.least, 1e6 * use.most, use.name.substr(0, 90));
  }
}

void put_copies(ProfileOut out, const Profile& profile) {
  if (profile.copies.empty()) return;
  fmt::format_to(out,
                 "\ncopies of the whole program, start-up included\n{:>12} {:>9} {:>11} {:>11} "
                 "{:>11} {:>9} {:>9}\n",
                 "total us", "count", "mean", "min", "max", "B", "B/s");
  for (const CopyUse& use : profile.copies) {
    const double pageable = rate(double(use.pageable_bytes), double(use.bytes));
    fmt::format_to(out, "{:>12.1f} {:>9} {:>11.2f} {:>11.2f} {:>11.2f} {:>9} {:>9}  {}{}\n",
                   1e6 * use.seconds, use.count, 1e6 * use.mean(), 1e6 * use.least, 1e6 * use.most,
                   engineering(double(use.bytes)), engineering(use.rate()), use.kind,
                   pageable > 0 ? fmt::format(" ({} pageable)", whole_percent(pageable)) : "");
  }
}

void put_cost(ProfileOut out, const Profile& profile) {
  const prof::StepCost& cost = profile.cost;
  if (cost.flops() <= 0) return;
  std::string text;
  for (int i = 0; i < prof::kPasses; ++i) {
    const prof::PassCost& pass = cost.passes[size_t(i)];
    if (pass.bytes <= 0) continue;
    text += fmt::format("{}{} {}FLOP, {}B, {:.2f} us", text.empty() ? "" : "; ",
                        prof::name(prof::Pass(i)), engineering(pass.flops), engineering(pass.bytes),
                        1e6 * pass.seconds);
  }
  if (cost.joined_seconds > 0) {
    text += fmt::format("; kernels over several {:.2f} us", 1e6 * cost.joined_seconds);
  }
  fmt::format_to(out,
                 "passes      {}\nproducts    {} of the arithmetic; {} of the kernels' time is in "
                 "kernels with products\n",
                 text, whole_percent(rate(cost.product_flops, cost.flops())),
                 whole_percent(rate(cost.product_seconds, profile.kernel_seconds())));
}

json cost_json(const Profile& profile) {
  json passes;
  for (int i = 0; i < prof::kPasses; ++i) {
    const prof::PassCost& pass = profile.cost.passes[size_t(i)];
    passes[prof::name(prof::Pass(i))] = {
        {"flops", pass.flops}, {"bytes", pass.bytes}, {"us", 1e6 * pass.seconds}};
  }
  return {{"passes", passes},
          {"joined_us", 1e6 * profile.cost.joined_seconds},
          {"product_flops", profile.cost.product_flops},
          {"product_us", 1e6 * profile.cost.product_seconds}};
}

void put_outline(ProfileOut out, const Profile& profile) {
  const ProgramUse& use = profile.program;
  if (use.elapsed <= 0) return;
  fmt::format_to(out, "\nprogram     {:.2f} s elapsed, {:.2f} s user, {:.2f} s system; peak {}B\n",
                 use.elapsed, use.user, use.system, engineering(double(use.peak_bytes)));
}

void put_device(ProfileOut out, const Profile& profile) {
  if (profile.device_use) {
    const DeviceUse& use = *profile.device_use;
    fmt::format_to(
        out,
        "\nGPU         busy {} of the time; {:.2f} launches at a time; copies {}B at {}B/s, "
        "{} of their time beside a launch, {} beside another copy\n",
        whole_percent(use.busy), use.concurrency, engineering(use.copied_bytes),
        engineering(use.copy_rate), whole_percent(use.overlap), whole_percent(use.copy_overlap));
  }
  if (!profile.api.empty()) {
    fmt::format_to(out,
                   "\nhost calls that take 90 % of all calls' time, start-up included: all take "
                   "{:.2f} s, {} of the program\n",
                   profile.api_seconds,
                   whole_percent(rate(profile.api_seconds, profile.recorded_seconds)));
    put_uses(out, profile.api);
  }
  if (!profile.functions.empty()) {
    fmt::format_to(out, "\nGPU functions that take 90 % of their time: all take {:.2f} s\n",
                   profile.function_seconds);
    put_uses(out, profile.functions);
  }
  put_copies(out, profile);
  for (const std::string& line : profile.explanation) fmt::format_to(out, "why         {}\n", line);
  if (!profile.no_device_trace.empty()) {
    fmt::format_to(out, "\nlaunches and host calls are not listed: {}\n", profile.no_device_trace);
  }
}

json quantiles_json(const Quantiles& q) {
  return {{"p10", 1e6 * q.p10},
          {"median", 1e6 * q.median},
          {"p90", 1e6 * q.p90},
          {"count", q.count},
          {"total", 1e6 * q.mean * double(q.count)},
          {"mean", 1e6 * q.mean},
          {"min", 1e6 * q.least},
          {"max", 1e6 * q.most}};
}

json use_json(const ApiUse& use) {
  return {{"name", use.name},          {"calls", use.calls},
          {"us", 1e6 * use.seconds},   {"mean_us", 1e6 * use.mean()},
          {"min_us", 1e6 * use.least}, {"max_us", 1e6 * use.most},
          {"share", use.share}};
}

json copy_json(const CopyUse& use) {
  return {{"kind", use.kind},
          {"count", use.count},
          {"bytes", use.bytes},
          {"pageable_bytes", use.pageable_bytes},
          {"us", 1e6 * use.seconds},
          {"mean_us", 1e6 * use.mean()},
          {"min_us", 1e6 * use.least},
          {"max_us", 1e6 * use.most},
          {"bytes_per_second", use.rate()}};
}

json launch_json(const LaunchUse& use) {
  const LaunchRecord& k = use.launch;
  return {{"name", k.name},
          {"count", use.count},
          {"us", 1e6 * use.seconds},
          {"min_us", 1e6 * use.least},
          {"max_us", 1e6 * use.most},
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
                {"label", kernel.label},
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
  ProfileOut out(text);
  fmt::format_to(out, "{}: batch {}, {}, {}, {} thread{}; {} passes over {} kernels (plan: {})\n\n",
                 profile.subject, profile.batch, profile.device, profile.precision, profile.threads,
                 profile.threads == 1 ? "" : "s", profile.passes, profile.kernels.size(),
                 profile.plan_source);
  put_kernels(out, profile);
  std::string names;
  for (const size_t i : profile.heaviest()) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", profile.kernels[i].name,
                         whole_percent(profile.kernels[i].share));
  }
  fmt::format_to(out, "\n90 % of it  {}\n", names);
  if (profile.limit) {
    fmt::format_to(
        out, "limit       {:.2f} us a step, {}-bound: {} reached (ceilings measured {})\n",
        1e6 * profile.limit->seconds(), profile.limit->bound(),
        whole_percent(profile.limit->fraction(profile.total.median)), profile.ceilings->when());
  }
  put_cost(out, profile);
  if (profile.ranks) {
    const RankUse& use = *profile.ranks;
    fmt::format_to(out,
                   "ranks       {}: {}B a step each way over {} ({}): {:.2f} us by the network "
                   "alone, {:.2f} us waited for, {} of the step\n",
                   use.count, engineering(use.bytes), to_string(use.mpi),
                   prof::to_string(use.network), 1e6 * use.predicted, 1e6 * use.waited,
                   whole_percent(rate(use.waited, profile.total.median)));
  }
  put_passes(out, profile);
  put_launches(out, profile);
  put_device(out, profile);
  put_outline(out, profile);
  for (const std::string& line : profile.advice) fmt::format_to(out, "next        {}\n", line);
  return text;
}

std::string to_json_text(const Profile& profile) {
  json kernels = json::array(), heaviest = json::array(), api = json::array();
  for (const KernelProfile& kernel : profile.kernels) {
    kernels.push_back(kernel_json(kernel, profile.ceilings.has_value()));
  }
  for (const size_t i : profile.heaviest()) heaviest.push_back(profile.kernels[i].name);
  for (const ApiUse& use : profile.api) api.push_back(use_json(use));
  json functions = json::array(), copies = json::array();
  for (const ApiUse& use : profile.functions) functions.push_back(use_json(use));
  for (const CopyUse& use : profile.copies) copies.push_back(copy_json(use));
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
                   {"host_calls", api},
                   {"cost", cost_json(profile)},
                   {"program",
                    {{"user_s", profile.program.user},
                     {"system_s", profile.program.system},
                     {"elapsed_s", profile.program.elapsed},
                     {"peak_bytes", profile.program.peak_bytes}}}};
  if (!api.empty()) {
    document["host_calls_us"] = 1e6 * profile.api_seconds;
    document["program_us"] = 1e6 * profile.recorded_seconds;
    document["gpu_functions"] = functions;
    document["gpu_functions_us"] = 1e6 * profile.function_seconds;
    document["copies"] = copies;
    document["explanation"] = profile.explanation;
  }
  if (profile.ceilings) {
    document["ceilings"] = {{"flops", profile.ceilings->flops(profile.unit)},
                            {"memory_bandwidth", profile.ceilings->memory_bandwidth()},
                            {"host_bandwidth", profile.ceilings->host_bandwidth},
                            {"network_bandwidth", profile.ceilings->network_bandwidth}};
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
                       {"copy_copy_overlap", use.copy_overlap},
                       {"copy_share", use.copy_share},
                       {"copy_rate", use.copy_rate},
                       {"copied_bytes", use.copied_bytes}};
  }
  if (!profile.no_device_trace.empty()) document["no_device_trace"] = profile.no_device_trace;
  return dump_json(document, 2) + "\n";
}

}  // namespace ridgeline::engine
