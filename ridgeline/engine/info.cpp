#include "ridgeline/engine/info.h"

#include <nlohmann/json.hpp>

#include "ridgeline/core/bf16_unit.h"
#include "ridgeline/core/cache_file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/data/locate.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/mpi_info.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/prof/peak_kernels.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

using nlohmann::json;

std::string cpu_features() {
#if defined(__x86_64__)
  std::string text;
  const auto add = [&](bool has, const char* name) {
    if (!has) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(__builtin_cpu_supports("sse4.2"), "sse4.2");
  add(__builtin_cpu_supports("avx"), "avx");
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  add(__builtin_cpu_supports("avx512bw"), "avx512bw");
  add(__builtin_cpu_supports("avx512vnni"), "avx512vnni");
  add(__builtin_cpu_supports("avx512bf16"), "avx512bf16");
  add(bf16_unit() == Bf16Unit::amx, "amx-bf16");
  return text;
#else
  return "";
#endif
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

json ceilings_json(const prof::Ceilings& ceilings) {
  json sizes = json::array();
  for (const prof::Bandwidth& entry : ceilings.bandwidths) {
    sizes.push_back({{"bytes", entry.bytes}, {"rate", entry.rate}});
  }
  return {{"fp32_flops", ceilings.fp32_flops},
          {"fp64_flops", ceilings.fp64_flops},
          {"tf32_flops", ceilings.tf32_flops},
          {"half_flops", ceilings.half_flops},
          {"bandwidths", sizes},
          {"launch_us", 1e6 * ceilings.launch_seconds},
          {"region_us", 1e6 * ceilings.region_seconds},
          {"host_bandwidth", ceilings.host_bandwidth},
          {"threads", ceilings.threads},
          {"date", ceilings.date},
          {"certain", ceilings.certain}};
}

std::string ceilings_text(const prof::Ceilings& ceilings) {
  std::string text =
      fmt::format("ceilings    {}FLOP/s fp32, {}FLOP/s fp64", engineering(ceilings.fp32_flops),
                  engineering(ceilings.fp64_flops));
  if (ceilings.tf32_flops > 0) {
    text += fmt::format(", {}FLOP/s tf32", engineering(ceilings.tf32_flops));
  }
  if (ceilings.half_flops > 0) {
    text += fmt::format(", {}FLOP/s {}", engineering(ceilings.half_flops),
                        ceilings.threads > 0 ? "bf16" : "bf16 and fp16");
  }
  text += fmt::format(" (measured {}", ceilings.when());
  if (ceilings.threads > 0) {
    text += ", " + counted(ceilings.threads, "thread");
  }
  text += ")\n";
  for (const prof::Bandwidth& entry : ceilings.bandwidths) {
    const bool memory = &entry == &ceilings.bandwidths.back();
    text += fmt::format("            {}B/s copied {}\n", engineering(entry.rate),
                        memory ? "in main memory" : "within " + engineering(entry.bytes) + "B");
  }
  if (ceilings.region_seconds > 0) {
    text += fmt::format("            {:.2f} us to start and join all threads\n",
                        1e6 * ceilings.region_seconds);
  }
  if (ceilings.launch_seconds > 0) {
    text += fmt::format("            {:.2f} us the shortest launch; {}B/s of pinned memory\n",
                        1e6 * ceilings.launch_seconds, engineering(ceilings.host_bandwidth));
  }
  return text;
}

std::string gpus_text(const DeviceSupport& support) {
  std::string text;
  const char* title = "GPUs        ";
  for (const std::string& gpu : support.devices) {
    text += fmt::format("{}{}\n", title, gpu);
    title = "            ";
  }
  if (support.devices.empty()) text += fmt::format("{}none: {}\n", title, support.refusal);
  if (!support.architectures.empty()) {
    text += fmt::format("            kernels built for {}\n", support.architectures);
  }
  if (const std::string generator = generator_support(); !generator.empty()) {
    text += fmt::format("            kernels generated with {}\n", generator);
  }
  return text;
}

}  // namespace

std::string version() { return RIDGELINE_VERSION; }

std::vector<std::pair<std::string, std::string>> environment() {
  std::vector<std::pair<std::string, std::string>> lines = {
      {"ridgeline", fmt::format("{} ({}, {})", version(), RIDGELINE_BUILD_TYPE, compiler())},
      {"date", prof::today()},
      {"features", fmt::format("{}; SIMD level {}", cpu_features(), prof::simd_level())}};
  for (const std::string& gpu : gpu_support().devices) lines.emplace_back("GPU", gpu);
  return lines;
}

std::string kernel_list() {
  std::string text = "| kernel | precisions | GPU | traits |\n| --- | --- | --- | --- |\n";
  for (const KernelTable& table : {inference_kernels(), all_kernels()}) {
    for (const Kernel& kernel : table) {
      std::string traits = describe(kernel.traits);
      if (kernel.converts) traits = "converts formats" + (traits.empty() ? "" : ", " + traits);
      text +=
          fmt::format("| `{}` | {} | {} | {} |\n", kernel.name, to_string(kernel.traits.precisions),
                      kernel.target == Device{}.kind ? "" : gpus_of(kernel.traits), traits);
    }
  }
  return text;
}

InfoReport info(const RunConfig& run, bool measure, Communicator* ranks) {
  const bool several = ranks != nullptr && ranks->size() > 1;
  Machine machine(run, several ? ranks : nullptr);
  std::string all_devices;
  for (const Device& device : devices()) {
    if (!all_devices.empty()) all_devices += ", ";
    all_devices += to_string(device);
  }
  const DeviceSupport gpus = gpu_support();
  const auto cache = cache_folder();
  const auto ceilings = measure ? machine.ceilings(true) : machine.kept_ceilings();

  InfoReport report;
  report.text = fmt::format(
      "ridgeline   {} ({}, {})\n"
      "machine     {}\n"
      "features    {}; SIMD level {}\n"
      "devices     {}; threads {}\n"
      "kernels     {}\n",
      version(), RIDGELINE_BUILD_TYPE, compiler(), machine.runtime().fingerprint(), cpu_features(),
      prof::simd_level(), all_devices, machine.threads(), machine.kernels().size());
  report.text += gpus_text(gpus);
  if (several) {
    report.text +=
        fmt::format("ranks       {} over {}\n", ranks->size(), to_string(mpi_info_of(*ranks)));
  }
  report.text += ceilings ? ceilings_text(*ceilings)
                          : "ceilings    not measured yet: ridgeline info --measure\n";
  report.text += fmt::format("caches      {}\n",
                             cache.empty() ? "none: set HOME or XDG_CACHE_HOME" : cache.string());
  json places = json::array();
  const char* title = "data        ";
  for (const data::Place& place : data::search_places({})) {
    std::error_code ignored;
    const bool there = std::filesystem::is_directory(place.folder, ignored);
    report.text += fmt::format("{}{} ({}{})\n", title, place.folder.string(), place.why,
                               there ? "" : ", not there");
    title = "            ";
    places.push_back({{"folder", place.folder.string()}, {"why", place.why}, {"exists", there}});
  }
  const json document{
      {"version", version()},
      {"build", RIDGELINE_BUILD_TYPE},
      {"compiler", compiler()},
      {"machine", machine.runtime().fingerprint()},
      {"features", cpu_features()},
      {"simd", prof::simd_level()},
      {"devices", all_devices},
      {"gpus",
       {{"found", gpus.devices}, {"architectures", gpus.architectures}, {"refusal", gpus.refusal}}},
      {"threads", machine.threads()},
      {"ranks", several ? json{{"count", ranks->size()}, {"mpi", to_json(mpi_info_of(*ranks))}}
                        : json(nullptr)},
      {"kernels", machine.kernels().size()},
      {"ceilings", ceilings ? ceilings_json(*ceilings) : json(nullptr)},
      {"cache", cache.string()},
      {"data", places}};
  report.json = dump_json(document, 2) + "\n";
  return report;
}

}  // namespace ridgeline::engine
