#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridgeline/dist/messages.h"
#include "ridgeline/engine/stream/source_reader.h"
#include "ridgeline/engine/stream/workers.h"
#include "ridgeline/engine/stream/writer.h"

namespace ridgeline::engine {

// The order in which the root sends chunks to the ranks.
enum class Delivery {
  credits,      // to whichever rank asks first; two or more in flight to every rank
  interleaved,  // round-robin; the next is sent while one is computed
  nonblocking,  // round-robin, in rounds: one to each rank, all at once, then all results
  blocking,     // like nonblocking, but one send after the other
  scatter,      // the whole file in equal parts before anything is computed
};
Delivery parse_delivery(const std::string& name);  // throws usage
std::string_view name(Delivery delivery);

// Controls polling: often while messages arrive, rarely otherwise, so that a rank with one core has
// it for computing.
class Pace {
 public:
  // Waits for the event, or until it is time to poll again.
  void wait(Event& event, bool moved, bool busy);

 private:
  int idle_ = 0;
};

// The root's part: hands out the chunks of a source, also to its own workers, and passes the
// results on. Credits bound the chunks in memory, and a window bounds the results that wait for
// earlier ones: a rank that is far behind delays the others before the root has to hold everything.
class ChunkRoot {
 public:
  struct Options {
    Delivery delivery = Delivery::credits;
    int ranks = 1;
    bool survive = false;  // chunks are kept until their results arrive
    bool keep = false;     // keeps them for callers that want them with their results
    bool root_computes = true;
    std::function<bool()> stopped{};  // polled: whether to end
  };
  // `messages` is null for one rank.
  ChunkRoot(SourceReader& reader, Workers& workers, ResultWriter& writer, dist::Messages* messages,
            Event& event, const RunClock& clock, const Options& options);

  // Runs until everything is written, until an error, which it throws once all earlier results are
  // written, or until it is stopped.
  void run();
  // Tells the ranks that no more follows, and returns their reports, beginning with the root's.
  std::vector<RankTimes> finish(const RankTimes& own);

  void lose(int rank);         // from any thread; with `survive`
  Chunk kept(int64_t number);  // once, with `keep`; from any thread
  int64_t chunks() const { return handed_; }

 private:
  struct Peer {
    int rank = 0;  // the root's own workers are rank 0's
    int credits = 0;
    bool lost = false, begun = false, said_ready = false, reported = false;
    std::vector<int64_t> out;  // numbers of the chunks it has
  };

  bool dispatch();
  Peer* choose(int64_t number);
  void hand(Peer& peer, Chunk chunk);
  bool take_results();
  bool poll();
  void receive(const dist::Messages::Message& message);
  void accept(Peer& peer, ChunkResult result);
  void bury_lost();
  void bury(Peer& peer);
  bool all_in() const;

  SourceReader& reader_;
  Workers& workers_;
  ResultWriter& writer_;
  dist::Messages* messages_;
  Event& event_;
  const RunClock& clock_;
  const Options options_;
  Pace pace_;
  std::vector<Peer> peers_;
  std::vector<Chunk> again_;  // chunks of lost ranks
  int64_t handed_ = 0;        // chunks taken from the reader
  int64_t total_ = -1;        // scatter: total number of chunks
  bool gone_ = false;         // scatter: everything was sent
  std::vector<RankTimes> reports_;
  double network_ = 0, busy_since_ = -1;

  std::mutex mutex_;
  std::vector<int> newly_lost_;
  std::map<int64_t, Chunk> kept_;
};

// The part of any other rank: requests chunks, passes them to its workers, returns the results.
void run_chunk_rank(Workers& workers, dist::Messages& messages, Event& event, const RunClock& clock,
                    RankTimes own, Delivery delivery, bool wide, bool spans);

}  // namespace ridgeline::engine
