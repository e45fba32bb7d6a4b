// Whole training steps by kernels written for the net: how long they take, and how long they take
// to compile.
//   generate_bench time [word] [precision] [all|planned]   nets whose names hold the word; with
//   `all`
//                                                  every place where strips may begin, with
//                                                  `planned` only the schedule that is chosen
//   generate_bench stamps NAME [precision] [chain]   where the blocks of a step spend their time
//   generate_bench source NAME [precision] [chain]   the source for a net of the list, for reading
//   generate_bench plan [word] [precision]   the schedules, with estimates; needs no GPU
//   generate_bench warm [word] [precision] [all|WAYS]   compiles what `time` will use, side by
//   side generate_bench call   inference calls of 784-128-128-128-10 in a graph generate_bench
//   compile [word] [precision]   registers, spills and seconds; needs no GPU
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "bench/gpu/generate_nets.h"
#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/generate/call.h"
#include "ridgeline/cuda/generate/compile.h"
#include "ridgeline/cuda/generate/gpu_function.h"
#include "ridgeline/cuda/generate/source.h"

namespace {

using namespace ridgeline;
using namespace ridgeline::cuda::generate;
using bench::kSteps;
using bench::Net;
using bench::nets;
using test::TrainingNet;

class NoDevice final : public Runtime {
 public:
  Device device() const override { return {DeviceKind::cuda, 0}; }
  std::string fingerprint() const override { return {}; }
  void* allocate(size_t) override { return nullptr; }
  void release(void*) noexcept override {}
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  void synchronize() override {}
  double time(const std::function<void()>&, double) override { return 0; }
};

struct Made {
  test::Case c;
  NetStep net;
  Schedule schedule;
  Source source;
};

// The case must outlive the step that points into it.
std::unique_ptr<Made> make(const TrainingNet& net, Precision precision, const Target& target,
                           int chain) {
  auto made = std::make_unique<Made>();
  TrainingNet own = net;
  own.masters = size_of(storage(precision)) == 2;
  made->c = test::training_case(own, storage(precision));
  made->c.program.precision = precision;
  const NoDevice none;
  made->net = match_net_step({made->c.program, 0, none});
  if (!made->net.refusal.empty()) {
    fmt::print("{}: {}\n", net.name, made->net.refusal);
    return nullptr;
  }
  made->schedule = choose_schedule(made->net, target, chain);
  if (!made->schedule.refusal.empty()) return nullptr;
  made->source = write_source(made->net, made->schedule);
  return made;
}

std::string describe(const Made& made) {
  std::string text = fmt::format("strips from {} by {}, {}% leave", made.schedule.chain,
                                 16 * made.schedule.strip_units, made.schedule.leaving);
  const auto add = [&](const char* what, const std::vector<ProductPlan>& plans) {
    text += fmt::format(" {}", what);
    for (const ProductPlan& p : plans)
      text +=
          fmt::format(" {}{}x{}/{}r{}p{}:{}({:.1f})", p.tiled ? "t" : "", p.tiled ? p.down : p.mt,
                      p.nt, p.split, p.ring, p.parts, p.tiles, p.cycles / 1755);
  };
  add("f", made.schedule.forward);
  add("b", made.schedule.backward);
  add("w", made.schedule.weights);
  return text;
}

class Memory {
 public:
  explicit Memory(const test::Case& c) {
    const test::Arrays arrays = c.inputs();
    for (const ValueInfo& info : c.program.values) {
      const Tensor& host = arrays.at(info.value.id);
      void* at = nullptr;
      cuda::check(cudaMalloc(&at, host.bytes() + 512), "memory");
      std::vector<std::byte> bytes(host.bytes());
      std::memcpy(bytes.data(), host.data, host.bytes());
      if (info.name == "lr") {
        for (int64_t i = 0; i < host.shape.numel(); ++i)
          reinterpret_cast<double*>(bytes.data())[i] = 1e-4;
      }
      if (info.name.ends_with(".m") || info.name.ends_with(".v"))
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
      cuda::check(cudaMemcpy(at, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "memory");
      arrays_.push_back(at);
    }
    cuda::check(cudaMalloc(&barrier_, 256), "memory");
    cuda::check(cudaMemset(barrier_, 0, 256), "memory");
  }
  void* barrier() const { return barrier_; }
  ~Memory() {
    for (void* array : arrays_) cudaFree(array);
    cudaFree(barrier_);
  }
  void* operator[](const Value& value) const { return arrays_[size_t(value.id)]; }

 private:
  std::vector<void*> arrays_;
  void* barrier_ = nullptr;
};

double time_net(const Made& made, const GpuFunction& function, Memory& memory) {
  void* space = nullptr;
  cuda::check(cudaMalloc(&space, made.source.workspace_bytes), "workspace");
  Args args{};
  size_t i = 0;
  for (const Value& value : made.source.arguments) args.p[i++] = memory[value];
  args.space = space;
  args.barrier = memory.barrier();
  args.steps = kSteps;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  std::vector<float> times;
  for (int pass = 0; pass < 3; ++pass) {
    cuda::check(cudaMemset(memory[made.net.tick->tick], 0, 4), "tick");
    cudaEventRecord(begin);
    function.launch(args, nullptr);
    cudaEventRecord(end);
    cuda::check(cudaEventSynchronize(end), "a launch");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms);
  }
  double loss[2] = {};
  cudaMemcpy(loss, memory[made.net.loss()], 8, cudaMemcpyDeviceToHost);
  cudaMemcpy(loss + 1, static_cast<double*>(memory[made.net.loss()]) + kSteps - 1, 8,
             cudaMemcpyDeviceToHost);
  cudaFree(space);
  std::sort(times.begin(), times.end());
  if (!(loss[1] == loss[1])) fmt::print("  loss is not a number\n");
  return double(times[times.size() / 2]) * 1e3 / double(kSteps);
}

constexpr std::pair<const char*, Precision> kTimedPrecisions[] = {
    {"bf16", Precision::bf16}, {"tf32", Precision::tf32}, {"fp32", Precision::fp32}};

// What `time` compares: the schedule as planned, and as other targets have it.
struct Way {
  const char* name;
  void (*change)(Target&);
  int chain = -1;
};
constexpr Way kWays[] = {
    {"planned", [](Target&) {}},
    {"without parts", [](Target& target) { target.parts = false; }},
    {"without tiles", [](Target& target) { target.parts = false, target.tiles = Tiles::never; }},
    {"wide strips", [](Target& target) { target.tiles = Tiles::wide_strips; }},
    {"narrow strips", [](Target& target) { target.wide = false; }},
    {"strips from 1", [](Target&) {}, 1},
    {"in turns", [](Target& target) { target.tickets = false; }},
    {"less L2 rate", [](Target& target) { target.l2_bytes = 2600; }},
    {"all states stay", [](Target& target) { target.leaving = 0; }},
    {"most leave", [](Target& target) { target.leaving = 85; }},
};

void time_all(const char* word, const char* only, const std::string& which, bool warm) {
  const bool all = which == "all";
  Target target;
  if (!warm) {
    cudaDeviceProp device{};
    cuda::check(cudaGetDeviceProperties(&device, 0), "the GPU");
    target.blocks = device.multiProcessorCount;
  }
  for (const Net& net : nets()) {
    if (word != nullptr && std::strstr(net.name, word) == nullptr) continue;
    for (const auto& [name, precision] : kTimedPrecisions) {
      if (only != nullptr && std::strcmp(only, name) != 0) continue;
      std::unique_ptr<Memory> memory;
      std::vector<std::string> before;
      const int fixed = int(std::size(kWays));
      for (int way = 0; way < fixed + (all ? int(net.net.widths.size()) : 0); ++way) {
        if (!all && !which.empty() && which.find(kWays[way].name) == which.npos) continue;
        Target now = target;
        if (way < fixed) kWays[way].change(now);
        const auto made =
            make(net.net, precision, now, way < fixed ? kWays[way].chain : way - fixed);
        if (made == nullptr || std::ranges::count(before, made->source.text) > 0) continue;
        before.push_back(made->source.text);
        if (all && made->schedule.cycles > 4e5) continue;
        const Compiled compiled = compile_or_take(made->source.text, "sm_90a");
        if (warm) continue;
        const GpuFunction function(compiled.code, made->source);
        if (memory == nullptr) memory = std::make_unique<Memory>(made->c);
        const double us = time_net(*made, function, *memory);
        fmt::print(
            "{} {} {}: {:.2f} us (est {:.2f}), compiled in {:.2f} s, {} registers, {} spilled, {} "
            "shared; {}\n",
            net.name, name, way < fixed ? kWays[way].name : "strips", us,
            made->schedule.cycles / 1755, compiled.seconds, function.registers(),
            function.local_bytes(), made->source.shared_bytes, describe(*made));
        std::fflush(stdout);
      }
    }
  }
}

// The source with a clock read before and after each barrier, summed over the steps of a launch.
std::string with_stamps(const std::string& source, size_t offset,
                        std::vector<std::string>& labels) {
  std::string out, last;
  bool inside = false;
  size_t from = 0;
  const auto stamp = [&](const std::string& label) {
    out += fmt::format(
        "if (threadIdx.x == 0) {{ u64 now; asm volatile(\"mov.u64 %0, %%globaltimer;\" : "
        "\"=l\"(now)); "
        "reinterpret_cast<u64*>(space + {})[block * 64 + {}] += now; }}\n",
        offset, labels.size());
    labels.push_back(label);
  };
  while (from < source.size()) {
    const size_t end = source.find('\n', from);
    const std::string text = source.substr(from, end - from);
    from = end + 1;
    if (text.find("for (i64 t = 0;") != text.npos) inside = true;
    if (text.find("//") != text.npos) last = text.substr(text.find("//") + 3);
    const bool arrives = text.find("barrier.arrive") != text.npos,
               waits = text.find("barrier.wait") != text.npos;
    const bool meets = text.find("    __syncthreads();") != text.npos;
    if (inside && arrives) stamp("end: " + last);
    out += text + '\n';
    if (inside && waits) stamp("  begun");
    if (inside && meets && (text.starts_with("        __sync") || text == "      __syncthreads();"))
      stamp("  at: " + last);
  }
  return out;
}

void stamp_net(const char* word, Precision precision, int chain) {
  for (const Net& net : nets()) {
    if (std::strcmp(net.name, word) != 0) continue;
    auto made = make(net.net, precision, {}, chain);
    if (made == nullptr) return;
    std::vector<std::string> labels;
    const size_t offset = made->source.workspace_bytes;
    made->source.text = with_stamps(made->source.text, offset, labels);
    const Compiled compiled = compile_or_take(made->source.text, "sm_90a");
    const GpuFunction function(compiled.code, made->source);
    Memory memory(made->c);
    char* space = nullptr;
    const int blocks = made->source.blocks;
    cuda::check(cudaMalloc(reinterpret_cast<void**>(&space), offset + size_t(blocks) * 512),
                "workspace");
    Args args{};
    size_t i = 0;
    for (const Value& value : made->source.arguments) args.p[i++] = memory[value];
    args.space = space;
    args.barrier = memory.barrier();
    args.steps = kSteps;
    for (int pass = 0; pass < 2; ++pass) {
      cuda::check(cudaMemset(memory[made->net.tick->tick], 0, 4), "tick");
      cuda::check(cudaMemset(space + offset, 0, size_t(blocks) * 512), "stamps");
      function.launch(args, nullptr);
      cuda::check(cudaDeviceSynchronize(), "a launch");
    }
    std::vector<uint64_t> sums(size_t(blocks) * 64);
    cuda::check(
        cudaMemcpy(sums.data(), space + offset, size_t(blocks) * 512, cudaMemcpyDeviceToHost),
        "stamps");
    cudaFree(space);
    fmt::print(
        "{}: {}; us from the first stamp of block 0: least, mean, most over blocks; {} registers, "
        "{} spilled\n",
        net.name, describe(*made), function.registers(), function.local_bytes());
    const uint64_t origin = sums[0];
    for (size_t k = 0; k < labels.size(); ++k) {
      double least = 1e30, most = -1e30, mean = 0;
      int count = 0;
      for (int b = 0; b < blocks; ++b) {
        const uint64_t sum = sums[size_t(b) * 64 + k];
        if (sum == 0) continue;
        const double us = double(int64_t(sum - origin)) / double(kSteps) * 1e-3;
        least = std::min(least, us), most = std::max(most, us), mean += us, ++count;
      }
      if (count > 0)
        fmt::print("  {:7.2f} {:7.2f} {:7.2f} ({:3}) {}\n", least, mean / count, most, count,
                   labels[k]);
    }
  }
}

void compile_all(const char* word, const char* only) {
  for (const Net& net : nets()) {
    if (word != nullptr && std::strstr(net.name, word) == nullptr) continue;
    for (const auto& [name, precision] : kTimedPrecisions) {
      if (only != nullptr && std::strcmp(only, name) != 0) continue;
      const auto made = make(net.net, precision, {}, -1);
      if (made == nullptr) continue;
      const Compiled compiled =
          Nvrtc::get().compile(made->source.text, "sm_90a", {"--ptxas-options=-v"});
      if (const char* folder = std::getenv("OUT")) {
        if (FILE* file =
                std::fopen(fmt::format("{}/{}-{}.cubin", folder, net.name, name).c_str(), "wb")) {
          std::fwrite(compiled.code.data(), 1, compiled.code.size(), file);
          std::fclose(file);
        }
      }
      fmt::print("{} {}: {:.2f} s; {}\n{}\n", net.name, name, compiled.seconds, describe(*made),
                 compiled.log);
    }
  }
}

void plan_all(const char* word, const char* only) {
  for (const Net& net : nets()) {
    if (word != nullptr && std::strstr(net.name, word) == nullptr) continue;
    for (const auto& [name, precision] : kTimedPrecisions) {
      if (only != nullptr && std::strcmp(only, name) != 0) continue;
      std::vector<std::string> before;
      for (const Way& way : kWays) {
        Target target;
        way.change(target);
        const auto made = make(net.net, precision, target, way.chain);
        if (made == nullptr || std::ranges::count(before, made->source.text) > 0) continue;
        before.push_back(made->source.text);
        fmt::print("{} {} {}: est {:.1f} us, {} MB, {} KB shared; {}\n", net.name, name, way.name,
                   made->schedule.cycles / 1755, made->source.workspace_bytes >> 20,
                   made->source.shared_bytes >> 10, describe(*made));
        if (only == nullptr) break;
      }
    }
  }
}

// Microseconds of an inference call in a CUDA graph of many.
void time_calls() {
  for (const auto& [name, precision] : kTimedPrecisions) {
    for (const int64_t n : {1, 8, 16, 64, 256, 1024}) {
      test::Case c = test::inference_case(n, {784, 128, 128, 128, 10}, storage(precision));
      c.program.precision = precision;
      const NoDevice none;
      const CallNet net = match_call({c.program, 0, none});
      if (!net.refusal.empty()) throw_error(ErrorKind::usage, "{}", net.refusal);
      const Source source = write_call(net);
      const Compiled compiled = compile_or_take(source.text, "sm_90a");
      const GpuFunction function(compiled.code, source);
      Memory memory(c);
      void* space = nullptr;
      cuda::check(cudaMalloc(&space, source.workspace_bytes), "workspace");
      Args args{};
      size_t i = 0;
      for (const Value& value : source.arguments) args.p[i++] = memory[value];
      args.space = space, args.barrier = memory.barrier(), args.steps = 1;
      cudaStream_t stream;
      cuda::check(cudaStreamCreate(&stream), "a stream");
      function.launch_other(kSpreadName, 132, args, stream);
      constexpr int kCalls = 200;
      cudaGraph_t graph;
      cudaGraphExec_t ready;
      cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "a graph");
      for (int call = 0; call < kCalls; ++call) {
        cuda::check(cudaMemsetAsync(memory[net.tick->tick], 0, 4, stream), "tick");
        function.launch(args, stream);
      }
      cuda::check(cudaStreamEndCapture(stream, &graph), "a graph");
      cuda::check(cudaGraphInstantiate(&ready, graph, 0), "a graph");
      cudaEvent_t begin, end;
      cudaEventCreate(&begin), cudaEventCreate(&end);
      float best = 1e9f;
      for (int pass = 0; pass < 5; ++pass) {
        cudaEventRecord(begin, stream);
        cuda::check(cudaGraphLaunch(ready, stream), "a graph");
        cudaEventRecord(end, stream);
        cuda::check(cudaEventSynchronize(end), "a launch");
        float ms = 0;
        cudaEventElapsedTime(&ms, begin, end);
        best = std::min(best, ms);
      }
      fmt::print("call of {} {}: {:.2f} us with a memset, {} registers, compiled in {:.2f} s\n", n,
                 name, best * 1e3 / kCalls, function.registers(), compiled.seconds);
      cudaFree(space);
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string how = argc > 1 ? argv[1] : "time";
  const char* word = argc > 2 ? argv[2] : nullptr;
  if (how == "source") {
    for (const Net& net : nets()) {
      if (word == nullptr || std::strcmp(net.name, word) != 0) continue;
      const Precision precision =
          argc > 3 && std::strcmp(argv[3], "tf32") == 0 ? Precision::tf32 : Precision::bf16;
      const auto made = make(net.net, precision, {}, argc > 4 ? std::atoi(argv[4]) : -1);
      if (made != nullptr) std::fputs(made->source.text.c_str(), stdout);
    }
    return 0;
  }
  if (how == "stamps" && word != nullptr) {
    const auto named = std::find_if(
        std::begin(kTimedPrecisions), std::end(kTimedPrecisions),
        [&](const auto& each) { return argc > 3 && std::strcmp(each.first, argv[3]) == 0; });
    stamp_net(word, named != std::end(kTimedPrecisions) ? named->second : Precision::bf16,
              argc > 4 ? std::atoi(argv[4]) : -1);
  } else if (how == "plan") {
    plan_all(word, argc > 3 ? argv[3] : nullptr);
  } else if (how == "call") {
    time_calls();
  } else if (how == "compile") {
    compile_all(word, argc > 3 ? argv[3] : nullptr);
  } else {
    time_all(word, argc > 3 ? argv[3] : nullptr, argc > 4 ? argv[4] : "", how == "warm");
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
