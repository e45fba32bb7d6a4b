#include <memory>
#include <sstream>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/engine/train/run_folder.h"
#include "ridgeline/serve/options.h"

namespace ridgeline::cli {
namespace {

struct ServeFlags {
  serve::ServeOptions options;
  RunFlags run;
  std::string precision;
  double max_delay = 0, request_time = 30, idle_time = 75, drain_time = 30;  // ms; the others in s
  double poll = 0;                                                           // s
  int64_t max_body = 16, queue = 1024;                                       // MiB; requests
};

int run_serve(ServeFlags& flags) {
  serve::ServeOptions& options = flags.options;
  // With several devices, models are checked against the first.
  std::istringstream devices(flags.run.device);
  for (std::string device; std::getline(devices, device, ',');) options.devices.push_back(device);
  if (!options.devices.empty()) flags.run.device = options.devices.front();
  flags.run.apply(options.model.run);
  options.model.run.quiet = true;
  // Launches of a server are small, so more threads would mostly wait for each other.
  if (options.model.run.threads == 0) options.model.run.threads = 1;
  options.model.precision = parse_model_precision(flags.precision);
  const auto seconds = [](double value) {
    return std::chrono::seconds(std::max<int64_t>(1, int64_t(value)));
  };
  options.batch.max_delay = std::chrono::microseconds(int64_t(flags.max_delay * 1000));
  options.batch.queue.most_waiting = flags.queue;
  options.batch.io_threads = options.io_threads > 0 ? options.io_threads : available_threads();
  options.poll_time = std::chrono::milliseconds(int64_t(flags.poll * 1000));
  if (options.poll_time.count() > 0 && options.folder.empty()) {
    throw_error(ErrorKind::usage, "--poll looks at a folder of models: give --models DIR");
  }
  options.most_body = size_t(flags.max_body) << 20;
  options.most_tensors = 4 * options.most_body;
  options.request_time = seconds(flags.request_time);
  options.idle_time = seconds(flags.idle_time);
  options.drain_time = seconds(flags.drain_time);
  return serve::serve(options);
}

void declare_address(CLI::App& command, serve::ServeOptions& options) {
  command.add_option("--port", options.port, "port to listen on (8000); 0 is any that is free")
      ->check(CLI::Range(0, 65535).description(""))
      ->type_name("N");
  command
      .add_option("--host", options.host, "address to listen on (127.0.0.1: this machine alone)")
      ->type_name("ADDRESS");
  command
      .add_option("--token-file", options.token_file,
                  "bearer tokens, one a line, of which a request must send one")
      ->type_name("FILE");
  command.add_flag("--insecure", options.insecure,
                   "let other machines in without a token (for a network that is closed)");
}

void declare_batches(CLI::App& command, ServeFlags& flags) {
  serve::ServeOptions& options = flags.options;
  command
      .add_option("--max-batch", options.max_batch,
                  "samples computed together at most (64); plans are made for 1, 2, 4, ... of them")
      ->check(CLI::Range(1, 65536).description(""))
      ->type_name("N");
  command
      .add_option("--max-delay", flags.max_delay,
                  "milliseconds that a request waits for others to share its batch (0: it takes "
                  "those that wait already)")
      ->check(range(0, 10000))
      ->type_name("MS");
  command
      .add_option("--instances", options.batch.instances,
                  "copies of each model that compute at the same time (one for each device; of "
                  "small models on the CPU one for each thread of connections)")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  command
      .add_option("--queue", flags.queue,
                  "requests that may wait for a model (1024); more are answered 503")
      ->check(CLI::Range(1, 1 << 20).description(""))
      ->type_name("N");
}

void declare_limits(CLI::App& command, ServeFlags& flags) {
  serve::ServeOptions& options = flags.options;
  command.add_option("--io-threads", options.io_threads, "threads of connections (one a core)")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  command.add_option("--max-body", flags.max_body, "MiB of a request (16)")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  command.add_option("--max-connections", options.most_connections, "connections at a time (4096)")
      ->check(CLI::Range(1, 1 << 20).description(""))
      ->type_name("N");
  command
      .add_option("--request-time", flags.request_time,
                  "seconds to send a request or to take in a response (30)")
      ->check(range(1, 86400))
      ->type_name("S");
  command
      .add_option("--idle-time", flags.idle_time,
                  "seconds that a connection stays open between requests (75)")
      ->check(range(1, 86400))
      ->type_name("S");
  command
      .add_option("--drain-time", flags.drain_time,
                  "seconds after SIGTERM to answer what is under way (30)")
      ->check(range(1, 86400))
      ->type_name("S");
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ServeFlags>();
  serve::ServeOptions& options = flags->options;
  CLI::App* command =
      app.add_subcommand("serve", "answer requests over HTTP (Open Inference Protocol)");
  command
      ->add_option("model", options.models,
                   "model files or folders of runs; NAME=PATH or NAME:VERSION=PATH names them")
      ->type_name("");
  const auto paths = [&options] {
    std::vector<std::string> paths;
    for (const std::string& text : options.models) paths.push_back(text.substr(text.find('=') + 1));
    return paths;
  };
  action.files.reads(*command, "the model", paths, engine::RunFolder::file_names());
  action.files.reads(*command, "--token-file", options.token_file);
  command
      ->add_option("--models", options.folder,
                   "folder of models: NAME.safetensors, NAME.onnx, NAME/ of a run, NAME/VERSION/")
      ->type_name("DIR");
  command
      ->add_option(
          "--poll", flags->poll,
          "seconds between looks at that folder, to load what is new or has changed (never)")
      ->check(range(0.1, 86400))
      ->type_name("S");
  declare_address(*command, options);
  declare_batches(*command, *flags);
  declare_limits(*command, *flags);
  command
      ->add_option("--access-log", options.access_log,
                   "a line of JSON for each request is appended here; - is stderr")
      ->type_name("FILE");
  action.files.writes(*command, "--access-log", [&options] {
    std::vector<FileUses::File> files;
    if (!options.access_log.empty() && options.access_log != "-") {
      files.push_back({options.access_log, begins_with({"{\"time\":"}), false});
    }
    return files;
  });
  declare_model_precision(*command, flags->precision);
  command->add_flag("--strict", options.model.strict,
                    "refuse NaN and infinite weights, and say when a file has no checksums");
  flags->run.declare(*command);
  command->footer(
      "GET / is a page to try a model; /openapi.json describes every path; /metrics is for\n"
      "Prometheus. SIGHUP loads the models and tokens again; SIGTERM answers what is under way\n"
      "and ends with code 0. --threads is of each instance (1). --device cuda:0,cuda:1 spreads "
      "the\n"
      "instances over several devices.\n"
      "Examples:\n"
      "  ridgeline serve runs/fashion\n"
      "  ridgeline serve digits=runs/mnist houses=runs/houses --port 9000 --instances 2\n"
      "  ridgeline serve --models /srv/models --host 0.0.0.0 --token-file tokens\n"
      "  curl localhost:8000/v2/models/fashion");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return alone("serve", action, [&] { return run_serve(*flags); });
    };
  });
}

}  // namespace ridgeline::cli
