#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/core/device_trace.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/ladder/ladder.h"
#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/mpi_info.h"
#include "ridgeline/prof/limit.h"
#include "ridgeline/prof/network.h"
#include "ridgeline/prof/roofs.h"
#include "ridgeline/prof/step_cost.h"
#include "ridgeline/prof/timeline.h"

namespace ridgeline::engine {

class Machine;
class Runner;

struct Quantiles {
  double p10 = 0, median = 0, p90 = 0;
  double mean = 0, least = 0, most = 0;
  int64_t count = 0;
};
Quantiles quantiles(std::vector<double> values);  // zeros when empty

// A GPU function as one of our kernels launches it, and how often in one pass.
struct LaunchUse {
  LaunchRecord launch;  // the first one
  int count = 0;
  double seconds = 0;  // of all launches of a pass
  double least = 0, most = 0;
};

// One step of the plan.
struct KernelProfile {
  std::string name;   // of the kernel
  std::string label;  // the name, with the variant that it launches here
  std::string what;   // the ops it covers: "linear + activation"
  size_t begin = 0, end = 0;
  Quantiles seconds;
  double share = 0;  // of the sum over all kernels
  prof::Work work;
  prof::RoofTimes roofs;
  double fraction = 0;            // of the roof that binds: its time over the median
  std::optional<double> balance;  // mean over maximum of the threads' busy time; 1: balanced
  std::optional<double> waiting;  // share of the threads' time spent in barriers
  std::vector<LaunchUse> launches;

  double intensity() const { return work.bytes > 0 ? work.flops / work.bytes : 0; }
};

// A call of the driver's API or a GPU function, over the whole program.
struct ApiUse {
  std::string name;
  int64_t calls = 0;
  double seconds = 0, share = 0;  // of all calls
  double least = 0, most = 0;     // of one call

  double mean() const { return calls > 0 ? seconds / double(calls) : 0; }
};

// Copies in one direction, or fills, over the whole program.
struct CopyUse {
  std::string kind;  // as in CopyRecord
  int64_t count = 0, bytes = 0, pageable_bytes = 0;
  double seconds = 0, least = 0, most = 0;

  double mean() const { return count > 0 ? seconds / double(count) : 0; }
  double rate() const { return seconds > 0 ? double(bytes) / seconds : 0; }
};

// The resources that the process has used so far, as the system counts them.
struct ProgramUse {
  double user = 0, system = 0, elapsed = 0;  // seconds, of all threads; since the process started
  int64_t peak_bytes = 0;                    // of resident memory
};

// The cost of exchanging the gradients of a step between ranks.
struct RankUse {
  int count = 1;
  prof::Network network;
  MpiInfo mpi;
  double bytes = 0;      // sent and received by each rank
  double predicted = 0;  // seconds, by the network alone
  double waited = 0;     // seconds in which a median rank could only wait
};

// The activity of a GPU while whole steps ran, without profiling except for the recording.
struct DeviceUse {
  double busy = 0;          // share of the time in which a launch or copy ran
  double concurrency = 0;   // launches at a time while any ran
  double overlap = 0;       // share of the copies' time in which a launch ran too
  double copy_overlap = 0;  // share of the copies' time in which another copy ran too
  double copy_share = 0;    // share of the time in which a copy ran
  double copy_rate = 0;     // bytes per second while a copy ran
  double copied_bytes = 0;
};

struct Profile {
  std::string subject;  // "training step of configs/fashion-mlp.toml"
  std::string device, machine, precision, data, plan_source;
  int threads = 0;
  int64_t batch = 0;
  int64_t passes = 0;  // over the kernels
  Quantiles total;     // seconds of a step, in passes without any profiling
  std::vector<KernelProfile> kernels;
  // The median pass over all kernels minus the sum of their medians: the time that other processes
  // took from the CPU. It is near zero on an idle machine.
  double interrupted = 0;
  double gaps = 0;  // total minus that pass; negative if kernels overlap
  std::optional<prof::Ceilings> ceilings;
  std::optional<prof::Limit> limit;  // of the whole step
  Precision unit = Precision::fp32;
  bool in_launches = false;       // kernels were timed by their launches inside whole steps
  std::vector<ApiUse> api;        // those that together take 90 % of the time
  double api_seconds = 0;         // of all calls
  std::vector<ApiUse> functions;  // of the GPU: those that together take 90 % of the time
  double function_seconds = 0;    // of all launches
  std::vector<CopyUse> copies;    // one per kind
  ProgramUse program;
  prof::StepCost cost;          // of the forward and backward passes, and of products
  double recorded_seconds = 0;  // from the first to the last of them, without pauses
  double paused_seconds = 0;    // of the recording
  std::optional<RankUse> ranks;
  std::optional<DeviceUse> device_use;
  std::string no_device_trace;           // why `api` and `launches` are missing for a GPU
  std::vector<std::string> explanation;  // how the GPU's time and the host's calls relate
  std::vector<std::string> advice;
  prof::Timeline timeline;  // of a few steps

  double kernel_seconds() const;
  // The slowest kernels that together take 90 % of the time, slowest first.
  std::vector<size_t> heaviest() const;
};

struct ProfileOptions {
  int64_t steps = 200;  // passes over the kernels, at most
  double seconds = 5;   // for all passes, about
  std::filesystem::path data;
  int64_t batch = 0;                         // of a model or ladder; 0: 256, or the ladder's
  std::shared_ptr<const data::DataSet> set;  // already loaded; else by config.data.name
  Communicator* ranks = nullptr;             // of a training step; null: alone
};

// Profiles an existing plan: runs its kernels many times with learning rates of zero. The inputs
// must be in place. Optimizer state that a step changes at any learning rate is changed.
Profile profile_runner(Machine& machine, Runner& runner, const Config& config,
                       const ProfileOptions& options);
// Profiles the training step of a config. Collective over options.ranks; each has its own profile.
Profile profile_training(const Config& config, const std::string& name,
                         const ProfileOptions& options);
// Profiles the inference call of a model file or of the folder of a run.
Profile profile_model(const std::filesystem::path& file, const ModelOptions& model,
                      const ProfileOptions& options);

// Profiles a ladder's network with random weights on random samples: the inference call, or the
// training step.
Profile profile_ladder(const Ladder& ladder, const Config& config, const ProfileOptions& options);

// Explains what the listed host calls do, and whether they add to the time of the GPU functions or
// wait for it. Empty without a trace.
std::vector<std::string> explain_calls(const Profile& profile);

std::vector<std::string> advise(const Profile& profile, const Program& program);

std::string to_text(const Profile& profile);
std::string to_json_text(const Profile& profile);

}  // namespace ridgeline::engine
