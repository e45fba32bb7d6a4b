#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/stream/result_format.h"
#include "ridgeline/engine/stream/samples.h"
#include "ridgeline/engine/stream/times.h"

namespace ridgeline::engine {

struct InferOptions {
  // run.device may name several: "cuda:all", "cuda:0,1", "cpu,cpu"; each gets its own plan.
  ModelOptions model;
  InferFormat format = InferFormat::automatic;
  InputOptions input;
  OutputKind kind = OutputKind::automatic;
  bool outputs = true;           // of each class; else labels only
  int64_t batch = 0;             // samples per launch and per chunk; 0: chosen by device
  int decoders = 0;              // threads that parse and encode texts; 0: chosen by machine
  std::filesystem::path report;  // folder for report.html; empty: none
  // The following are for several ranks.
  std::string transport = "credits";  // see Delivery
  int credits = 0;                    // chunks in flight to a rank; 0: chosen by its devices
  bool survive = false;               // continue without ranks that are lost
  bool sharded_input = false;         // every rank reads and writes its own part
  bool echo = false;                  // for measuring transports: label 0, no model is run
  bool trace = false;                 // record events for a timeline
};

struct InferReport {
  int64_t samples = 0;
  double startup = 0;  // seconds until the first engine was ready
  double seconds = 0;  // from then until the last result was written
  int stopped_by = 0;  // a signal's number; the results so far are in `unfinished`
  std::string unfinished;
  std::string transport;
  std::vector<RankTimes> ranks;
  std::vector<std::string> warnings;

  std::string to_json() const;
};

// Writes labels and probabilities of every sample of `input`: an IDX file of bytes, raw bytes
// sample after sample, or texts (CSV, lines, JSON lines) for a model of characters; plain or gzip,
// of any size. CSV has the header index,label,p0,...; JSON is one object a line. A model that was
// trained with mse has outputs of any size instead of probabilities: y0,... . A model of a user's
// own data takes the same kinds of files and folders as its training, prepared in the same way; it
// names classes, and a regressor writes values in the units of its data. .npy holds only the
// numbers. An `output` of "-" is
// stdout; a file appears when it is complete, and until then, or after an error, its contents are
// in
// `<output>.part`; neither replaces a file that infer() did not write. With several ranks the
// root's report covers all.
InferReport infer(const std::filesystem::path& model, const std::filesystem::path& input,
                  const std::filesystem::path& output, const InferOptions& options,
                  Communicator* ranks = nullptr);

}  // namespace ridgeline::engine
