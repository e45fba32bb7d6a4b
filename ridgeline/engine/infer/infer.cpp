#include "ridgeline/engine/infer/infer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/dist/rank_communicator.h"
#include "ridgeline/engine/infer/report.h"
#include "ridgeline/engine/infer/station.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/report/page.h"
#include "ridgeline/engine/signals.h"

namespace ridgeline::engine {
namespace {

constexpr size_t kAhead = 4;  // chunks read before anyone asks for them

InferFormat settle(InferFormat format, const std::filesystem::path& output) {
  if (format != InferFormat::automatic) return format;
  const auto ending = output.extension();
  return ending == ".json" || ending == ".jsonl" ? InferFormat::json : InferFormat::csv;
}

dist::RankCommunicator* several(Communicator* ranks) {
  if (ranks == nullptr || ranks->size() == 1) return nullptr;
  return dynamic_cast<dist::RankCommunicator*>(ranks);
}

// What the watch may call while a run lasts.
class Hooks {
 public:
  Hooks(dist::RankCommunicator* ranks, const dist::RankHooks& hooks) : ranks_(ranks) {
    if (ranks_ != nullptr) ranks_->set_hooks(hooks);
  }
  ~Hooks() {
    if (ranks_ != nullptr) ranks_->set_hooks({});
  }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

 private:
  dist::RankCommunicator* ranks_;
};

// The lines of a run's results so far, for a message.
std::string so_far(const OutputFile& output, int64_t rows) {
  if (rows == 0 || output.unfinished().empty()) return {};
  return fmt::format("the first {} {} in {}", counted(rows, "result"), rows == 1 ? "is" : "are",
                     output.unfinished());
}

// A run as the root, or as one process alone, sees it.
class RootRun {
 public:
  RootRun(Station& station, const InferOptions& options, ItemSource& source,
          const std::filesystem::path& output, dist::RankCommunicator* ranks,
          OutputFile::Recognise ours = is_infer_output)
      : station_(station),
        options_(options),
        ranks_(ranks),
        batch_(options.batch > 0 ? options.batch : station.usual_batch()),
        reader_(source, batch_, station.delivery == Delivery::scatter ? 0 : kAhead, bell_),
        decoder_(station.loaded, source.coding()),
        output_(output, ours) {}

  // Rows of a launch: fewer than asked for where the input has no more.
  int64_t settle_batch() {
    const Chunk* first = nullptr;
    while ((first = reader_.peek()) == nullptr && !reader_.at_end()) bell_.wait();
    if (first == nullptr) reader_.check();
    if (first == nullptr) {
      batch_ = 1;
    } else if (first->head().cut_short == 0) {
      batch_ = std::min(batch_, first->head().rows);
    }
    return batch_;
  }

  InferReport run(const WriterOptions& writer_options, InferPage* page) {
    Workers workers(station_.loaded, decoder_, station_.worker_options(options_, batch_),
                    station_.clock, bell_);
    std::optional<dist::Messages> messages;
    if (ranks_ != nullptr) messages.emplace(ranks_->transport());
    std::shared_ptr<ChunkRoot> root;  // shared with the watch's thread, as is the writer
    const auto seen = [&](const ChunkResult& result) {
      if (page != nullptr) show(*page, result, root->kept(result.number));
    };
    const auto writer = std::make_shared<ResultWriter>(output_, writer_options, bell_, seen);
    ChunkRoot::Options rules{station_.delivery, ranks_ != nullptr ? ranks_->size() : 1,
                             options_.survive, page != nullptr,
                             // what is measured is the way to the others
                             !options_.echo || ranks_ == nullptr,
                             [] { return SignalGuard::caught() != 0; }};
    root = std::make_shared<ChunkRoot>(reader_, workers, *writer, messages ? &*messages : nullptr,
                                       bell_, station_.clock, rules);
    const Hooks hooks(ranks_, watch_hooks(root, writer));
    try {
      root->run();
    } catch (const Error& error) {
      const std::string rest = so_far(output_, writer->rows());
      if (rest.empty() || error.kind() != ErrorKind::data) throw;
      throw Error(error.kind(), fmt::format("{}; {}", error.what(), rest));
    }
    if (SignalGuard::caught() != 0) return stop(*writer);
    if (!writer->closed()) output_.finish();
    RankTimes own = workers.times();
    own.rank = station_.own.rank;
    own.host = station_.own.host;
    own.start = station_.own.start;
    own.results_out = station_.clock.now();
    InferReport report;
    report.ranks = root->finish(own);
    report.rows = writer->rows();
    report.warnings = station_.loaded.warnings;
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
      if (const auto held = writer.lock()) held->seal();
    };
    hooks.advice = [this, writer] {
      const auto held = writer.lock();
      const std::string rest = held ? so_far(output_, held->rows()) : std::string();
      return rest.empty() ? "start again; --survive goes on without lost ranks" : rest;
    };
    return hooks;
  }

  // What is written stays. Other ranks are not waited for: they may be gone, and if not, they leave
  // with the root.
  InferReport stop(ResultWriter& writer) {
    InferReport report;
    report.stopped_by = SignalGuard::caught();
    report.rows = writer.rows();
    report.unfinished = so_far(output_, report.rows);
    report.warnings = station_.loaded.warnings;
    if (ranks_ == nullptr) return report;
    writer.seal();
    ranks_->end(
        128 + report.stopped_by,
        "stopped by a signal" + (report.unfinished.empty() ? "" : "; " + report.unfinished));
  }

  void show(InferPage& page, const ChunkResult& result, const Chunk& chunk) {
    std::vector<uint8_t> items;
    decoder_.decode(chunk, items);
    const auto features = size_t(decoder_.features());
    const size_t classes = result.outputs.size() / result.labels.size();
    for (size_t r = 0; r < result.labels.size(); ++r) {
      page.add(result.first_row + int64_t(r), result.labels[r],
               std::span(result.outputs).subspan(r * classes, classes),
               std::span(items).subspan(r * features, features));
    }
  }

  Station& station_;
  const InferOptions& options_;
  dist::RankCommunicator* ranks_;
  Bell bell_;
  int64_t batch_;
  SourceReader reader_;
  Decoder decoder_;
  OutputFile output_;
};

void run_other_rank(Station& station, const InferOptions& options, dist::RankCommunicator& ranks) {
  const int64_t batch = ranks.from_root(int64_t{0});
  Decoder decoder(station.loaded, ItemCoding::from_text(ranks.text_from_root({})));
  Bell bell;
  Workers workers(station.loaded, decoder, station.worker_options(options, batch), station.clock,
                  bell);
  dist::Messages messages(ranks.transport());
  run_chunk_rank(workers, messages, bell, station.clock, station.own, station.delivery,
                 station.wide(), options.trace);
}

// Every rank reads a part of the file and writes a part of the results; the root puts them
// together.
InferReport run_own_parts(Station& station, const InferOptions& options,
                          const std::filesystem::path& input, const std::filesystem::path& output,
                          const WriterOptions& writer, dist::RankCommunicator& ranks) {
  if (output == "-") {
    throw_error(ErrorKind::usage, "--own-part: give an --output on a disk that all ranks share");
  }
  const auto part_of = [&](int rank) {
    std::filesystem::path part = output;
    part += fmt::format(".rank{}", rank);
    return part;
  };
  const auto source = open_own_part(input, station.loaded, options.input, ranks);
  WriterOptions mine = writer;
  mine.header = ranks.is_root();
  InferReport report;
  {
    RootRun run(station, options, *source, part_of(ranks.rank()), nullptr, is_infer_part);
    run.settle_batch();
    report = run.run(mine, nullptr);
  }
  const std::vector<std::string> times = ranks.texts(report.ranks.front().to_json(options.trace));
  report.rows = ranks.reduce(report.rows, Reduce::sum);
  if (!ranks.is_root()) return report;
  OutputFile whole(output, is_infer_output);
  whole.keep();  // parts go as they are appended: what is here is all there is of them
  for (int r = 0; r < ranks.size(); ++r) {
    whole.append_file(part_of(r));
    std::error_code ignored;
    std::filesystem::remove(part_of(r), ignored);
  }
  whole.finish();
  report.ranks.clear();
  for (const std::string& text : times) report.ranks.push_back(RankTimes::from_json(text));
  report.ranks.front().results_out = station.clock.now();
  return report;
}

// The whole run's figures from those of its ranks.
void sum_up(InferReport& report) {
  double ready = -1, out = 0;
  for (const RankTimes& rank : report.ranks) {
    out = std::max(out, rank.results_out);
    for (const LaneTimes& lane : rank.lanes) {
      if (lane.engine_ready >= 0 && (ready < 0 || lane.engine_ready < ready)) {
        ready = lane.engine_ready;
      }
    }
  }
  report.startup = std::max(0.0, ready);
  report.seconds = std::max(0.0, out - report.startup);
}

// What all ranks must have been told alike. Devices, decoders and credits are each rank's own, and
// of the batch and the input's form the root tells the others.
std::string shared_settings(const InferOptions& options, const std::filesystem::path& output) {
  const auto& precision = options.model.precision;
  return fmt::format(
      "transport = {}\nlabels-only = {}\nformat = {}\nprecision = {}\nown-part = {}\necho = {}\n"
      "trace = {}\n",
      options.transport, !options.outputs,
      settle(options.format, output) == InferFormat::json ? "json" : "csv",
      precision ? name(*precision) : "the model's", options.own_part, options.echo, options.trace);
}

WriterOptions writer_options(const Station& station, const InferOptions& options,
                             const std::filesystem::path& output) {
  WriterOptions writer;
  writer.format = settle(options.format, output);
  writer.classes = station.loaded.model.output().numel();
  writer.outputs = options.outputs;
  writer.letter = station.probabilities() ? 'p' : 'y';
  return writer;
}

}  // namespace

std::string InferReport::to_json() const {
  nlohmann::json json{
      {"inputs", rows},         {"startup_seconds", startup},
      {"seconds", seconds},     {"inputs_per_second", seconds > 0 ? double(rows) / seconds : 0},
      {"transport", transport}, {"ranks", nlohmann::json::array()}};
  for (const RankTimes& rank : ranks) {
    json["ranks"].push_back(nlohmann::json::parse(rank.to_json(false)));
  }
  return dump_json(json, 2) + "\n";
}

InferReport infer(const std::filesystem::path& model, const std::filesystem::path& input,
                  const std::filesystem::path& output, const InferOptions& options,
                  Communicator* communicator) {
  dist::RankCommunicator* ranks = several(communicator);
  if (ranks != nullptr) check_same_settings(*ranks, shared_settings(options, output));
  Station station(model, options, ranks);
  if (ranks != nullptr) check_same_model(*ranks, station.loaded.config, station.loaded.model);
  InferReport report;
  if (options.own_part && ranks != nullptr) {
    report = run_own_parts(station, options, input, output,
                           writer_options(station, options, output), *ranks);
    report.transport = "own parts";
    sum_up(report);
    return report;
  }
  if (ranks != nullptr && !ranks->is_root()) {
    run_other_rank(station, options, *ranks);
    return report;
  }
  const auto source = open_items(input, station.loaded, options.input);
  std::optional<InferPage> page;
  if (!options.report.empty()) {
    check_page(options.report);
    page.emplace(station.loaded.model.output().numel(), station.loaded.model.input(),
                 station.probabilities());
  }
  const SignalGuard signals;
  RootRun run(station, options, *source, output, ranks);
  const int64_t batch = run.settle_batch();
  if (ranks != nullptr) {
    ranks->from_root(batch);
    ranks->text_from_root(source->coding().to_text());
  }
  report = run.run(writer_options(station, options, output), page ? &*page : nullptr);
  report.transport = name(station.delivery);
  if (report.stopped_by != 0) return report;
  sum_up(report);
  if (page) {
    page->write(options.report, report, model.string(), input.string(),
                Machine(station.lanes.front()).runtime().fingerprint());
  }
  return report;
}

}  // namespace ridgeline::engine
