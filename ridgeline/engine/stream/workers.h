#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ridgeline/engine/stream/chunk.h"
#include "ridgeline/engine/stream/event.h"
#include "ridgeline/engine/stream/samples.h"
#include "ridgeline/engine/stream/times.h"

namespace ridgeline::engine {

struct WorkerOptions {
  std::vector<RunConfig> devices;  // one plan and one thread each; a device may occur twice
  int decoders = 1;                // threads that decode chunks into samples, if needed
  int credits = 0;                 // chunks it takes at a time; 0: enough to keep all threads busy
  int64_t batch = 256;             // the most samples of a chunk
  bool outputs = true;             // else only labels
  bool logits = false;             // outputs are those of the last layer, before any softmax
  bool spans = false;              // record spans for a trace
  bool echo = false;  // label 0 for everything, without a model: measures only the transport
};

// The devices of this process: chunks go in, results come out, in any order. Decoding, copying and
// computing of different chunks overlap.
class Workers {
 public:
  // The model must outlive it. `event` is set when a result is ready or a thread has failed.
  Workers(const LoadedModel& model, const Decoder& decoder, const WorkerOptions& options,
          const RunClock& clock, Event& event);
  ~Workers();  // drops unfinished chunks
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int credits() const { return credits_; }
  void give(Chunk chunk);             // at most credits() may be unfinished
  std::optional<ChunkResult> take();  // rethrows a thread's exception
  void hold(bool held);               // while held, chunks are taken but not computed
  void wait_ready();                  // until all engines are ready; rethrows a thread's exception
  // For the trace: a chunk has just arrived, this long after it was announced.
  void arrived(int64_t number, double seconds);
  RankTimes times() const;  // devices, spans and decoding

 private:
  struct Samples {
    ChunkHead head;
    Chunk chunk;                 // if the decoder is the identity
    std::vector<uint8_t> bytes;  // otherwise
    double in = 0;
  };
  struct TimedChunk {
    Chunk chunk;
    double in = 0;
  };

  void run_decoder();
  void run_device(size_t index);
  void run_echo(size_t index);
  void compute(size_t index, class Predictor& predictor, Samples samples);
  std::optional<TimedChunk> next_given();
  std::optional<Samples> next_samples(size_t index);
  void finish(ChunkResult result);
  void fail();
  void begin_stop();
  void join_all();
  bool stopping() const;

  const LoadedModel& model_;
  const Decoder& decoder_;
  const WorkerOptions options_;
  const RunClock& clock_;
  Event& event_;
  int credits_ = 0;

  mutable std::mutex mutex_;
  std::mutex starting_;  // one engine is made at a time, because they measure kernels
  std::condition_variable given_wake_, samples_wake_, ready_wake_;
  std::deque<TimedChunk> given_;
  std::deque<Samples> samples_;
  std::deque<ChunkResult> results_;
  std::exception_ptr failure_;
  bool stop_ = false, held_ = false;
  size_t ready_ = 0;
  RankTimes times_;
  double last_arrival_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace ridgeline::engine
