// Preloaded (LD_PRELOAD) before the tool, this library kills a rank at a chosen MPI call, before it
// is made.
//   RIDGELINE_KILL_RANK=R RIDGELINE_KILL_CALL="Bcast 3"  at the third MPI_Bcast
//   RIDGELINE_KILL_AFTER=OUTPUT    not before there are results in OUTPUT.part, or OUTPUT itself
//   RIDGELINE_HOLD_INIT=FILE       MPI's start makes FILE.R and does not return
//   RIDGELINE_COUNT_CALLS=FILE     writes to FILE.R how many there were of each, in lines like
//   "Bcast 3"
#include <mpi.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

void wait_for_results() {
  const std::string output = variable("RIDGELINE_KILL_AFTER");
  const auto bytes = [](const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? int64_t(status.st_size) : 0;
  };
  constexpr int64_t kSome = 100;  // more than a header
  while (!output.empty() && bytes(output + ".part") < kSome && bytes(output) == 0) ::usleep(1000);
}

std::map<std::string, int> calls;

void count(const char* name) {
  const int number = ++calls[name];
  static const std::string fatal = variable("RIDGELINE_KILL_CALL");
  static const bool chosen =
      !fatal.empty() && variable("OMPI_COMM_WORLD_RANK") == variable("RIDGELINE_KILL_RANK");
  if (!chosen || std::string(name) + ' ' + std::to_string(number) != fatal) return;
  wait_for_results();
  ::raise(SIGKILL);
}

void write_counts() {
  const std::string file = variable("RIDGELINE_COUNT_CALLS");
  if (file.empty()) return;
  std::FILE* const out = std::fopen((file + '.' + variable("OMPI_COMM_WORLD_RANK")).c_str(), "w");
  if (out == nullptr) return;
  for (const auto& [name, number] : calls) std::fprintf(out, "%s %d\n", name.c_str(), number);
  std::fclose(out);
}

}  // namespace

extern "C" {

int MPI_Init_thread(int* count, char*** arguments, int wanted, int* provided) {
  if (const std::string file = variable("RIDGELINE_HOLD_INIT"); !file.empty()) {
    std::FILE* const out = std::fopen((file + '.' + variable("OMPI_COMM_WORLD_RANK")).c_str(), "w");
    if (out != nullptr) std::fclose(out);
    for (;;) ::pause();
  }
  return PMPI_Init_thread(count, arguments, wanted, provided);
}

int MPI_Barrier(MPI_Comm comm) {
  count("Barrier");
  return PMPI_Barrier(comm);
}

int MPI_Bcast(void* data, int elements, MPI_Datatype type, int root, MPI_Comm comm) {
  count("Bcast");
  return PMPI_Bcast(data, elements, type, root, comm);
}

int MPI_Allgather(const void* from, int sent, MPI_Datatype out, void* to, int received,
                  MPI_Datatype in, MPI_Comm comm) {
  count("Allgather");
  return PMPI_Allgather(from, sent, out, to, received, in, comm);
}

int MPI_Allreduce(const void* from, void* to, int elements, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  count("Allreduce");
  return PMPI_Allreduce(from, to, elements, type, op, comm);
}

int MPI_Isend(const void* data, int elements, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  count("Isend");
  return PMPI_Isend(data, elements, type, to, tag, comm, request);
}

int MPI_Irecv(void* data, int elements, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  count("Irecv");
  return PMPI_Irecv(data, elements, type, from, tag, comm, request);
}

int MPI_Finalize() {
  count("Finalize");
  write_counts();
  return PMPI_Finalize();
}
}
