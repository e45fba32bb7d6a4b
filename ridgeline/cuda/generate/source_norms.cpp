#include "ridgeline/cuda/generate/writer.h"

namespace ridgeline::cuda::generate {

// The rows of a strip of the batch in a normalisation phase of the grid.
constexpr int kNormRows = 16;

std::string Writer::norm_type(size_t l) const {
  const NetLayer& layer = net_.layers[l];
  return fmt::format("NormLayer<M, L{}, Kept, {}, {}, kBatch>", l, over_batch(layer),
                     layer.norm.centred());
}

void Writer::norm_types() {
  for (size_t l = 0; l < layers_; ++l) {
    if (normed(l)) line("using N{} = {};", l, norm_type(l));
  }
}

void Writer::norm_pointers() {
  for (size_t l = 0; l < layers_; ++l) {
    if (!normed(l)) continue;
    const MlpStepOps::Norm& norm = net_.layers[l].norm;
    line("Kept* const gamma{} = {};", l, pointer(norm.gamma(), "Kept"));
    line("Kept* const beta{} = {};", l, pointer(norm.beta(), "Kept"));
    if (norm.batch == nullptr) {
      line("const auto keep{} = [](int, Value, Value) {{}};", l);
      continue;
    }
    const BatchNorm& op = *norm.batch;
    const char *mean = type_name(op.running_mean.dtype), *var = type_name(op.running_var.dtype);
    line("{0}* const running_mean{1} = {2};", mean, l, pointer(op.running_mean, mean));
    line("{0}* const running_var{1} = {2};", var, l, pointer(op.running_var, var));
    line("i64* const batches{} = {};", l, pointer(op.batches, "i64"));
    line("const auto keep{} = [&](int column, Value mean, Value var) {{", l);
    line("  run_on(running_mean{} + column, mean, {});", l, number(op.momentum));
    line("  run_on(running_var{} + column, var * Value({}), {});", l,
         number(double(op.count()) / double(op.count() - 1)), number(op.momentum));
    line("  if (column == 0) *batches{} += 1;", l);
    line("}};");
  }
}

// `row`: the batch row at which z and its statistics begin. Strips have copies of a batch's
// statistics, because those of the grid exist only after a barrier.
std::string Writer::norm(size_t l, const char* row, bool in_phase) const {
  const MlpStepOps::Norm& norm = net_.layers[l].norm;
  const bool copies = copies_statistics(l) && !in_phase;
  return fmt::format("N{0}{{{1}, {2}, {3}, {4}, {5}, {6}, gamma{0}, beta{0}, {7}, {8}, {9}}}", l,
                     of("z", l), of(copies ? "own_m" : "m", l), of(copies ? "own_r" : "r", l),
                     copies ? of("m", l) : "nullptr", copies ? of("r", l) : "nullptr", row,
                     norm.batch != nullptr ? of("q", l) : "nullptr", of("p", l),
                     number(norm.epsilon()));
}

std::string Writer::norm_forward(size_t l, const char* rows, int parts, const char* row,
                                 const char* part) const {
  const bool strips = std::string(rows) == "row";
  return fmt::format(
      "{}.forward<{}, {}, kTransposedLd>({}, {}, {{{}, {}, {}}}, {}, {}, sums, keep{});",
      norm(l, row, !strips), strips ? 16 * plan_.strip_units : kNormRows, parts, rows, part,
      of("y", l), of("y", l, "t"), row, slopes_of(l), drop_of(l), l);
}

std::string Writer::norm_backward(size_t l, const char* rows, int parts, const char* row,
                                  const char* part) const {
  const bool strips = std::string(rows) == "row", shared = plan_.in_strip(l);
  const std::string to = shared ? dy_shared(l) : dy_rows_global(l) ? of("d", l) : "nullptr";
  return fmt::format("{}.backward<{}, {}, kTransposedLd, {}>({}, {}, {}, {{{}, {}, {}}}, sums);",
                     norm(l, shared ? row : "0", !strips),
                     strips ? 16 * plan_.strip_units : kNormRows, parts, dy_ld(l), rows, part,
                     shared ? dy_shared(l) : of("n", l), to, of("d", l, "t"), shared ? row : "0");
}

// Splits columns into parts of 64 or more, so that all blocks have work.
int Writer::norm_parts(size_t l) const {
  const int strips = units(net_.batch());
  return std::clamp(plan_.blocks / strips, 1, std::max(1, units(width(l)) / 4));
}

void Writer::norm_phase(size_t l, bool forward) {
  const int parts = norm_parts(l);
  line("// Layer {}'s {}.", l, forward ? "normalisation" : "gradient through its normalisation");
  open("");
  phase();
  line("#pragma unroll 1");
  open(fmt::format("for (int task = block; task < {}; task += kBlocks)",
                   units(net_.batch()) * parts));
  const std::string rows = fmt::format("{} * (task / {})", kNormRows, parts);
  const std::string part = fmt::format("task % {}", parts);
  line("{}", forward ? norm_forward(l, rows.c_str(), parts, "0", part.c_str())
                     : norm_backward(l, rows.c_str(), parts, "0", part.c_str()));
  line("__syncthreads();");
  close();
  close();
}

std::string Writer::norm_update(size_t l) {
  const MlpStepOps::Norm& norm = net_.layers[l].norm;
  const bool stores = net_.norm != nullptr;
  const auto tensor = [&](const char* name, const SgdUpdate* sgd, const AdamUpdate* adam) {
    const Value m = adam != nullptr ? adam->m : sgd != nullptr ? sgd->m : Value{};
    const Value v = adam != nullptr ? adam->v : Value{};
    return fmt::format("{{{}{}, {}, {}}}", name, l, pointer(m, "Value"), pointer(v, "Value"));
  };
  return fmt::format(
      "NormUpdate<M, Kept, Optimizer, {}, {}, {}, {}>{{{}, {}, {}, kOptimizer, &rates, {}, {}}}",
      width(l), up(width(l), 16), units(net_.batch()), stores,
      tensor("beta", norm.sgd_beta, norm.adam_beta),
      tensor("gamma", norm.sgd_gamma, norm.adam_gamma), of("p", l),
      stores ? of("gn", l) : "nullptr", stores ? "&squares" : "nullptr");
}

int Writer::norm_tasks(size_t l) const {
  const int64_t each = units(net_.batch()) <= 2 ? 32 : 8;
  return int((width(l) + each - 1) / each);
}

}  // namespace ridgeline::cuda::generate
