#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/engine/verify/verify.h"

namespace ridgeline::engine {

std::string to_text(const VerifyReport& report) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(
      out,
      "{}: {} steps of {} samples; relative errors against the CPU's fast kernels on one rank\n",
      report.data, report.steps, report.batch);
  for (const Comparison& c : report.comparisons) {
    fmt::format_to(out, "\n{} {}, {} step{}{}: {}\n", name(c.precision), c.what, c.steps,
                   c.steps == 1 ? "" : "s",
                   c.base == c.precision ? "" : fmt::format(", against {}", name(c.base)),
                   name(c.verdict));
    fmt::format_to(out, "  {:<28} {:>10} {:>10} {:>10} {:>21}\n", "tensor", "max norm", "2-norm",
                   "bound", "control (max, 2-norm)");
    for (const Comparison::Tensor& t : c.tensors) {
      fmt::format_to(out, "  {:<28} {:>10.2e} {:>10.2e} {:>10.2e} {:>10.2e} {:>10.2e}  {}\n",
                     t.name, t.max_norm, t.two_norm, t.bound, t.control_max, t.control,
                     name(t.verdict));
    }
    fmt::format_to(out, "  {:<28} {:>10.2e} {:>10} {:>10.2e}\n", "loss, worst step", c.worst_loss,
                   "", c.loss_bound);
  }
  const bool amplified =
      std::any_of(report.comparisons.begin(), report.comparisons.end(),
                  [](const Comparison& c) { return c.verdict == Verdict::amplified; });
  if (amplified) {
    text +=
        "\namplified: training itself enlarges roundings beyond the bound here. The control, one "
        "run\nwith first weights off by one rounding, drifts as far. A smaller learning rate "
        "enlarges less;\nAdam makes a whole step of a gradient that is rounding alone.\n";
  }
  if (report.between_precisions > 0) {
    fmt::format_to(out, "\nfor information: the two precisions differ by {:.2e} (2-norm)\n",
                   report.between_precisions);
  }
  for (const std::string& note : report.notes) fmt::format_to(out, "left out: {}\n", note);
  fmt::format_to(out, "{}\n", report.good() ? "pass" : "FAIL");
  return text;
}

std::string to_json_text(const VerifyReport& report) {
  using nlohmann::json;
  json all = {{"data", report.data},
              {"steps", report.steps},
              {"batch", report.batch},
              {"good", report.good()},
              {"between_precisions", report.between_precisions},
              {"left_out", report.notes},
              {"comparisons", json::array()}};
  for (const Comparison& c : report.comparisons) {
    json tensors = json::array();
    for (const Comparison::Tensor& t : c.tensors) {
      tensors.push_back({{"name", t.name},
                         {"max_norm", t.max_norm},
                         {"two_norm", t.two_norm},
                         {"bound", t.bound},
                         {"control_max", t.control_max},
                         {"control", t.control},
                         {"verdict", name(t.verdict)}});
    }
    all["comparisons"].push_back({{"what", c.what},
                                  {"precision", name(c.precision)},
                                  {"base_precision", name(c.base)},
                                  {"steps", c.steps},
                                  {"verdict", name(c.verdict)},
                                  {"worst_loss", c.worst_loss},
                                  {"loss_bound", c.loss_bound},
                                  {"losses", c.losses},
                                  {"tensors", tensors}});
  }
  return dump_json(all, 2) + "\n";
}

void launch_ranks(int ranks, const std::vector<std::string>& arguments) {
  // Ranks are not bound to cores: a rank with a GPU has a thread that waits for it and one that
  // communicates, which on one core would alternate.
  std::vector<std::string> words{"mpirun", "-n", std::to_string(ranks), "--bind-to", "none"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw_error(ErrorKind::comm, "cannot start mpirun: {}", std::strerror(errno));
  if (child == 0) {
    // Variables of Open MPI, which others ignore: for a check, more ranks than cores are fine, and
    // so is root.
    for (const char* variable :
         {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
          "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_orte_execute_quiet"}) {
      ::setenv(variable, "1", 0);
    }
    ::dup2(2, 1);
    ::execvp(pointers[0], pointers.data());
    ::_exit(errno == ENOENT ? 127 : 126);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    throw_error(ErrorKind::comm, "--ranks needs mpirun, which is not installed");
  }
  throw_error(ErrorKind::comm, "mpirun ended with {}",
              WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace ridgeline::engine
