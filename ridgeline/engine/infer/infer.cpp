#include "ridgeline/engine/infer/infer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/infer/rank_context.h"
#include "ridgeline/engine/infer/report.h"
#include "ridgeline/engine/infer/stdin_input.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/rank_hooks.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/report/page.h"
#include "ridgeline/engine/signals.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline::engine {
namespace {

constexpr size_t kAhead = 4;  // chunks read ahead

InferFormat settle(InferFormat format, const std::filesystem::path& output) {
  if (format != InferFormat::automatic) return format;
  const auto ending = output.extension();
  if (ending == ".npy") return InferFormat::npy;
  if (ending == ".xlsx" || ending == ".xls" || ending == ".parquet" || ending == ".npz") {
    throw_error(ErrorKind::usage,
                "--output {}: results are written as CSV (.csv), JSON lines (.jsonl) or an array "
                "(.npy); name such a file",
                output.string());
  }
  return ending == ".json" || ending == ".jsonl" ? InferFormat::json : InferFormat::csv;
}

// Returns the part of a message that says where the results so far are.
std::string so_far(const OutputFile& output, int64_t samples) {
  if (samples == 0 || output.unfinished().empty()) return {};
  return fmt::format("the first {} {} in {}", counted(samples, "result"),
                     samples == 1 ? "is" : "are", output.unfinished());
}

// The run as seen by the root, or by a single process.
class RootRun {
 public:
  RootRun(RankContext& context, const InferOptions& options, SampleSource& source,
          const std::filesystem::path& output, dist::RankCommunicator* ranks,
          OutputFile::Recognise ours = is_infer_output)
      : context_(context),
        options_(options),
        ranks_(ranks),
        batch_(options.batch > 0 ? options.batch : context.usual_batch()),
        reader_(source, batch_, context.delivery == Delivery::scatter ? 0 : kAhead, event_),
        decoder_(context.loaded, source.coding()),
        output_(output, ours) {}

  // Returns the samples of a launch: fewer than requested if the input has no more.
  int64_t settle_batch() {
    const Chunk* first = nullptr;
    while ((first = reader_.peek()) == nullptr && !reader_.at_end()) event_.wait();
    if (first == nullptr) reader_.check();
    if (first == nullptr) {
      batch_ = 1;
    } else if (first->head().cut_short == 0) {
      batch_ = std::min(batch_, first->head().count);
    }
    return batch_;
  }

  InferReport run(const WriterOptions& writer_options, InferPage* page) {
    Workers workers(context_.loaded, decoder_, context_.worker_options(options_, batch_),
                    context_.clock, event_);
    std::optional<dist::Messages> messages;
    if (ranks_ != nullptr) messages.emplace(ranks_->transport());
    std::shared_ptr<ChunkRoot> root;  // shared with the watchdog's thread, like the writer
    const auto seen = [&](const ChunkResult& result) {
      if (page != nullptr) show(*page, result, root->kept(result.number));
    };
    const auto writer = std::make_shared<ResultWriter>(output_, writer_options, event_, seen);
    ChunkRoot::Options rules{context_.delivery, ranks_ != nullptr ? ranks_->size() : 1,
                             options_.survive, page != nullptr,
                             // echo measures the way to the other ranks
                             !options_.echo || ranks_ == nullptr,
                             [] { return SignalGuard::caught() != 0; }};
    root = std::make_shared<ChunkRoot>(reader_, workers, *writer, messages ? &*messages : nullptr,
                                       event_, context_.clock, rules);
    const Hooks hooks(ranks_, watch_hooks(root, writer));
    try {
      root->run();
    } catch (const Error& error) {
      const std::string rest = so_far(output_, writer->written());
      if (rest.empty() || error.kind() != ErrorKind::data) throw;
      throw Error(error.kind(), fmt::format("{}; {}", error.what(), rest));
    }
    if (SignalGuard::caught() != 0) return stop(*writer);
    if (writer_options.format == InferFormat::npy) {
      output_.rewrite_begin(writer->text().npy_header(writer->written()));
    }
    if (!writer->closed()) output_.finish();
    RankTimes own = workers.times();
    own.rank = context_.own.rank;
    own.host = context_.own.host;
    own.start = context_.own.start;
    own.results_out = context_.clock.now();
    InferReport report;
    report.ranks = root->finish(own);
    report.samples = writer->written();
    report.warnings = context_.loaded.warnings;
    return report;
  }

 private:
  dist::RankHooks watch_hooks(const std::weak_ptr<ChunkRoot>& root,
                              const std::weak_ptr<ResultWriter>& writer) {
    dist::RankHooks hooks;
    if (options_.survive) {
      hooks.lost = [root](int rank, const std::string& what) {
        write_stderr(fmt::format("ridgeline: warning: {}; its chunks go to others\n", what));
        if (const auto held = root.lock()) held->lose(rank);
        return true;
      };
    }
    hooks.before_exit = [writer] {
      if (const auto held = writer.lock()) held->flush_and_close();
    };
    hooks.advice = [this, writer] {
      const auto held = writer.lock();
      const std::string rest = held ? so_far(output_, held->written()) : std::string();
      return rest.empty() ? "start again; --survive goes on without lost ranks" : rest;
    };
    return hooks;
  }

  // Keeps what is written. It does not wait for other ranks: they may be gone, or else they end
  // with the root.
  InferReport stop(ResultWriter& writer) {
    InferReport report;
    report.stopped_by = SignalGuard::caught();
    report.samples = writer.written();
    report.unfinished = so_far(output_, report.samples);
    report.warnings = context_.loaded.warnings;
    if (ranks_ == nullptr) return report;
    writer.flush_and_close();
    ranks_->end(
        128 + report.stopped_by,
        "stopped by a signal" + (report.unfinished.empty() ? "" : "; " + report.unfinished));
  }

  void show(InferPage& page, const ChunkResult& result, const Chunk& chunk) {
    std::vector<uint8_t> samples;
    decoder_.decode(chunk, samples);
    const auto features = size_t(decoder_.features());
    const size_t classes = result.outputs.size() / result.labels.size();
    for (size_t r = 0; r < result.labels.size(); ++r) {
      page.add(result.first_sample + int64_t(r), result.labels[r],
               std::span(result.outputs).subspan(r * classes, classes),
               std::span(samples).subspan(r * features, features));
    }
  }

  RankContext& context_;
  const InferOptions& options_;
  dist::RankCommunicator* ranks_;
  Event event_;
  int64_t batch_;
  SourceReader reader_;
  Decoder decoder_;
  OutputFile output_;
};

void run_other_rank(RankContext& context, const InferOptions& options,
                    dist::RankCommunicator& ranks) {
  const int64_t batch = ranks.from_root(int64_t{0});
  Decoder decoder(context.loaded, SampleCoding::from_text(ranks.text_from_root({})));
  Event event;
  Workers workers(context.loaded, decoder, context.worker_options(options, batch), context.clock,
                  event);
  dist::Messages messages(ranks.transport());
  run_chunk_rank(workers, messages, event, context.clock, context.own, context.delivery,
                 context.wide(), options.trace);
}

// Every rank reads a part of the file and writes a part of the results; the root concatenates them.
InferReport run_shards(RankContext& context, const InferOptions& options,
                       const std::filesystem::path& input, const std::filesystem::path& output,
                       const WriterOptions& writer, dist::RankCommunicator& ranks) {
  if (output == "-") {
    throw_error(ErrorKind::usage,
                "--sharded-input: give an --output on a disk that all ranks share");
  }
  const auto part_of = [&](int rank) {
    std::filesystem::path part = output;
    part += fmt::format(".rank{}", rank);
    return part;
  };
  const auto source = open_shard(input, context.loaded, options.input, ranks);
  WriterOptions mine = writer;
  mine.header = ranks.is_root();
  InferReport report;
  {
    RootRun run(context, options, *source, part_of(ranks.rank()), nullptr, is_infer_part);
    run.settle_batch();
    report = run.run(mine, nullptr);
  }
  const std::vector<std::string> times = ranks.texts(report.ranks.front().to_json(options.trace));
  report.samples = ranks.reduce(report.samples, Reduce::sum);
  if (!ranks.is_root()) return report;
  OutputFile whole(output, is_infer_output);
  whole.keep();  // parts are deleted once appended: this file now holds their only copy
  for (int r = 0; r < ranks.size(); ++r) {
    whole.append_file(part_of(r));
    std::error_code ignored;
    std::filesystem::remove(part_of(r), ignored);
  }
  whole.finish();
  report.ranks.clear();
  for (const std::string& text : times) report.ranks.push_back(RankTimes::from_json(text));
  report.ranks.front().results_out = context.clock.now();
  return report;
}

// Computes the totals of the run from those of its ranks.
void sum_up(InferReport& report) {
  double ready = -1, out = 0;
  for (const RankTimes& rank : report.ranks) {
    out = std::max(out, rank.results_out);
    for (const DeviceTimes& device : rank.devices) {
      if (device.engine_ready >= 0 && (ready < 0 || device.engine_ready < ready)) {
        ready = device.engine_ready;
      }
    }
  }
  report.startup = std::max(0.0, ready);
  report.seconds = std::max(0.0, out - report.startup);
}

const char* format_name(InferFormat format) {
  return format == InferFormat::json ? "json" : format == InferFormat::npy ? "npy" : "csv";
}

const char* kind_name(OutputKind kind) {
  switch (kind) {
    case OutputKind::probabilities:
      return "probabilities";
    case OutputKind::logits:
      return "logits";
    case OutputKind::labels:
      return "labels";
    case OutputKind::values:
      return "values";
    default:
      return "the model's";
  }
}

// Lists the settings that must be equal on all ranks. Devices, decoders and credits may differ, and
// the root sends the batch and the input's form to the others.
std::string shared_settings(const InferOptions& options, const std::filesystem::path& output) {
  const auto& precision = options.model.precision;
  return fmt::format(
      "transport = {}\nlabels-only = {}\nformat = {}\nprecision = {}\nsharded-input = {}\necho = "
      "{}\n"
      "trace = {}\noutput-kind = {}\n",
      options.transport, !options.outputs, format_name(settle(options.format, output)),
      precision ? name(*precision) : "the model's", options.sharded_input, options.echo,
      options.trace, kind_name(options.kind));
}

WriterOptions writer_options(const RankContext& context, const InferOptions& options,
                             const std::filesystem::path& output) {
  WriterOptions writer;
  writer.format = settle(options.format, output);
  writer.kind = context.output_kind(options);
  if (!options.outputs) writer.kind = OutputKind::labels;
  writer.outputs = context.loaded.model.output().numel();
  writer.several_labels = context.several_labels();
  const bool probabilities = context.probabilities() || writer.several_labels;
  writer.letter = writer.kind == OutputKind::logits ? 'z' : probabilities ? 'p' : 'y';
  writer.quantiles = context.loaded.config.train.loss.quantiles;
  writer.wide = context.wide();
  if (context.loaded.preparation) {
    writer.target = &*context.loaded.preparation->target();
    writer.class_names = writer.target->classes;
  }
  if (writer.format == InferFormat::npy && (output == "-" || options.sharded_input)) {
    throw_error(ErrorKind::usage,
                "a .npy array says at its beginning how many samples it holds: give an --output on "
                "a disk, without --sharded-input");
  }
  return writer;
}

}  // namespace

std::string InferReport::to_json() const {
  nlohmann::json json{
      {"inputs", samples},      {"startup_seconds", startup},
      {"seconds", seconds},     {"inputs_per_second", seconds > 0 ? double(samples) / seconds : 0},
      {"transport", transport}, {"ranks", nlohmann::json::array()}};
  for (const RankTimes& rank : ranks) {
    json["ranks"].push_back(nlohmann::json::parse(rank.to_json(false)));
  }
  return dump_json(json, 2) + "\n";
}

InferReport infer(const std::filesystem::path& model, const std::filesystem::path& given_input,
                  const std::filesystem::path& output, const InferOptions& options,
                  Communicator* communicator) {
  if (given_input == "-" && options.sharded_input) {
    throw_error(ErrorKind::usage,
                "--sharded-input: every rank reads the input; give a file, not stdin");
  }
  std::optional<StdinInput> from_stdin;
  if (given_input == "-" && (communicator == nullptr || communicator->is_root())) {
    from_stdin.emplace();
  }
  const std::filesystem::path input = from_stdin ? from_stdin->path() : given_input;
  dist::RankCommunicator* ranks = several(communicator);
  if (ranks != nullptr) check_same_settings(*ranks, shared_settings(options, output));
  RankContext context(model, options, ranks);
  if (ranks != nullptr) check_same_model(*ranks, context.loaded.config, context.loaded.model);
  InferReport report;
  if (options.sharded_input && ranks != nullptr) {
    report = run_shards(context, options, input, output, writer_options(context, options, output),
                        *ranks);
    report.transport = "own parts";
    sum_up(report);
    return report;
  }
  if (ranks != nullptr && !ranks->is_root()) {
    run_other_rank(context, options, *ranks);
    return report;
  }
  if (!options.report.empty() && context.loaded.preparation &&
      input_dtype(*context.loaded.preparation) != DType::uint8) {
    throw_error(ErrorKind::usage, "--report shows images and texts, and this model takes neither");
  }
  const auto source = open_samples(input, context.loaded, options.input);
  std::optional<InferPage> page;
  if (!options.report.empty()) {
    check_page(options.report);
    page.emplace(context.loaded.model.output().numel(), context.loaded.model.input(),
                 context.probabilities());
  }
  const SignalGuard signals;
  RootRun run(context, options, *source, output, ranks);
  const int64_t batch = run.settle_batch();
  if (ranks != nullptr) {
    ranks->from_root(batch);
    ranks->text_from_root(source->coding().to_text());
  }
  report = run.run(writer_options(context, options, output), page ? &*page : nullptr);
  report.transport = name(context.delivery);
  if (report.stopped_by != 0) return report;
  sum_up(report);
  if (page) {
    page->write(options.report, report, model.string(), input.string(),
                Machine(context.devices.front()).runtime().fingerprint());
  }
  return report;
}

}  // namespace ridgeline::engine
