#include "ridgeline/plan/kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ridgeline {

bool RemainingOps::dead_after(const Value& value, size_t count) const {
  return program.info(value.id).role == Role::temp &&
         program.last_read(value.id) < int64_t(begin + count);
}

std::string_view name(Library library) {
  switch (library) {
    case Library::none:
      return "";
    case Library::onednn:
      return "oneDNN";
    case Library::cublaslt:
      return "cuBLASLt";
    case Library::cudnn:
      return "cuDNN";
    case Library::nccl:
      return "NCCL";
    case Library::mpi:
      return "CUDA-aware MPI";
    case Library::nvrtc:
      return "NVRTC";
  }
  return "";
}

KernelTable computing_in(Precisions precisions, KernelTable table) {
  for (Kernel& kernel : table) kernel.traits.precisions = precisions;
  return table;
}

std::string gpus_of(const Traits& traits) {
  if (traits.least_arch == 0) return "any";
  return fmt::format("sm_{}{}", traits.least_arch, traits.only_arch ? "a" : " and later");
}

std::string refuse(const Kernel& kernel, const Program& program, const Runtime& runtime) {
  if (kernel.target != runtime.device().kind) return "for another device";
  const Traits& traits = kernel.traits;
  if (!traits.takes(program.precision)) {
    return fmt::format("for runs in {}", to_string(traits.precisions));
  }
  if (!traits.runs_on(runtime.architecture())) return "for GPUs of " + gpus_of(traits);
  return {};
}

Cover offer(const Kernel& kernel, const RemainingOps& rest) {
  if (std::string why = refuse(kernel, rest.program, rest.runtime); !why.empty()) {
    return Cover::no(std::move(why));
  }
  return kernel.covers(rest);
}

std::string describe(const Traits& traits) {
  std::vector<std::string> facts;
  if (traits.library != Library::none)
    facts.push_back(fmt::format("{} {}", traits.vendor ? "is" : "calls", name(traits.library)));
  if (traits.demonstration) facts.push_back("demonstration");
  if (traits.fallback) facts.push_back("fallback");
  if (!traits.deterministic) facts.push_back("not deterministic");
  if (traits.concurrent) facts.push_back("concurrent");
  if (traits.between_graphs) facts.push_back("between graphs");
  if (traits.slow_to_query) facts.push_back("slow to query");
  if (traits.through_host) facts.push_back("through the host");
  return fmt::format("{}", fmt::join(facts, ", "));
}

}  // namespace ridgeline
