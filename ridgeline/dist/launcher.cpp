#include "ridgeline/dist/launcher.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdlib>
#include <new>

namespace ridgeline::dist {
namespace {

constexpr const char* kLibrary = "libridgeline_mpi.so";

// Returns a number from the environment; -1 if it is unset or not a number.
int number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 0 && value < 1'000'000 ? int(value) : -1;
}

struct Variables {
  const char *by, *rank, *size;
};
// srun sets SLURM_STEP_NUM_TASKS for the step it launches; a batch script itself has none.
constexpr Variables kLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"PMI", "PMI_RANK", "PMI_SIZE"},  // MPICH, Intel MPI
    {"PMIx", "PMIX_RANK", "PMIX_SIZE"},
};

}  // namespace

std::optional<Launch> find_launch() {
  for (const Variables& variables : kLaunchers) {
    const int rank = number(variables.rank), size = number(variables.size);
    const bool only_pmix_knows = variables.by == std::string("PMIx") && size < 0;
    if (rank < 0 || (size < 0 && !only_pmix_knows)) continue;
    if (size == 1) return std::nullopt;
    return Launch{variables.by, rank, std::max(0, size)};
  }
  return std::nullopt;
}

std::unique_ptr<Transport> open_mpi(const Launch& launch) {
  const auto refuse = [&](const std::string& why) {
    throw_error(ErrorKind::comm,
                "started as rank {} of {} by {}, but {}; start a single process, or build with MPI",
                launch.rank, launch.size > 0 ? std::to_string(launch.size) : "several", launch.by,
                why);
  };
#ifndef RIDGELINE_HAVE_MPI
  refuse("this build has no MPI");
#endif
  // RTLD_GLOBAL, because Open MPI's own plugins look for its symbols there.
  errno = 0;
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr && errno == ENOMEM) throw std::bad_alloc();
  if (library == nullptr) refuse(dlerror());
  using Make = Transport* (*)();
  const auto make = reinterpret_cast<Make>(dlsym(library, "ridgeline_mpi_transport"));
  if (make == nullptr) refuse(fmt::format("{} is not ours", kLibrary));
  std::unique_ptr<Transport> transport(make());
  if (launch.size > 0 && transport->size() != launch.size) {
    refuse(fmt::format("{} sees {} rank{}: its launcher is another one", transport->library(),
                       transport->size(), transport->size() == 1 ? "" : "s"));
  }
  return transport;  // never closed, because MPI cannot be unloaded
}

}  // namespace ridgeline::dist
