#include "ridgeline/engine/bench/deepbench.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/engine/bench/kernel_times.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/prof/ceilings.h"

namespace ridgeline::engine {
namespace {

enum class ConvPass { forward, grad_x, grad_w };
constexpr ConvPass kConvPasses[] = {ConvPass::forward, ConvPass::grad_x, ConvPass::grad_w};
const char* pass_name(ConvPass pass) {
  constexpr const char* kNames[] = {"forward", "grad x", "grad w"};
  return kNames[size_t(pass)];
}

// Commands write "rnn-relu" for rnn_relu.
CellKind cell_of(std::string text) {
  std::ranges::replace(text, '-', '_');
  for (const CellKind kind :
       {CellKind::rnn_tanh, CellKind::rnn_relu, CellKind::lstm, CellKind::gru}) {
    if (text == name(kind)) return kind;
  }
  throw_error(ErrorKind::usage, "'{}' is no cell", text);
}

// Operands have the role of weights, which are timed on random numbers.
Program conv_program(const DeepbenchConv& conv, ConvPass pass, Precision precision) {
  Program program;
  program.precision = precision;
  const DType dtype = storage(precision);
  Conv2dShape shape;
  shape.in = {conv.c, conv.h, conv.w};
  shape.k = conv.k;
  shape.window.h = {conv.kh, conv.stride, conv.pad};
  shape.window.w = {conv.kw, conv.stride, conv.pad};
  const auto images = [&](const char* text, const Image& image, Role role) {
    return program.add_value(text, dtype, {conv.n, image.numel()}, role);
  };
  const auto filters = [&](const char* text, Role role) {
    return program.add_value(text, dtype, shape.weight(), role);
  };
  switch (pass) {
    case ConvPass::forward: {
      const Value x = images("x", shape.in, Role::param), w = filters("w", Role::param);
      program.add(Conv2d{x, w, {}, images("y", shape.out(), Role::output), shape});
      break;
    }
    case ConvPass::grad_x: {
      const Value dy = images("dy", shape.out(), Role::param), w = filters("w", Role::param);
      program.add(Conv2dGradX{dy, w, images("dx", shape.in, Role::output), shape});
      break;
    }
    case ConvPass::grad_w: {
      const Value x = images("x", shape.in, Role::param);
      const Value dy = images("dy", shape.out(), Role::param);
      program.add(Conv2dGradW{x, dy, filters("dw", Role::output), {}, shape});
      break;
    }
  }
  return program;
}

// Chooses how recurrent layers are timed on a GPU if --kernels does not say: what the planner takes
// beside the library, without the kernels that exist only for ladders (gate by gate, x's product
// step by step, plain): they make ten thousand launches for a pass of 1500 steps.
void exclude_ladder_kernels(RnnBenchOptions& options) {
  if (!options.run.kernels.empty() || choose_device(options.run.device).is_host()) {
    return;
  }
  options.kernels = {"plan", "cudnn"};
  options.run.kernels = {"!cuda.rnn*.plain", "!cuda.rnn*.gate_products"};
  for (const char* way : {"one_product", "streams", "fused", "transposed"}) {
    options.run.kernels.push_back(fmt::format("!cuda.rnn.{}", way));
  }
}

class Bench {
 public:
  explicit Bench(const DeepbenchOptions& options)
      : options_(options), root_(options.ranks == nullptr || options.ranks->is_root()) {}

  std::vector<DeepbenchLine> run() {
    for (const std::string& part : parts()) {
      if (part == "gemm") gemms();
      if (part == "conv") convs();
      if (part == "rnn") rnns();
      if (part == "all-reduce") all_reduces();
    }
    return std::move(lines_);
  }

 private:
  std::vector<std::string> parts() const {
    const bool several = options_.ranks != nullptr && options_.ranks->size() > 1;
    if (options_.parts.empty()) {
      return several ? std::vector<std::string>{"all-reduce"}
                     : std::vector<std::string>{"gemm", "conv", "rnn"};
    }
    for (const std::string& part : options_.parts) {
      if ((part == "all-reduce") == several) continue;
      throw_error(ErrorKind::usage, "bench deepbench: part {} is measured by {}", part,
                  several ? "one process: start it without mpirun"
                          : "several ranks: start it with mpirun -n N");
    }
    return options_.parts;
  }

  template <typename Shape, typename Work>
  void each(const std::vector<Shape>& shapes, const Work& work) {
    for (size_t i = 0; i < shapes.size(); i += size_t(options_.take)) work(shapes[i]);
  }

  void add(DeepbenchLine line) {
    if (!root_) return;
    lines_.push_back(std::move(line));
    if (options_.each) options_.each(lines_.back());
  }

  double peak(Machine& machine) const {
    const auto ceilings = machine.ceilings();
    return ceilings ? ceilings->flops(options_.run.precision) : 0;
  }

  void gemms() {
    each(deepbench_gemms(), [&](const GemmShape& shape) {
      GemmBenchOptions options;
      options.run = options_.run;
      options.shapes = {shape};
      options.seconds = options_.seconds;
      for (const GemmBenchLine& line : bench_gemm(options)) {
        add({"gemm", fmt::format("m={} n={} k={}", shape.m, shape.n, shape.k), name(shape.op),
             line.way, line.kernel, line.vendor, line.us, line.us_min, line.flops_per_second,
             line.limit_fraction});
      }
    });
  }

  void convs() {
    Machine machine(options_.run);
    const double most = peak(machine);
    each(deepbench_convs(), [&](const DeepbenchConv& c) {
      const std::string shape =
          fmt::format("w={} h={} c={} n={} k={} filter={}x{} pad={} stride={}", c.w, c.h, c.c, c.n,
                      c.k, c.kw, c.kh, c.pad, c.stride);
      for (const ConvPass pass : kConvPasses) {
        const Program program = conv_program(c, pass, options_.run.precision);
        for (const WayTime& way : time_ways(program, machine, options_.seconds)) {
          const double rate = program.flops() / way.seconds;
          add({"conv", shape, pass_name(pass), way.way, way.kernel, way.vendor, 1e6 * way.seconds,
               1e6 * way.least, rate, most > 0 ? rate / most : 0});
        }
      }
    });
  }

  void rnns() {
    RnnBenchOptions options;
    options.run = options_.run;
    options.seconds = options_.seconds;
    exclude_ladder_kernels(options);
    Machine machine(options.run);
    each(deepbench_rnns(), [&](const DeepbenchRnn& shape) {
      options.cells = {cell_of(shape.cell)};
      options.hidden = {shape.hidden};
      options.batch = {shape.batch};
      options.steps = shape.steps;
      for (const RnnBenchLine& line : bench_rnn(options, machine)) {
        add(deepbench_line(shape, line));
      }
    });
  }

  // Times sums of host memory over this run's ranks, from a common start to the end of the last
  // rank.
  void all_reduces() {
    Communicator* ranks = options_.ranks;
    each(deepbench_all_reduces(), [&](int64_t count) {
      std::vector<float> values(size_t(count), 1), sums(size_t(count), 0);
      std::vector<double> seconds;
      const Clock total;
      while (ranks->from_root(seconds.size() < 4 || total.seconds() < options_.seconds)) {
        ranks->barrier();
        const Clock clock;
        ranks->all_reduce(values.data(), sums.data(), count, DType::fp32, Reduce::sum, DType::fp32);
        seconds.push_back(ranks->reduce(clock.seconds(), Reduce::max));
      }
      if (sums.back() != float(ranks->size())) {
        throw_error(ErrorKind::numeric, "bench deepbench: a sum of {} values is wrong", count);
      }
      std::sort(seconds.begin() + 1, seconds.end());  // the first one also faults in the pages
      const double median = seconds[1 + (seconds.size() - 1) / 2];
      add({"all-reduce", fmt::format("count={} ranks={}", count, ranks->size()), "sum", "ranks", "",
           false, 1e6 * median, 1e6 * seconds[1], 4.0 * double(count) / median, 0});
    });
  }

  const DeepbenchOptions& options_;
  const bool root_;
  std::vector<DeepbenchLine> lines_;
};

}  // namespace

std::vector<DeepbenchLine> bench_deepbench(const DeepbenchOptions& options) {
  return Bench(options).run();
}

DeepbenchLine deepbench_line(const DeepbenchRnn& layer, const RnnBenchLine& line) {
  const std::string way = line.kernel.substr(line.kernel.find('.', line.kernel.find('.') + 1) + 1);
  return {"rnn",
          fmt::format("cell={} hidden={} batch={} steps={}", layer.cell, layer.hidden, layer.batch,
                      layer.steps),
          line.training ? "training" : "forward",
          line.kernel.starts_with("plan: ") ? "plan" : way,
          line.kernel,
          way.starts_with("cudnn") || way.starts_with("onednn"),
          line.median_us * double(layer.steps),
          line.min_us * double(layer.steps),
          line.flops_per_second,
          line.limit_fraction};
}

std::string deepbench_csv(const std::vector<DeepbenchLine>& lines) {
  std::string text = "part,shape,pass,way,kernel,vendor,us,rate,limit_fraction\n";
  for (const DeepbenchLine& line : lines) {
    text += fmt::format("{},{},{},{},{},{},{:.6g},{:.6g},{:.4g}\n", line.part, line.shape,
                        line.pass, line.way, line.kernel, int(line.vendor), line.us, line.rate,
                        line.limit_fraction);
  }
  return text;
}

std::string deepbench_json(const std::vector<DeepbenchLine>& lines, const RunConfig& run,
                           int ranks) {
  nlohmann::json all = nlohmann::json::array();
  for (const DeepbenchLine& line : lines) {
    all.push_back({{"part", line.part},
                   {"shape", line.shape},
                   {"pass", line.pass},
                   {"way", line.way},
                   {"kernel", line.kernel},
                   {"vendor", line.vendor},
                   {"us", line.us},
                   {"us_min", line.us_min},
                   {"rate", line.rate},
                   {"limit_fraction", line.limit_fraction}});
  }
  const nlohmann::json document{{"device", to_string(choose_device(run.device))},
                                {"precision", std::string(name(run.precision))},
                                {"threads", resolve_threads(run.threads)},
                                {"ranks", ranks},
                                {"lines", all}};
  return dump_json(document, 1) + "\n";
}

std::string deepbench_findings(const std::vector<DeepbenchLine>& lines) {
  struct Best {
    double ours = 0, vendor = 0;  // us
  };
  std::map<std::pair<std::string, std::string>, std::map<std::string, Best>> groups;
  for (const DeepbenchLine& line : lines) {
    if (line.part == "all-reduce") continue;
    Best& best = groups[{line.part, line.pass}][line.shape];
    double& us = line.vendor ? best.vendor : best.ours;
    us = us > 0 ? std::min(us, line.us) : line.us;
  }
  std::string text;
  for (const auto& [group, shapes] : groups) {
    int both = 0, first = 0;
    double logs = 0;
    for (const auto& [shape, best] : shapes) {
      if (best.ours <= 0 || best.vendor <= 0) continue;
      ++both;
      first += best.ours <= best.vendor;
      logs += std::log(best.vendor / best.ours);
    }
    if (both == 0) continue;
    text += fmt::format(
        "{} {}: ours is fastest for {} of {} shapes, {:.2f}x the library's speed in "
        "the geometric mean\n",
        group.first, group.second, first, both, std::exp(logs / both));
  }
  return text;
}

}  // namespace ridgeline::engine
